"""Changes of a node by an operator, as pure functions: record in, record and event out.

The functions describe the change; their callers commit it. Each refuses with a reason what the node's
lifecycle does not allow.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import msgspec

from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import NODE_LEDGERS, NODES, SPOOLS
from corral.controller.state.ledger import Step
from corral.domain.events import Draft, EventType
from corral.domain.groups.instance_records import NodeLedger
from corral.domain.ids import NodeId
from corral.domain.node_claims import RUNTIMES, NodeSettings, check_labels
from corral.domain.node_states import (
    ADMISSION_LIFECYCLE,
    NODE_LIFECYCLE,
    AdmissionTrigger,
    NodeState,
    NodeTrigger,
)
from corral.domain.records import NodeRecord, with_claims
from corral.errors import Code, Rejected, unknown_choice


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    """The new record, and the steps that store it; no steps when nothing changes."""

    record: NodeRecord
    steps: tuple[Step, ...]


def cordon(stored: StoredRecord[NodeRecord], *, reason: str) -> NodeChange:
    """Exclude the node from placement of new instances; running ones continue."""
    return _admit(stored, AdmissionTrigger.CORDON, EventType.NODE_CORDONED, reason)


def uncordon(stored: StoredRecord[NodeRecord], *, reason: str) -> NodeChange:
    """Allow placement of new instances on the node again."""
    return _admit(stored, AdmissionTrigger.UNCORDON, EventType.NODE_UNCORDONED, reason)


def _admit(
    stored: StoredRecord[NodeRecord], trigger: AdmissionTrigger, event: EventType, reason: str
) -> NodeChange:
    record = stored.record
    admission = ADMISSION_LIFECYCLE.step(f"node '{record.id}'", record.admission, trigger)
    if admission is record.admission and (not reason or reason == record.admission_reason):
        return NodeChange(record=record, steps=())
    changed = msgspec.structs.replace(record, admission=admission, admission_reason=reason)
    return _changed(stored, changed, Draft(type=event, subject=record.id, data={"reason": reason}))


def revoke(stored: StoredRecord[NodeRecord], *, reason: str, now: dt.datetime) -> NodeChange:
    """Refuse every certificate of this node from now on."""
    record = stored.record
    if record.state is NodeState.REVOKED:
        return NodeChange(record=record, steps=())
    state = NODE_LIFECYCLE.step(f"node '{record.id}'", record.state, NodeTrigger.REVOKE)
    changed = msgspec.structs.replace(
        record,
        state=state,
        state_since=now,
        lost_at=record.lost_at or now,
        reason=reason or "revoked",
        serials=(),
    )
    event = Draft(type=EventType.NODE_REVOKED, subject=record.id, data={"reason": changed.reason})
    return _changed(stored, changed, event)


class LabelChanges(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's changes of labels: a value; None to remove the label even if the node claims it; or the
    node's claim."""

    values: dict[str, str | None] = {}
    as_claimed: tuple[str, ...] = ()


def relabelled(settings: NodeSettings, changes: LabelChanges) -> NodeSettings:
    """The settings with these changes; labels that are not named keep their values."""
    named = {*changes.values, *changes.as_claimed}
    given = {key: value for key, value in changes.values.items() if value is not None}
    labels = {key: value for key, value in settings.labels.items() if key not in named} | given
    withheld = {key for key in settings.withheld if key not in named}
    withheld |= {key for key, value in changes.values.items() if value is None}
    check_labels(labels)
    check_labels(dict.fromkeys((*withheld, *changes.as_claimed), ""))
    return msgspec.structs.replace(settings, labels=labels, withheld=tuple(sorted(withheld)))


def check_runtimes(state: ClusterState, names: Iterable[str]) -> None:
    """Refuse a runtime that neither comes with Corral nor is of any node: its node would run nothing."""
    known = {*RUNTIMES, *(name for stored in state.nodes for name in stored.record.claimed.runtimes)}
    for name in names:
        if name not in known:
            raise unknown_choice("runtime", name, known, code=Code.INVALID_FIELD, field="runtimes")


def configure(stored: StoredRecord[NodeRecord], settings: NodeSettings) -> NodeChange:
    """Set an operator's settings of a node; they take precedence over what the node claims."""
    record = stored.record
    if record.settings == settings:
        return NodeChange(record=record, steps=())
    changed = with_claims(record, record.claimed, settings)
    event = Draft(type=EventType.NODE_CONFIGURED, subject=record.id, data=msgspec.to_builtins(settings))
    return _changed(stored, changed, event)


def insist_on_node(state: ClusterState, id: str) -> tuple[Step, ...]:
    """Make a transaction fail when a run is placed on the node concurrently: what decides about placement changes with
    it. Each placement writes the node's ledger."""
    stored = state.node_ledgers.find(id)
    ledger = stored.record if stored is not None else NodeLedger(node=NodeId(id))
    return (NODE_LEDGERS.put(id, ledger, expect=state.node_ledgers.revision(id)),)


def set_log_level(stored: StoredRecord[NodeRecord], *, level: str) -> NodeChange:
    """Set the node's log level; the empty string selects the one of the node's own configuration."""
    record = stored.record
    if record.log_level == level:
        return NodeChange(record=record, steps=())
    data = {"source": f"node:{record.id}", "level": level}
    event = Draft(type=EventType.LOG_LEVEL_CHANGED, subject=record.id, data=data)
    return _changed(stored, msgspec.structs.replace(record, log_level=level), event)


def removal(stored: StoredRecord[NodeRecord], *, has_session: bool) -> tuple[Step, ...]:
    """The steps that remove a node; CONFLICT while it is connected."""
    record = stored.record
    if has_session or record.state is NodeState.ONLINE:
        raise Rejected(
            Code.CONFLICT,
            f"node '{record.id}' is connected and cannot be removed",
            hint="stop its daemon or revoke it first",
        )
    return (
        NODES.delete(record.id, expect=stored.revision),
        SPOOLS.delete(record.id, expect=None),
        Draft(type=EventType.NODE_REMOVED, subject=record.id, data={"state": record.state.value}),
    )


def _changed(stored: StoredRecord[NodeRecord], record: NodeRecord, event: Draft) -> NodeChange:
    return NodeChange(record=record, steps=(NODES.put(record.id, record, expect=stored.revision), event))
