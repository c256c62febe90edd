"""Orders about runs from the link, and their answers; also the exits of runs that the controller confirmed once and
requests again because its store was restored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog

from corral.daemon.probes.minecraft_ping import counted
from corral.daemon.runs.exit_outcome import failed_start
from corral.daemon.runs.run import Run
from corral.daemon.runs.run_files import FailedStart, RunDirectories, RunIntent, RunOutcome, StopOrder
from corral.daemon.runs.run_messages import (
    cut,
    exit_status,
    start_accepted,
    start_refused,
    stop_ack,
    wire_state,
)
from corral.daemon.supervise.supervisor import InstanceSupervisor, StartRefusal
from corral.daemon.workload.start_order import read_start
from corral.daemon.workload.start_stages import PROCESS_START, VALIDATION
from corral.domain.causes import request_of
from corral.domain.ids import Incarnation, instance_id, same_start
from corral.domain.instance_states import InstanceState
from corral.errors import Code, CorralError, Retryable
from corral.runtimes.console.log import ConsoleLog
from corral.system import log_context
from corral.system.aio.tasks import Tasks
from corral.wire.frame_table import require
from corral.wire.v1.instance_pb2 import (
    AskRunEnds,
    RunEnds,
    RunName,
    RunningInstance,
    SendCommand,
    SendCommandAck,
)
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage

MOST_ASKED: Final = 100


def known_exit(name: RunName, present: Run | None, runs: RunDirectories) -> RunningInstance | None:
    """The exit of this run, or of the last one of the same start if that is the current one; None: nothing is stored
    of it, or it has not exited. Blocks."""
    asked = Incarnation(name.incarnation)
    if present is not None and same_start(present.order.incarnation, asked):
        if present.outcome is None:
            return None
        return _ended(present.intent, present.outcome)
    try:
        files = runs.files(instance_id(name.instance_id), asked)
        outcome, intent = files.outcome(), files.intent()
    except (CorralError, OSError) as error:
        _log.warning("exit_notification.failed", instance=name.instance_id[:80], reason=str(error))
        return None
    return _ended(intent, outcome) if intent is not None and outcome is not None else None


def _ended(intent: RunIntent, outcome: RunOutcome) -> RunningInstance:
    order = intent.order
    return RunningInstance(
        instance_id=order.instance_id,
        group=order.group,
        port=order.primary_port,
        state=wire_state(outcome.state),
        incarnation=order.incarnation,
        pid=outcome.pid,
        started_at_ms=outcome.started_at_ms,
        console_offset=outcome.console_end,
        exit=exit_status(outcome),
        plan_hash=order.plan_hash,
        reason=cut(outcome.reason),
        ticket=order.ticket,
        nonce=intent.nonce,
    )


def known_exits(names: Iterable[tuple[RunName, Run | None]], runs: RunDirectories) -> list[RunningInstance]:
    """The known exits among these runs. Blocks."""
    found = (known_exit(name, present, runs) for name, present in names)
    return [end for end in found if end is not None]


Reply = Callable[[DaemonMessage], bool]
"""Sends to the controller that is connected when the answer is ready; False when there is none."""

_log = structlog.get_logger("corral.daemon.orders")


class LinkOrders:
    """Frames in, answers out. What takes time becomes a task of its own, so that no order waits for
    another; commands to one instance keep their order."""

    def __init__(self, supervisor: InstanceSupervisor, runs: RunDirectories) -> None:
        self._supervisor = supervisor
        self._runs = runs
        self._tasks = Tasks()
        self._commands: dict[str, asyncio.Task[None]] = {}
        self.handlers: dict[str, Callable[[Reply, ControllerMessage], None]] = {
            "start_instance": self._start,
            "stop_instance": self._stop,
            "send_command": self._send_command,
            "workload_report": self._workload_report,
            "ask_run_ends": self._ask_run_ends,
        }

    async def close(self) -> None:
        await self._tasks.close()

    def _start(self, reply: Reply, message: ControllerMessage) -> None:
        request = message.start_instance
        try:
            order = msgspec.structs.replace(read_start(request), request=request_of(message.cause))
            known = self._supervisor.instances.find(order.instance_id)
            run = self._supervisor.start(order, begun=lambda run: reply_to_start(reply, run))
        except StartRefusal as refusal:
            number = request.incarnation
            self._refuse(reply, request.instance_id, refusal.failure, refusal.run, incarnation=number)
        except CorralError as error:
            failure = failed_start(VALIDATION, error)
            self._refuse(reply, request.instance_id, failure, None, incarnation=request.incarnation)
        else:
            if run is known:
                reply_to_start(reply, run)

    def _refuse(
        self, reply: Reply, id: str, failure: FailedStart, run: Run | None, *, incarnation: int = 0
    ) -> None:
        """Reports the ordered run when the node knows none, else the run it has."""
        _log.warning("instance_start.refused", instance=id, code=failure.code, reason=failure.message)
        state = run.state if run else InstanceState.STOPPED
        reply(start_refused(id, run.order.incarnation if run else incarnation, failure, state=state))

    def _stop(self, reply: Reply, message: ControllerMessage) -> None:
        self._tasks.spawn(
            self._stopping(reply, message),
            name=f"supervise/stop/{message.stop_instance.instance_id}",
            keeps_ids=True,
        )

    async def _stopping(self, reply: Reply, message: ControllerMessage) -> None:
        request = message.stop_instance
        order = StopOrder(
            reason=request.reason or "the controller asked for it",
            force=request.force,
            decision=request.decision_id,
            request=request_of(message.cause),
        )
        problem: CorralError | None = None
        with log_context.bound(instance=request.instance_id, decision=request.decision_id):
            try:
                require(request)
                if not await self._supervisor.end_lost(request.instance_id, request.incarnation):
                    await self._supervisor.stop(
                        request.instance_id, incarnation=request.incarnation, order=order
                    )
            except Exception as error:
                problem = _as_ours(error)
        run = self._supervisor.instances.find(request.instance_id)
        reply(
            stop_ack(
                request.instance_id,
                run.order.incarnation if run else request.incarnation,
                state=run.state if run else InstanceState.STOPPED,
                error=problem,
            )
        )

    def _ask_run_ends(self, reply: Reply, message: ControllerMessage) -> None:
        self._tasks.spawn(
            self._send_run_ends(reply, message.ask_run_ends), name="supervise/run-ends", keeps_ids=True
        )

    async def _send_run_ends(self, reply: Reply, asked: AskRunEnds) -> None:
        names = [
            (name, self._supervisor.instances.find(name.instance_id)) for name in asked.runs[:MOST_ASKED]
        ]
        ends = await asyncio.to_thread(known_exits, names, self._runs)
        reply(DaemonMessage(run_ends=RunEnds(runs=ends)))

    def _workload_report(self, _: Reply, message: ControllerMessage) -> None:
        """Player counts in it have reached the controller already; they are kept for its next session or successor."""
        report = message.workload_report
        if report.ready:
            self._supervisor.workload_reported_ready(report.instance_id, report.incarnation)
        if report.not_ready:
            self._supervisor.workload_reported_not_ready(report.instance_id, report.incarnation)
        if report.players_known:
            players = counted(report.player_count, report.max_players)
            self._supervisor.workload_reported_players(report.instance_id, report.incarnation, players)

    def _send_command(self, reply: Reply, message: ControllerMessage) -> None:
        id = message.send_command.instance_id
        before = self._commands.get(id)
        task = self._tasks.spawn(
            self._commanding(reply, message, before), name=f"supervise/command/{id}", keeps_ids=True
        )
        self._commands[id] = task
        task.add_done_callback(
            lambda done: self._commands.pop(id, None) if self._commands.get(id) is done else None
        )

    async def _commanding(
        self, reply: Reply, message: ControllerMessage, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        request = message.send_command
        problem: CorralError | None = None
        arrived_before = False
        offset: int | None = None
        with log_context.bound(instance=request.instance_id):
            try:
                offset = await asyncio.to_thread(self._console_end, request)
                arrived_before = await self._command(request)
                _log.info("command.accepted", incarnation=request.incarnation, repeated=arrived_before)
            except Exception as error:
                problem = _as_ours(error)
                _log.info("command.refused", incarnation=request.incarnation, code=problem.code.name)
        run = self._supervisor.instances.find(request.instance_id)
        reply(
            DaemonMessage(
                send_command_ack=SendCommandAck(
                    request_id=request.request_id,
                    instance_id=request.instance_id,
                    incarnation=run.order.incarnation if run else request.incarnation,
                    accepted=problem is None,
                    error_code=problem.code.name if problem else "",
                    error_message=cut(str(problem)) if problem else "",
                    unread_bytes=getattr(problem, "unread_bytes", 0),
                    repeated=arrived_before,
                    console_offset=None if arrived_before or problem is not None else offset,
                )
            )
        )

    def _console_end(self, request: SendCommand) -> int | None:
        """The present end of the console of the run that is meant; None when it is not here. Blocks."""
        run = self._supervisor.instances.find(request.instance_id)
        if run is None:
            return None
        files = self._runs.files(run.order.instance_id, run.order.incarnation)
        with ConsoleLog(files.console) as log:
            return log.end_offset

    async def _command(self, request: SendCommand) -> bool:
        """True when the line had arrived before."""
        require(request)
        if request.command_id:
            return await self._supervisor.send_command_once(
                request.instance_id,
                incarnation=request.incarnation,
                line=request.command,
                id=request.command_id,
                repeated=request.repeated,
            )
        await self._supervisor.send_command(
            request.instance_id, incarnation=request.incarnation, line=request.command
        )
        return False


def _as_ours(error: Exception) -> CorralError:
    """Whatever happened, an order is answered."""
    if isinstance(error, CorralError):
        return error
    _log.error("instance_order.failed", exc_info=error)
    return Retryable(Code.INTERNAL, f"the node could not do this: {error}")


def reply_to_start(reply: Reply, run: Run) -> None:
    """The result of the start so far: the same answer for every repetition."""
    outcome, failure = run.outcome, run.outcome.failed_start if run.outcome else None
    if outcome is not None and failure is None and outcome.outcome == "never_started":
        failure = FailedStart(
            stage=PROCESS_START,
            code=Code.START_INTERRUPTED.name,
            message=f"the start was interrupted: {outcome.reason}",
            permanent=True,
        )
    if failure is None:
        reply(start_accepted(run))
        return
    order = run.order
    reply(
        start_refused(
            order.instance_id, order.incarnation, failure, plan_hash=order.plan_hash, state=run.state
        )
    )
