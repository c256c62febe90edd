"""The inventory of a connecting node, compared with the records.

In two steps. At once: runs that it lists as alive are updated, adopted with a proof that they are the
cluster's, or strays. Once its spool is stored up to its head at the handshake: the state of runs that it did
not list is decided, because only then is everything known that the node knows.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from corral.controller.instances.lost_runs import seen_again
from corral.controller.instances.order_answers import end_missing
from corral.controller.instances.report_values import RunReport, leased_ports, report_of
from corral.controller.instances.reports import announce, fold_report
from corral.controller.instances.restored_nodes import announce_unknown_end, is_end_stored
from corral.controller.instances.run_match import StartOwnership, Stray, start_ownership, superseded
from corral.controller.instances.start_identity import StartTickets, Ticket
from corral.controller.instances.starts import keep_number, release, reserve
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind
from corral.domain.events import EventType
from corral.domain.groups.instance_records import InstanceRecord, Readiness, live, next_state
from corral.domain.ids import (
    RESTARTS_PER_START,
    GroupName,
    Incarnation,
    InstanceId,
    NodeId,
    group_name,
    instance_id,
)
from corral.domain.instance_states import InstanceState, InstanceTrigger, Wanted
from corral.errors import Rejected
from corral.wire.v1.instance_pb2 import RunningInstance

_RUNS_OF_ONE: Final = 16
"""The most live runs of one instance on a node; further ones are not sorted."""
_NO_RECORD: Final = "there was no record"
_PUT_BACK: Final = "was put back to an earlier state: it knows nothing of run {incarnation} any more"
_UNPROVEN: Final = "nothing proves that it was started by us"


def add_listed(listed: dict[str, list[RunningInstance]], entries: Iterable[RunningInstance]) -> None:
    """Group entries by instance; invalid ones are left out, and of one instance all but the newest."""
    for entry in entries:
        if _valid(entry):
            runs = listed.setdefault(entry.instance_id, [])
            bisect.insort(runs, entry, key=lambda run: -run.incarnation)
            del runs[_RUNS_OF_ONE:]


def _valid(entry: RunningInstance) -> bool:
    try:
        instance_id(entry.instance_id)
        group_name(entry.group)
    except Rejected:
        return False
    return entry.incarnation < 2**63


class ListedRuns:
    """The runs that one handshake lists, folded portion by portion.

    `bar` is the serial of the last start that the store knew the node to have been given before it connected:
    adopted runs are above it, whatever was adopted in the portion before.
    """

    def __init__(self, node: NodeId, tickets: StartTickets, *, bar: int) -> None:
        self._node = node
        self._tickets = tickets
        self._bar = bar

    def fold(self, ws: Workspace, runs: Sequence[RunningInstance]) -> list[Stray]:
        """Fold the listed runs of one instance."""
        alive = [(run, report) for run in runs if (report := report_of(run, ws.now)) and live(report.state)]
        if not alive:
            return []
        chosen, report = next((each for each in alive if self._counts(ws, each[0])), alive[0])
        beside = [run for run, _ in alive if run.incarnation != chosen.incarnation]
        named = {run.incarnation for run in beside if _named(ws, self._node, run)}
        found = self._take(ws, chosen, report)
        others = [self._beside(ws, run, chosen, named=run.incarnation in named) for run in beside]
        return [*([found] if found else []), *others]

    def _counts(self, ws: Workspace, run: RunningInstance) -> bool:
        """Is it the run of the record, or one that a ticket proves the store to have forgotten? A merely
        higher number does not get either of them stopped."""
        ticket = self._proven(run)
        return _named(ws, self._node, run) or (ticket is not None and ticket.serial > self._bar)

    def _beside(self, ws: Workspace, run: RunningInstance, chosen: RunningInstance, *, named: bool) -> Stray:
        """A further run of the same instance: an older one is stopped if it is the cluster's or was
        superseded."""
        ours = named or self._proven(run) is not None
        if run.incarnation > chosen.incarnation:
            return _stray(run, _UNPROVEN, ours=False, stop=False)
        stop = ours or superseded(ws.instance(run.instance_id), self._node, run.incarnation)
        return _stray(run, f"run {chosen.incarnation} of it is newer", ours=ours, stop=stop)

    def _take(self, ws: Workspace, run: RunningInstance, report: RunReport) -> Stray | None:
        record = ws.instance(run.instance_id)
        where = start_ownership(record, self._node, run.incarnation)
        if where is StartOwnership.KNOWN:
            return fold_report(ws, self._node, report, present=True)
        ticket = self._proven(run)
        if (
            ticket
            and record is not None
            and where is StartOwnership.SUPERSEDED
            and _forgotten(record, self._node)
            and not is_end_stored(ws, record, run.incarnation, report.nonce)
        ):
            announce_unknown_end(ws, record)
            release(ws, record)
            _adopt(ws, self._node, run, report, ticket, why=_PUT_BACK.format(incarnation=record.incarnation))
            return None
        if record is not None and (
            superseded(record, self._node, run.incarnation) or (ticket and where is StartOwnership.SUPERSEDED)
        ):
            reason = f"it was superseded by run {record.incarnation} on '{record.node}'"
            return _stray(run, reason, ours=ticket is not None, stop=True)
        if ticket is None or ticket.serial <= self._bar:
            reason = "its ticket was used before" if ticket else _UNPROVEN
            return _stray(run, reason, ours=False, stop=False)
        if record is not None and live(record.state) and record.node != self._node:
            reason = f"run {record.incarnation} of it is on '{record.node}'"
            return _stray(run, reason, ours=True, stop=True)
        if record is not None:
            release(ws, record)
        _adopt(ws, self._node, run, report, ticket, why=_NO_RECORD)
        return None

    def adoptable(self, runs: Sequence[RunningInstance]) -> int:
        """The highest incarnation here that a ticket proves to be one the store has forgotten; 0 for none."""
        proven = [(run.incarnation, self._proven(run)) for run in runs if run.ticket]
        return max((number for number, ticket in proven if ticket and ticket.serial > self._bar), default=0)

    def _proven(self, run: RunningInstance) -> Ticket | None:
        ticket = self._tickets.proven(
            run.ticket, node=self._node, id=run.instance_id, group=run.group, incarnation=run.incarnation
        )
        return ticket if ticket is not None and ticket.plan_hash == run.plan_hash else None


def _named(ws: Workspace, node: NodeId, run: RunningInstance) -> bool:
    return start_ownership(ws.instance(run.instance_id), node, run.incarnation) is StartOwnership.KNOWN


def _stray(run: RunningInstance, reason: str, *, ours: bool, stop: bool) -> Stray:
    return Stray(
        id=run.instance_id, incarnation=run.incarnation, group=run.group, reason=reason, ours=ours, stop=stop
    )


def _forgotten(record: InstanceRecord, node: NodeId) -> bool:
    """Has this node reported executing the run of the record, which it does not list now? Then the node was
    restored to an earlier state, and the run that it lists is the only one of this instance."""
    here = record.node == node and record.started_at is not None
    return here and live(record.state) and record.wanted is Wanted.RUN


def _adopt(
    ws: Workspace, node: NodeId, run: RunningInstance, report: RunReport, ticket: Ticket, *, why: str
) -> None:
    """Adopt a run of the cluster that the store does not know: it continues, under a record made from its
    node's."""
    known = ws.group(run.group) is not None
    reason = f"node '{node}' runs it and {why}" + ("" if known else "; its group is unknown")
    decision = ws.decide(
        DecisionKind.PLACE,
        group=run.group if known else "",
        instance=report.id,
        reason=f"adopted: {reason}",
        inputs={"node": node, "incarnation": report.incarnation, "state": report.state.value},
        causes=(f"node:{node}",),
    )
    record = InstanceRecord(
        id=InstanceId(report.id),
        group=GroupName(run.group),
        node=node,
        incarnation=Incarnation(report.incarnation),
        serial=ticket.serial,
        state=report.state,
        wanted=Wanted.RUN,
        readiness=report.readiness or Readiness.WAITING,
        ports=leased_ports(run),
        memory_mb=max(0, min(run.memory_mb, 2**31)),
        plan_hash=ticket.plan_hash,
        decision=decision,
        reason=reason,
        pid=report.pid,
        created_at=report.started_at or ws.now,
        started_at=report.started_at,
        console_end=report.console_end,
        nonce=report.nonce,
        adopted=True,
        module_changes=report.module_changes,
        modules_missing=report.modules_missing,
        home=node if _static(ws, run.group) else "",
    )
    ws.put_instance(record)
    reserve(ws, record)
    keep_number(ws, record.group)
    ws.event(
        EventType.INSTANCE_ADOPTED,
        record.id,
        group=record.group,
        node=node,
        incarnation=record.incarnation,
        state=record.state.value,
    )


def _static(ws: Workspace, group: str) -> bool:
    found = ws.group(group)
    return found is not None and found.spec.static


def reconcile_listed(ws: Workspace, node: NodeId, id: str, runs: Sequence[RunningInstance]) -> None:
    """After the node's spool is stored: a run that the node did not list, and whose exit it did not report,
    is gone."""
    record = ws.instance(id)
    if record is None or record.node != node or not live(record.state):
        return
    own = [run for run in runs if _is_present(record, run)]
    if not own:
        _resolve_missing(ws, record)
        return
    report = report_of(own[0], ws.now)
    if report is not None and not live(report.state):
        fold_report(ws, node, report)


def _is_present(record: InstanceRecord, run: RunningInstance) -> bool:
    """Is it the run of the record, or a later one that its node made of the same start?"""
    known = start_ownership(record, record.node, run.incarnation) is StartOwnership.KNOWN
    return known and (not run.incarnation or run.incarnation >= record.incarnation) and bool(run.state)


def is_missing(record: InstanceRecord, runs: Sequence[RunningInstance]) -> bool:
    """Was the run started, or may it have been, and does its node list it neither as alive nor as ended?"""
    scheduled = (record.state_before_offline or record.state) is InstanceState.SCHEDULED
    begun = not (scheduled and _is_sendable(record))
    return live(record.state) and begun and not any(_is_present(record, run) for run in runs)


def _is_sendable(record: InstanceRecord) -> bool:
    """Is it a start that can be sent again? Restarts by the node are not, and may be over."""
    return record.incarnation % RESTARTS_PER_START == 0 and not record.adopted


def _resolve_missing(ws: Workspace, record: InstanceRecord) -> None:
    state = record.state_before_offline or record.state
    sendable = state is InstanceState.SCHEDULED and _is_sendable(record) and record.wanted is Wanted.RUN
    replaced = record.lost and bool(ws.state.instances.replacement_of(record.id))
    if sendable and not replaced:
        if record.state is InstanceState.OFFLINE:
            back = msgspec.structs.replace(
                seen_again(ws, record),
                state=next_state(record, InstanceTrigger.REPORTED_SCHEDULED),
                state_before_offline=None,
                reason="its node is back",
            )
            ws.put_instance(back)
            announce(ws, back)
        return  # the order is sent (again)
    end_missing(ws, record)
