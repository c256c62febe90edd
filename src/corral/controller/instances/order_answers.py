"""Answers of nodes to orders: a refused start, a stop of a run that is not there."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from corral.controller.instances.deployment_revisions import start_revision
from corral.controller.instances.plans import decoded
from corral.controller.instances.report_values import cut, exit_record, report_of, stage_name
from corral.controller.instances.reports import fold_report
from corral.controller.instances.run_exits import end_run
from corral.controller.instances.run_match import RunRelation, Stray, run_relation
from corral.controller.instances.starts import refuse_ports, release, start_run
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind
from corral.domain.groups.instance_records import (
    NOT_YET_RUNNING,
    ExitRecord,
    InstanceRecord,
    LeasedPort,
    StartFailure,
    live,
)
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.holds import hold_text
from corral.domain.planning.refusals import PlacementRefusal
from corral.domain.planning.start_requests import StartRequest
from corral.errors import Code
from corral.wire.v1 import instance_pb2 as wire

MAX_ATTEMPTS: Final = 5
"""The number of attempts of one start when nodes refuse it for transient reasons."""
MAX_PORT_ATTEMPTS: Final = 10
_MAX_RETRY_SECONDS: Final = 3600
_UNDER_WAY: Final = NOT_YET_RUNNING | {InstanceState.STOPPING}
_NOT_ABOUT_THE_RUN: Final = frozenset({Code.STALE_INCARNATION.name, Code.STALE_EPOCH.name})
_LISTED: Final = 5
_AGAIN: Final = "; it is tried again"
"""A node's suffix to a transient failure; wrong for the last attempt."""
_NUMBER: Final = re.compile(r"\d{1,5}")


def fold_start_answer(ws: Workspace, node: NodeId, ack: wire.StartInstanceAck) -> Stray | None:
    """An accepted start is a report; a refused one is retried, or ends the run."""
    if ack.accepted:
        report = report_of(ack, ws.now)
        return fold_report(ws, node, report) if report else None
    record = ws.instance(ack.instance_id)
    if (
        record is None
        or record.node != node
        or run_relation(record, ack.incarnation) is not RunRelation.SAME
        or record.state not in _UNDER_WAY
        or ack.error_code in _NOT_ABOUT_THE_RUN
    ):
        return None
    failure = StartFailure(
        stage=stage_name(ack.stage),
        code=ack.error_code[:63] or Code.START_FAILED.name,
        message=cut(ack.error_message) or "the node gave no reason",
        permanent=ack.failure_disposition != wire.START_FAILURE_DISPOSITION_TRANSIENT,
        retry_after_seconds=max(0, min(ack.retry_after_seconds, _MAX_RETRY_SECONDS)),
    )
    _refused(ws, record, failure)
    return None


def _refused(ws: Workspace, record: InstanceRecord, failure: StartFailure) -> None:
    if record.wanted is not Wanted.RUN:
        never = _unstarted(ws, crashed=False, outcome="never_started", summary=failure.message)
        end_run(ws, record, InstanceState.STOPPED, never, reason=failure.message, failure=failure)
        return
    busy = failure.code == Code.PORT_IN_USE.name
    attempts = record.attempts + 1
    final = failure.permanent and not _overtaken(ws, record, failure)
    given_up = final or attempts >= (MAX_PORT_ATTEMPTS if busy else MAX_ATTEMPTS)
    if not given_up:
        try_again = _try_other_ports if busy else _try_again
        again = try_again(ws, record, failure, attempts)
        if again is None:
            return
        failure = _without_place(failure, again)
    failure = msgspec.structs.replace(failure, message=failure.message.removesuffix(_AGAIN))
    why = f"{failure.code} at {failure.stage or 'the start'}: {failure.message}"
    failed = _unstarted(ws, crashed=True, outcome="start_failed", summary=cut(why))
    ended = msgspec.structs.replace(record, attempts=attempts)
    end_run(ws, ended, InstanceState.CRASHED, failed, reason=cut(why), failure=failure)


def _try_other_ports(
    ws: Workspace, record: InstanceRecord, failure: StartFailure, attempts: int
) -> PlacementRefusal | None:
    """Retry with other ports, while the refused ones count as busy. Where there are none and the node reports
    when these become free (connections of an ended run linger there), retry with the same ports then."""
    mark = ws.mark()
    refuse_ports(ws, record.node, _named_ports(record, failure.message))
    at_once = msgspec.structs.replace(failure, retry_after_seconds=0)
    again = _try_again(ws, record, at_once, attempts)
    if again is None or again.code is not Code.PORT_RANGE_EXHAUSTED or not failure.retry_after_seconds:
        return again
    ws.back_to(mark)
    return _try_again(ws, record, failure, attempts)


def _without_place(failure: StartFailure, refused: PlacementRefusal) -> StartFailure:
    """The refusal of one node when no other place was found: what is lacking comes first."""
    if failure.code == Code.PORT_IN_USE.name and refused.code is Code.PORT_RANGE_EXHAUSTED:
        lacking = "; ".join(f"{each.node}: {each.reason}" for each in refused.refusals[:_LISTED])
        message = f"no port is left ({lacking or refused.summary}); the last refusal: {failure.message}"
        return msgspec.structs.replace(failure, code=refused.code.name, message=cut(message))
    return msgspec.structs.replace(
        failure, message=cut(f"{failure.message}; no other place: {refused.summary}")
    )


def _overtaken(ws: Workspace, record: InstanceRecord, failure: StartFailure) -> bool:
    """A version was removed while the start that names it was being committed: a new plan succeeds."""
    stored = ws.state.plans.find(record.plan_hash)
    if failure.code != Code.TEMPLATE_NOT_FOUND.name or stored is None:
        return False
    templates = ws.state.templates
    return any(
        templates.version_of(each.name, each.hash) is None for each in decoded(stored.record).templates
    )


def _try_again(
    ws: Workspace, record: InstanceRecord, failure: StartFailure, attempts: int
) -> PlacementRefusal | None:
    """Start another run under the same id: elsewhere if possible, with other ports where those were taken."""
    group = ws.group(record.group)
    if group is None or group.deleting:
        return PlacementRefusal(code=Code.NO_CAPACITY, summary="the group is gone")
    if group.hold is not None:
        return PlacementRefusal(code=Code.GROUP_HELD, summary=hold_text(group.hold, record.group))
    mark = ws.mark()
    release(ws, record)
    busy = failure.code == Code.PORT_IN_USE.name
    request = StartRequest.after(
        record,
        kind=DecisionKind.RESTART,
        reason=f"start {attempts} was refused: {failure.message}",
        prefer=record.node if busy else None,
        avoid=None if busy else record.node,
        attempts=attempts,
        failure=failure,
        follows=record.decision,
        revision=start_revision(ws, group, record),
    )
    started = start_run(ws, group, request)
    if isinstance(started, PlacementRefusal):
        ws.back_to(mark)
        return started
    return None


def _named_ports(record: InstanceRecord, message: str) -> tuple[LeasedPort, ...]:
    """The ports that the message names; all of the run's when it names none."""
    numbers = {int(number) for number in _NUMBER.findall(message)}
    return tuple(port for port in record.ports if port.port in numbers) or record.ports


def _unstarted(ws: Workspace, *, crashed: bool, outcome: str, summary: str) -> ExitRecord:
    return ExitRecord(
        known=False,
        code=None,
        signal=None,
        crashed=crashed,
        outcome=outcome,
        summary=summary,
        ended_at=ws.now,
    )


def fold_stop_answer(ws: Workspace, node: NodeId, ack: wire.StopInstanceAck) -> None:
    """The exit of a run arrives with its report. This answer only shows that the node never had the run."""
    record = ws.instance(ack.instance_id)
    if ack.accepted or record is None or record.node != node or not live(record.state):
        return
    unknown = (
        ack.error_code == Code.NOT_FOUND.name and run_relation(record, ack.incarnation) is RunRelation.SAME
    )
    if unknown or _was_held_back(record, ack):
        end_missing(ws, record)


def _was_held_back(record: InstanceRecord, ack: wire.StopInstanceAck) -> bool:
    """Does the node know an earlier start under this id, and not the one to be stopped? Then the order of
    that one was held back here. Frames keep their order, so none of it can be in flight."""
    return (
        ack.error_code == Code.STALE_INCARNATION.name
        and run_relation(record, ack.incarnation) is RunRelation.STALE
        and record.state is InstanceState.SCHEDULED
        and record.wanted is Wanted.STOP
    )


def end_missing(ws: Workspace, record: InstanceRecord) -> None:
    """End a run that the node does not have and whose exit it does not know."""
    state = record.state_before_offline or record.state
    if state is InstanceState.SCHEDULED:
        summary = "it was never started"
        exit = _unstarted(ws, crashed=False, outcome="never_started", summary=summary)
        end_run(ws, record, InstanceState.STOPPED, exit, reason=summary)
        return
    desired = record.wanted is Wanted.RUN
    exit = exit_record(None, crashed=desired, now=ws.now)
    ended = InstanceState.CRASHED if desired else InstanceState.STOPPED
    end_run(ws, record, ended, exit, reason=f"node '{record.node}' no longer has it: {exit.summary}")
