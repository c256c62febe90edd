"""States of modules on nodes: reports of nodes, folded into rows of the store and events. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Final

import msgspec

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import MODULE_NODE_STATES
from corral.controller.state.ledger import Step
from corral.domain.events import Draft, EventType
from corral.domain.ids import NodeId
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import NodeModuleState, next_request_ms, node_module_key
from corral.domain.node_claims import reported_time
from corral.errors import Code, Rejected
from corral.wire.handshake_lists import digest_of, entries_of, is_module_id, read_intent, signature_of
from corral.wire.v1.module_pb2 import ModuleSetEntry, ModuleStateUpdate
from corral.wire.v1.node_pb2 import Handshake

MOST_ERROR: Final = 4 * 1024
_MOST_REASON: Final = 500
_MOST_VERSION: Final = 100
_PHASES: Final = {phase.value: phase for phase in ModulePhase}
_DECLINED: Final = ("settings_refused: ", "signature_refused: ")
_GONE: Final = "gone_from_the_node"
"""Reason of UNLOADED for a module that is missing from the node's list, without a report of its own."""


def update_error(state: ClusterState, node_id: NodeId, update: ModuleStateUpdate) -> Rejected | None:
    """The error of an invalid update, to be sent to the node. Such an update changes nothing."""
    if not is_module_id(update.module_id):
        return Rejected(Code.INVALID_FIELD, "module_state_update.module_id is no id", field="module_id")
    if update.size_bytes and not update.state:
        return None
    if not update.state:
        return Rejected(Code.MISSING_FIELD, "module_state_update.state is empty", field="state")
    phase = _PHASES.get(update.state)
    if phase is None:
        text = f"module_state_update.state: there is no state '{update.state[:40]}'"
        return Rejected(Code.INVALID_FIELD, text, field="state")
    if phase is not ModulePhase.UNLOADED and not _known(state, node_id, update.module_id):
        text = f"there is no module '{update.module_id}'"
        return Rejected(Code.NOT_FOUND, text, field="module_id")
    return None


class StateFold:
    """Folds updates of one node in the order of arrival: one event for each that reports more than a
    completed operator request, and one write per module, of its last state."""

    def __init__(self, state: ClusterState, node_id: NodeId, *, now: dt.datetime) -> None:
        self._state = state
        self._node_id = node_id
        self._now = now
        self._rows: dict[str, NodeModuleState | None] = {}

    def take(self, update: ModuleStateUpdate) -> list[Step]:
        """Events of one update; an invalid one changes nothing."""
        id = update.module_id
        if not update.state or update_error(self._state, self._node_id, update) is not None:
            return []
        before = self._rows[id] if id in self._rows else _row(self._state, self._node_id, id)
        if before is None and not _known(self._state, self._node_id, id):
            return []
        phase = _PHASES[update.state]
        after = _reported(self._state, self._node_id, update, before, phase=phase, now=self._now)
        self._rows[id] = None if phase is ModulePhase.UNLOADED else after
        stayed = update.from_state in ("", update.state)  # a refused archive has no state before it
        if before is not None and stayed and _same(before, after):
            return []
        return [_event(after, came_from=_PHASES.get(update.from_state))]

    def writes(self) -> list[Step]:
        return _writes(self._state, self._node_id, self._rows)


def fold_list(state: ClusterState, node_id: NodeId, hello: Handshake, *, now: dt.datetime) -> list[Step]:
    """The rows brought in line with the node's list."""
    entries = entries_of(hello.modules)
    rows: dict[str, NodeModuleState | None] = {}
    events: list[Step] = []
    for id, entry in entries.items():
        before = _row(state, node_id, id)
        after = _listed(state, node_id, entry, before, now=now)
        if after is not None and after != before:
            rows[id] = after
            if before is None or _key_facts(before) != _key_facts(after):
                events.append(_event(after, came_from=before.phase if before else None))
    for stored in state.module_node_states.of_node(node_id):
        row = stored.record
        if row.module not in entries:
            rows[row.module] = None
            gone = msgspec.structs.replace(
                row, phase=ModulePhase.UNLOADED, reason=_GONE, error="", updated_at=now
            )
            events.append(_event(gone, came_from=row.phase))
    return _writes(state, node_id, rows) + events


def forget_node(state: ClusterState, node_id: str) -> list[Step]:
    """Deletes the rows of a node that was removed from the cluster."""
    return [
        MODULE_NODE_STATES.delete(node_module_key(node_id, stored.record.module), expect=None)
        for stored in state.module_node_states.of_node(node_id)
    ]


def is_unhealthy(row: NodeModuleState, sha256: str) -> bool:
    """Does the module need an operator there?"""
    return row.phase is ModulePhase.FAILED or bool(sha256 and row.refused_sha256 == sha256)


def runs_with_refusal(row: NodeModuleState) -> bool:
    """Does the module run there, but not with the settings or the signature that it was given last?"""
    return row.phase is not ModulePhase.FAILED and row.error.startswith(_DECLINED)


def request_recovery(
    state: ClusterState, id: str, nodes: Collection[NodeId], *, request: str, now: dt.datetime
) -> list[Step]:
    """Requests another try of the module on these nodes, except on those that never reported it; `request` is the
    id of the request of the API."""
    rows = [stored for stored in state.module_node_states.of_module(id) if stored.record.node in nodes]
    return [
        MODULE_NODE_STATES.put(
            node_module_key(stored.record.node, id),
            msgspec.structs.replace(
                stored.record,
                recover_asked_ms=next_request_ms(
                    now, stored.record.recover_asked_ms, stored.record.recover_done_ms
                ),
                recover_request=request,
            ),
            expect=stored.revision,
        )
        for stored in rows
    ]


def _known(state: ClusterState, node_id: NodeId, id: str) -> bool:
    return state.modules.find(id) is not None or _row(state, node_id, id) is not None


def _row(state: ClusterState, node_id: NodeId, id: str) -> NodeModuleState | None:
    stored = state.module_node_states.find(node_module_key(node_id, id))
    return stored.record if stored else None


def _listed(
    state: ClusterState,
    node_id: NodeId,
    entry: ModuleSetEntry,
    before: NodeModuleState | None,
    *,
    now: dt.datetime,
) -> NodeModuleState | None:
    """None when the list gives no state of the module, or when the module was never known to the
    controller."""
    phase = _PHASES.get(entry.state)
    package = state.modules.find(entry.module_id)
    if phase is None or phase is ModulePhase.UNLOADED or (package is None and before is None):
        return None
    after = _reported(state, node_id, entry, before, phase=phase, now=now)
    if before is None or entry.HasField("recover_ms"):
        return after
    waits = is_unhealthy(after, package.record.sha256 if package else "")
    return msgspec.structs.replace(after, recover_done_ms=before.recover_done_ms) if waits else after


def _reported(
    state: ClusterState,
    node_id: NodeId,
    report: ModuleStateUpdate | ModuleSetEntry,
    before: NodeModuleState | None,
    *,
    phase: ModulePhase,
    now: dt.datetime,
) -> NodeModuleState:
    """The row of a report, with bounded fields. An older daemon reports neither archive nor intent: it has
    what it was sent. A daemon that does not count requests has carried out the pending one when it reports
    anything new."""
    package = state.modules.find(report.module_id)
    record = package.record if package else None
    asked = before.recover_asked_ms if before else 0
    plain = not report.sha256 and not report.refused_sha256 and not report.version
    intent = read_intent(report.intent) or (record.intent if record else ModuleIntent.ACTIVE)
    if plain:
        version = record.version if record else before.version if before else ""
        sha256 = record.sha256 if record else before.sha256 if before else ""
    else:
        version, sha256 = report.version[:_MOST_VERSION], digest_of(report.sha256)
    return NodeModuleState(
        node=node_id,
        module=report.module_id,
        phase=phase,
        version=version,
        sha256=sha256,
        intent=intent,
        reason=report.reason[:_MOST_REASON],
        error=report.last_error[:MOST_ERROR],
        refused_sha256=digest_of(report.refused_sha256),
        signature_sha256=signature_of(report, "signature_sha256"),
        refused_signature_sha256=signature_of(report, "refused_signature_sha256"),
        recover_asked_ms=asked,
        recover_request=before.recover_request if before else "",
        recover_done_ms=report.recover_ms if report.HasField("recover_ms") else asked,
        reload_done_ms=report.reload_ms if report.HasField("reload_ms") else None,
        updated_at=reported_time(report.updated_at_ms, now) or now,
    )


def _same(before: NodeModuleState, after: NodeModuleState) -> bool:
    """Equal except for the operator requests that the node has carried out, and signatures that it has taken?"""
    settled = msgspec.structs.replace(
        before,
        signature_sha256=after.signature_sha256,
        recover_done_ms=after.recover_done_ms,
        reload_done_ms=after.reload_done_ms,
        updated_at=after.updated_at,
    )
    return settled == after != before


def _key_facts(row: NodeModuleState) -> tuple[object, ...]:
    return row.phase, row.version, row.sha256, row.reason, row.refused_sha256


def _event(row: NodeModuleState, *, came_from: ModulePhase | None) -> Draft:
    """The event of an update, without the error text: events have more readers than logs, and the text may
    hold what a module wrote into it."""
    return Draft(
        type=EventType.MODULE_NODE_STATE,
        subject=row.module,
        data={
            "id": row.module,
            "node": row.node,
            "version": row.version,
            "from": came_from.value if came_from else None,
            "to": row.phase.value,
            "intent": row.intent.value,
            "reason": row.reason,
            "refused_sha256": row.refused_sha256,
            "at": row.updated_at.isoformat(),
        },
    )


def _writes(state: ClusterState, node_id: NodeId, rows: dict[str, NodeModuleState | None]) -> list[Step]:
    steps: list[Step] = []
    for id, row in rows.items():
        key = node_module_key(node_id, id)
        if row is not None:
            revision = state.replaced_revision(state.module_node_states, key)
            steps.append(MODULE_NODE_STATES.put(key, row, expect=revision))
        elif (stored := state.module_node_states.find(key)) is not None:
            steps.append(MODULE_NODE_STATES.delete(key, expect=stored.revision))
    return steps
