"""Folding of nodes' reports into instance records.

A report counts only for the run it names: one about an earlier run changes nothing, and a run that is alive
though it should not be is returned as a `Stray`, to be stopped. Within a run states only advance, and an end
is final; details of an end that arrive later are added to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from corral.controller.instances.deployment_failures import note_failure
from corral.controller.instances.lost_runs import seen_again
from corral.controller.instances.report_values import (
    RunReport,
    crash_record,
    cut,
    exit_record,
)
from corral.controller.instances.restored_nodes import (
    PUT_BACK,
    end_repeated,
    former_nonces,
    is_end_stored,
    note_earlier_run,
    with_awaited_end,
    with_nonce,
)
from corral.controller.instances.run_exits import NOT_THE_WORKLOADS_FAULT, end_run, take_place_again
from corral.controller.instances.run_match import (
    RunRelation,
    StartOwnership,
    Stray,
    run_relation,
    start_ownership,
    superseded,
)
from corral.controller.instances.starts import reserve, settled_home
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind
from corral.domain.events import EventType
from corral.domain.groups.instance_records import ExitRecord, InstanceRecord, Readiness, is_ready, live
from corral.domain.ids import Incarnation, NodeId, run_nonce, same_start
from corral.domain.instance_states import InstanceState, Wanted, reported
from corral.wire.v1.instance_pb2 import CrashReport

EVENT_OF_STATE: Final = {
    InstanceState.SCHEDULED: EventType.INSTANCE_SCHEDULED,
    InstanceState.PREPARING: EventType.INSTANCE_PREPARING,
    InstanceState.STARTING: EventType.INSTANCE_STARTING,
    InstanceState.RUNNING: EventType.INSTANCE_RUNNING,
    InstanceState.DRAINING: EventType.INSTANCE_DRAINING,
    InstanceState.STOPPING: EventType.INSTANCE_STOPPING,
}
CRASHES_OF_A_NODE: Final = 1000
"""The most crashes kept of one node, however many are kept in all."""
ENDED_BEFORE: Final = "its end was reported before: its node was put back to an earlier state"
_PREPARED: Final = frozenset({InstanceState.STARTING, InstanceState.RUNNING})
"""States in which the node has the instance's directory."""


def fold_report(ws: Workspace, node: NodeId, report: RunReport, *, present: bool = False) -> Stray | None:
    """Fold a report about one run into its record. A report about a run of another node changes nothing.
    `present`: the report is current, and the node has this run now."""
    record = ws.instance(report.id)
    if record is None:
        return None
    where = start_ownership(record, node, report.incarnation)
    if superseded(record, node, report.incarnation):
        reason = f"it was superseded by run {record.incarnation} on '{record.node}'"
        return _stray(record, report, reason, ours=False)
    if where is not StartOwnership.KNOWN:
        return None
    if not _is_unexecuted(report):
        record = note_earlier_run(ws, record, report.incarnation, report.nonce, ended=False)
    kin = run_relation(record, report.incarnation, report.nonce)
    if kin is RunRelation.EARLIER and present and live(report.state):
        if is_end_stored(ws, record, report.incarnation, report.nonce):
            return _stray(record, report, ENDED_BEFORE, ours=True)
        if report.nonce not in ("", record.nonce):
            kin = RunRelation.REPEATED
    if kin in (RunRelation.RESTARTED, RunRelation.REPEATED):
        if _is_over(record):
            return _stray(record, report, f"this start was stopped: {record.reason}", ours=True)
        record = with_awaited_end(record) if kin is RunRelation.RESTARTED else record
        record = _announce_end_before(ws, record, report, decided=True)
        if kin is RunRelation.RESTARTED:
            record = restarted_by_node(
                ws, record, report.incarnation, nonce=report.nonce, reason=report.reason
            )
        else:
            record = _repeated(ws, record, report.incarnation or record.incarnation, report.nonce)
    elif kin in (RunRelation.SAME, RunRelation.EARLIER) and report.incarnation > record.end_told_before:
        # the node had restarted the run before it connected
        record = _announce_end_before(ws, record, report, decided=kin is RunRelation.SAME)
    if kin not in (RunRelation.SAME, RunRelation.RESTARTED, RunRelation.REPEATED):
        return None
    if report.nonce not in ("", record.nonce) and record.nonce and not present and _is_unexecuted(report):
        return None  # from before the node began it again under the nonce that its handshake has listed
    return _advance(ws, record, report)


def _is_unexecuted(report: RunReport) -> bool:
    return live(report.state) and report.started_at is None


def _announce_end_before(
    ws: Workspace, record: InstanceRecord, report: RunReport, *, decided: bool
) -> InstanceRecord:
    """Publish the exit of a run that ended without a crash and that its node replaced by this one, and the
    decision for the restart. The record stores that this was done: a node with a full disk reports it over
    the link and again later."""
    if report.former_exit is None or not report.incarnation:
        return record
    exit = exit_record(report.former_exit, crashed=False, now=ws.now)
    ws.event(
        EventType.INSTANCE_STOPPED,
        record.id,
        group=record.group,
        node=record.node,
        incarnation=report.incarnation - 1,
        reason=exit.summary,
        exit=msgspec.to_builtins(exit),
        restarted_as=report.incarnation,
    )
    if decided:
        ws.decide(
            DecisionKind.RESTART,
            group=record.group,
            instance=record.id,
            reason=cut(f"its node starts it again: {report.reason or exit.summary}"),
            inputs={"outcome": exit.outcome, "incarnation": report.incarnation},
            causes=(record.decision,),
        )
    record = note_earlier_run(ws, record, report.incarnation - 1, "", ended=True)
    announced = msgspec.structs.replace(record, end_told_before=Incarnation(report.incarnation))
    ws.put_instance(announced)
    return announced


def _is_over(record: InstanceRecord) -> bool:
    """Was the run stopped on request, so that its node must not run it again?"""
    return record.wanted is Wanted.STOP and not live(record.state)


def _stray(record: InstanceRecord, report: RunReport, reason: str, *, ours: bool) -> Stray | None:
    if not live(report.state):
        return None
    return Stray(id=record.id, incarnation=report.incarnation, group=record.group, reason=reason, ours=ours)


def _advance(ws: Workspace, record: InstanceRecord, report: RunReport) -> Stray | None:
    if not live(record.state):
        if live(report.state) and _is_late(record, report):
            return None
        if live(report.state):
            return _stray(record, report, f"this run was given up: {record.reason}", ours=True)
        crashed = record.state is InstanceState.CRASHED
        exit = exit_record(report.exit, crashed=crashed, now=ws.now)
        learn_exit(ws, record, exit, console_end=report.console_end)
        return None
    record, before = _with_modules(record, report), record
    record = with_nonce(record, report.nonce)
    state = reported(record.state, report.state)
    if state is InstanceState.RUNNING and record.wanted is Wanted.DRAIN:
        state = InstanceState.DRAINING  # its node does not know
    readiness = report.readiness or record.readiness
    if not live(state):
        crashed = state is InstanceState.CRASHED
        ended = exit_record(report.exit, crashed=crashed, now=ws.now)
        end = max(record.console_end, report.console_end)
        record = msgspec.structs.replace(record, console_end=end)
        end_run(ws, record, state, ended, reason=report.reason or ended.summary)
        return None
    record = seen_again(ws, record)
    changed = msgspec.structs.replace(
        record,
        state=state,
        state_before_offline=None,
        pid=report.pid or record.pid,
        started_at=report.started_at or record.started_at,
        readiness=readiness,
        console_end=max(record.console_end, report.console_end),
        home=settled_home(ws, record) if state in _PREPARED else record.home,
        reason=_reason(record, state, report.reason)
        if (state, readiness) != (record.state, record.readiness)
        else record.reason,
    )
    if changed != msgspec.structs.replace(before, console_end=changed.console_end):
        ws.put_instance(changed)
    if state is not record.state:
        announce(ws, changed)
    elif readiness is not record.readiness:
        announce_ready(ws, changed)
    return None


def _reason(record: InstanceRecord, state: InstanceState, reported: str) -> str:
    """Why it is in a state that was reported. Its node does not know why it takes no more players."""
    if state is InstanceState.DRAINING and record.drain is not None:
        return reported or record.drain.reason
    return reported


def _is_late(record: InstanceRecord, report: RunReport) -> bool:
    """Is the exit of this very run known? Then a report that it is alive was sent before that."""
    ended = record.exit is not None and record.exit.known
    return ended and bool(report.nonce) and report.nonce == record.nonce


def _with_modules(record: InstanceRecord, report: RunReport) -> InstanceRecord:
    """Add the modules' changes of this run, and the files it kept; a report without them removes nothing."""
    if report.files_kept:
        record = msgspec.structs.replace(record, files_kept=report.files_kept)
    if not report.names_modules:
        return record
    return msgspec.structs.replace(
        record, module_changes=report.module_changes, modules_missing=report.modules_missing
    )


def announce(ws: Workspace, record: InstanceRecord) -> None:
    """Add the event that a run reached its present state."""
    event = EVENT_OF_STATE.get(record.state)
    if event is not None:
        ws.event(
            event,
            record.id,
            group=record.group,
            node=record.node,
            incarnation=record.incarnation,
            pid=record.pid,
            reason=record.reason,
            decision=record.decision,
            **({"ready": is_ready(record)} if record.state is InstanceState.RUNNING else {}),
        )


def announce_ready(ws: Workspace, record: InstanceRecord) -> None:
    """Add the event that a run became ready, or is no longer."""
    ws.event(
        EventType.INSTANCE_READY_CHANGED,
        record.id,
        group=record.group,
        node=record.node,
        incarnation=record.incarnation,
        ready=is_ready(record),
        reason=record.reason,
    )


def restarted_by_node(
    ws: Workspace, record: InstanceRecord, incarnation: int, *, nonce: str = "", reason: str
) -> InstanceRecord:
    """The node restarted the run by itself: a new run of the same start, with the same reservation."""
    if live(record.state):
        record = seen_again(ws, record)
    changed = msgspec.structs.replace(
        record,
        incarnation=Incarnation(incarnation),
        state=InstanceState.SCHEDULED,
        readiness=Readiness.WAITING,
        state_before_offline=None,
        pid=0,
        started_at=None,
        ended_at=None,
        end_received_at=None,
        exit=None,
        start_failure=None,
        console_end=0,
        module_changes=(),
        modules_missing=(),
        restarts=record.restarts + max(1, incarnation - record.incarnation),
        nonce=nonce,
        former_nonces=former_nonces(record),
        end_told_before=min(record.end_told_before, Incarnation(incarnation)),
        gave_up_place=False,
        # An instance whose desired state is stopped is stopped all the same, so its reason is kept.
        reason=record.reason if record.wanted is Wanted.STOP else reason or "restarted by its node",
    )
    ws.put_instance(changed)
    if not live(record.state):
        reserve(ws, changed)  # the exit of the previous run had released it
        take_place_again(ws, record)
    return changed


def _repeated(ws: Workspace, record: InstanceRecord, incarnation: int, nonce: str) -> InstanceRecord:
    """A different run under a number that was used before."""
    end_repeated(ws, record, incarnation)
    return restarted_by_node(ws, record, incarnation, nonce=nonce, reason=PUT_BACK)


def learn_exit(ws: Workspace, record: InstanceRecord, exit: ExitRecord, *, console_end: int = 0) -> None:
    """Add the exit, or the end of the console, to a run that was known to be over without it."""
    changed = msgspec.structs.replace(record, console_end=max(record.console_end, console_end))
    if exit.known and (record.exit is None or not record.exit.known):
        changed = msgspec.structs.replace(changed, exit=exit, ended_at=exit.ended_at)
    if changed != record:
        ws.put_instance(changed)


def fold_crash(
    ws: Workspace,
    node: NodeId,
    report: CrashReport,
    *,
    proven: bool = False,
    within_rate: Callable[[], bool] = lambda: True,
) -> None:
    """Store a crash, once, and end its run, or begin the one that its node starts in its place.

    It counts only for a run that the record names, or, `proven` by its ticket, for an earlier start that the
    node was given. A crash that is not `within_rate` has the same effect on its run, but replaces the
    previous crash: of each instance the newest is kept, however often it crashes.
    """
    record = ws.instance(report.instance_id)
    known = (
        record is not None
        and record.group == report.group
        and start_ownership(record, node, report.incarnation) is StartOwnership.KNOWN
    )
    if not known and not proven:
        return
    incarnation = report.incarnation or (record.incarnation if record else 0)
    id = _crash_id(ws, report, incarnation)
    if ws.has_crash(id):
        return
    exit = exit_record(report.exit, crashed=True, crash_class=report.crash_class, now=ws.now)
    surplus = not within_rate()
    crash = crash_record(report, id=id, incarnation=incarnation, node=node, exit=exit, now=ws.now)
    ws.put_crash(crash, most=CRASHES_OF_A_NODE, instead=surplus)
    if record is not None and known:
        record = note_earlier_run(ws, record, incarnation, crash.nonce, ended=True)
        kin = run_relation(record, incarnation, crash.nonce)
        if kin is RunRelation.REPEATED and not _is_over(record):
            record = _repeated(ws, record, incarnation, crash.nonce)
            kin = RunRelation.SAME
        if kin is RunRelation.SAME:
            _end_by_crash(ws, with_nonce(record, crash.nonce), report, exit, id)
        elif (
            kin is RunRelation.EARLIER and not surplus
        ):  # of a run that its node had restarted before it connected
            _announce_crash(ws, record, incarnation, exit, id, restarted_as=report.restarted_as)


def _crash_id(ws: Workspace, report: CrashReport, incarnation: int) -> str:
    """The id of a crash. It differs for another run with the same number."""
    id = f"{report.instance_id}.{incarnation}"
    stored = ws.crash(id)
    nonce = run_nonce(report.nonce)
    other = stored is not None and stored.nonce and nonce and stored.nonce != nonce
    return f"{id}.{nonce}" if other else id


def _end_by_crash(
    ws: Workspace, record: InstanceRecord, report: CrashReport, exit: ExitRecord, crash: str
) -> None:
    reason = cut(exit.summary or "crashed")
    again = report.restarted_as
    restarts = again > record.incarnation and same_start(record.incarnation, Incarnation(again))
    if restarts and not _is_over(record):
        _announce_crash(ws, record, record.incarnation, exit, crash, restarted_as=again)
        if record.wanted is Wanted.RUN and exit.outcome not in NOT_THE_WORKLOADS_FAULT:
            note_failure(ws, record, exit, reason=reason, crash=crash)
        pause = f" in {report.restart_in_ms / 1000:g} s" if report.restart_in_ms > 0 else ""
        restarted_by_node(ws, record, again, reason=f"{reason}; its node restarts it{pause}")
    elif live(record.state):
        end_run(ws, record, InstanceState.CRASHED, exit, reason=reason, crash=crash)
    else:
        learn_exit(ws, record, exit)


def _announce_crash(
    ws: Workspace,
    record: InstanceRecord,
    incarnation: int,
    exit: ExitRecord,
    crash: str,
    *,
    restarted_as: int,
) -> None:
    """Add the event of a crashed run that its node replaced by another one."""
    ws.event(
        EventType.INSTANCE_CRASHED,
        record.id,
        group=record.group,
        node=record.node,
        incarnation=incarnation,
        reason=cut(exit.summary or "crashed"),
        exit=msgspec.to_builtins(exit),
        restarted_as=restarted_as,
        crash=crash,
    )
