"""Instances that are to go when they have no players: they take no more of them, and may be taken back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind, Numbers, Rule
from corral.domain.events import EventType
from corral.domain.groups.drain_records import InstanceDrain
from corral.domain.groups.instance_records import InstanceRecord, next_state
from corral.domain.instance_states import InstanceState, InstanceTrigger, Wanted


def drain_instance(
    ws: Workspace,
    record: InstanceRecord,
    reason: str,
    *,
    rule: Rule,
    inputs: Numbers | None = None,
    node: str = "",
    causes: Sequence[str] = (),
) -> InstanceRecord:
    """Let an instance take no more players; it is stopped when it has none. `node`: where it is, if that is the reason."""
    if record.wanted is not Wanted.RUN:
        return record
    decision = ws.decide(
        DecisionKind.DRAIN,
        rule=rule,
        group=record.group,
        instance=record.id,
        reason=reason,
        inputs={"state": record.state.value, "incarnation": record.incarnation, **(inputs or {})},
        node=node,
        causes=causes,
    )
    changed = msgspec.structs.replace(
        record,
        wanted=Wanted.DRAIN,
        state=drained_state(record),
        decision=decision,
        reason=reason,
        drain=InstanceDrain(by=rule.value, since=ws.now, reason=reason),
    )
    ws.put_instance(changed)
    _announce(ws, EventType.INSTANCE_DRAINING, record, decision)
    return changed


def _announce(ws: Workspace, type: EventType, record: InstanceRecord, decision: str) -> None:
    ws.event(
        type,
        record.id,
        group=record.group,
        node=record.node,
        incarnation=record.incarnation,
        decision=decision,
    )


def drained_state(record: InstanceRecord) -> InstanceState:
    """The state of an instance that is to drain: the node knows it as running."""
    return (
        next_state(record, InstanceTrigger.DRAIN) if record.state is InstanceState.RUNNING else record.state
    )


def undrain_instance(ws: Workspace, record: InstanceRecord, reason: str, *, rule: Rule) -> InstanceRecord:
    """Let an instance serve again that was to go when it has no players."""
    if record.wanted is not Wanted.DRAIN:
        return record
    decision = ws.decide(
        DecisionKind.UNDRAIN,
        rule=rule,
        group=record.group,
        instance=record.id,
        reason=reason,
        inputs={"state": record.state.value, "incarnation": record.incarnation},
    )
    draining = record.state is InstanceState.DRAINING
    state = next_state(record, InstanceTrigger.UNDRAIN) if draining else record.state
    changed = msgspec.structs.replace(
        record, wanted=Wanted.RUN, state=state, decision=decision, reason=reason, drain=None, retired_by=""
    )
    ws.put_instance(changed)
    _announce(ws, EventType.INSTANCE_RUNNING, record, decision)
    return changed
