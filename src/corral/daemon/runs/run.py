"""One run of an instance, from its intent until nothing of it is left.

A run is an actor: `live` (or `resume`, `conclude` after an adoption) is its only task; other code changes it by
orders. A stop order is on disk before it is followed; the outcome is on disk before it is reported. Cancelling the
task detaches: the workload goes on and a later daemon adopts it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec
import structlog

from corral.daemon.hooks.start_changes import Provenance
from corral.daemon.runs.exit_outcome import (
    never_started,
    start_failed,
    supervision_failed,
    without_secrets,
)
from corral.daemon.runs.exit_record import LastLines, OutcomeRecord, console_end, read_last_lines
from corral.daemon.runs.run_files import RunFiles, RunIntent, RunOutcome, StopOrder
from corral.daemon.runs.run_hooks import RunHooks
from corral.daemon.runs.run_messages import (
    exit_update,
    files_kept,
    stage_update,
    status_update,
)
from corral.daemon.runs.run_monitor import MonitoredExit, RunMonitor, kill_run
from corral.daemon.runs.run_readiness import RunReadiness
from corral.daemon.runs.run_start import Interrupted, RunStart
from corral.daemon.runs.run_times import RunTimes
from corral.daemon.runs.services import Services
from corral.daemon.runs.stop_ladder import StopRequest
from corral.daemon.workload.run_secrets import RunMask
from corral.daemon.workload.start_stages import PROCESS_START, VALIDATION, StageFailed
from corral.domain.instance_states import InstanceState, InstanceTrigger, StateHistory
from corral.errors import Code, CorralError, Rejected
from corral.sdk.runtime import RunExit, RunHandle, RuntimeProvider
from corral.system import log_context

_log = structlog.get_logger("corral.daemon.runs")
_State, _Trigger = InstanceState, InstanceTrigger


class Run:
    """See the module. `begun` is called once, when the start has succeeded or failed."""

    def __init__(
        self,
        services: Services,
        files: RunFiles,
        intent: RunIntent,
        *,
        begun: Callable[[Run], None] | None = None,
        stop: StopRequest | None = None,
        mask: RunMask | None = None,
        history: StateHistory | None = None,
    ) -> None:
        self.order = intent.order
        self.nonce = intent.nonce
        self.intent = intent
        self.files = files
        self.stop = stop or StopRequest(files)
        self.mask = mask or services.preparer.mask_of(intent.order, files.directory)
        self.times = RunTimes(services.clock)
        self._outcomes = OutcomeRecord(
            services, files, intent, stop=self.stop, mask=self.mask, times=self.times
        )
        self._history = history or StateHistory(subject=f"instance '{intent.order.instance_id}'")
        self._reason = intent.reason
        self.pid = 0
        self.started_at_ms = 0
        self.handle: RunHandle | None = None
        """The runtime's handle; None before its start and after its exit."""
        self._started_by: RuntimeProvider | None = None
        self.outcome: RunOutcome | None = None
        self._outcome_waits = False
        """The outcome is reported, and not yet written because the disk refuses."""
        self.tail: tuple[str, ...] = ()
        self.files_kept: tuple[str, ...] = ()
        """Files of a static directory that this start kept."""
        self._services = services
        self._begun = begun
        self._in_time = True
        self.readiness = RunReadiness(services, self)
        self.modules = RunHooks(self, hooks=services.hooks, directories=services.directories)

    @property
    def state(self) -> InstanceState:
        return self._history.state

    @property
    def reason(self) -> str:
        """Why it is in its state, masked: it never holds a secret of the run."""
        return self.mask.hide(self._reason)

    @reason.setter
    def reason(self, reason: str) -> None:
        self._reason = reason

    @property
    def made_by_modules(self) -> Provenance:
        return self.modules.made

    @property
    def name(self) -> str:
        return f"{self.order.instance_id}.{self.order.incarnation}"

    @property
    def ended(self) -> bool:
        """The run has exited, and its outcome is written."""
        return self.outcome is not None and not self._outcome_waits

    @property
    def was_ready(self) -> bool:
        """The run has exited, and had been ready before."""
        if self.outcome is None or self.outcome.exit is None:
            return False
        if self.order.probes:
            return self.files.was_ready()
        return self.outcome.uptime_ms >= self.order.min_alive_seconds * 1000

    @property
    def runtime(self) -> RuntimeProvider:
        """The runtime that started it, by the mark in its directory; before there is one, the ordered one."""
        if self.handle is None:
            return self._services.runtimes.get(self.order.runtime)
        if self._started_by is None:
            self._started_by = self._services.runtimes.of(str(self.files.directory))
        return self._started_by

    @property
    def uptime_ms(self) -> int:
        return self.outcome.uptime_ms if self.outcome is not None else self.times.uptime_ms

    @property
    def console_end(self) -> int:
        if self.outcome is not None:
            return self.outcome.console_end
        return console_end(self.files.console) if self.handle else 0

    async def ask_stop(self, order: StopOrder) -> None:
        """Request its stop. A kill is executed first and waits for nothing; a stop begins once it is on disk. Either
        way an exit meanwhile counts as requested."""
        if self.ended:
            return
        self.stop.take(order)
        if order.force and self.handle is not None:
            self.modules.notify_stopping()
            await kill_run(self.runtime, self.handle)
        await self.stop.make(order)
        if self.outcome is None:
            self._now_stopping(order.reason)

    async def live(self) -> RunOutcome:
        """Write the intent, start it, and monitor it until its exit. Cancelled, it detaches."""
        with log_context.bound(**self.intent.ids):
            begun = await self._begin()
        return begun if isinstance(begun, RunOutcome) else await self._monitor(begun)

    async def _begin(self) -> RunHandle | RunOutcome:
        """Start it; its exit when that came to nothing."""
        beginning = RunStart(self._services, self)
        try:
            async with beginning:
                await beginning.begin(lambda: self._enter(_Trigger.PREPARE))
                self.times.begin()
                handle, self._in_time = await beginning.spawn()
        except (StageFailed, Interrupted) as stopped:
            self.files_kept = files_kept(beginning.kept_files)
            return await self._end(self._unstarted(stopped))
        self.files_kept = files_kept(beginning.kept_files)
        self._take(handle)
        if self.state is _State.PREPARING:
            self._enter(_Trigger.SPAWN)
        self.modules.started()
        self.report_begun()
        return handle

    def _unstarted(self, why: StageFailed | Interrupted) -> RunOutcome:
        now_ms = self._services.now_ms()
        if isinstance(why, StageFailed):
            return start_failed(why.stage, why.error, now_ms=now_ms)
        assert self.stop.order is not None
        return self._outcomes.followed(never_started(self.stop.order, now_ms=now_ms))

    async def begin_again(self) -> RunOutcome:
        """Like `live`, for an intent that an earlier daemon did not execute; an unreadable one cannot be started."""
        self.stop.restore()
        self._history = self._history.found(_State.SCHEDULED, "nothing of it was executed")
        if self.order.command or self.order.plan is not None:
            return await self.live()
        damaged = Rejected(Code.FORMAT_INVALID, "what was to be started cannot be read any more")
        return await self._end(start_failed(VALIDATION, damaged, now_ms=self._services.now_ms()))

    def begun_anew(self, intent: RunIntent | None = None) -> Run:
        """The same run after a fault of ours, or with another intent; the callback of its start stays pending."""
        again = Run(
            self._services,
            self.files,
            intent or self.intent,
            begun=self._begun,
            stop=self.stop,
            mask=self.mask,
            history=self._history,
        )
        again.pid, again.started_at_ms = self.pid, self.started_at_ms
        again.times.began_at = self.times.began_at  # the time of its start goes on
        return again

    async def fail(self, error: CorralError, exit: RunExit | None, handle: RunHandle | None) -> RunOutcome:
        """The outcome when it could not be supervised, and nothing of it is left. It cannot fail itself: what the
        disk or a listener of ours refuses is logged."""
        self.stop.restore()
        if handle is not None:
            self.pid, self.started_at_ms = handle.pid, handle.started_at_ms
        outcome = supervision_failed(
            error,
            exit=exit,
            pid=self.pid,
            started_at_ms=self.started_at_ms,
            stop=self.stop.order,
            now_ms=self._services.now_ms(),
        )
        try:
            if exit is not None:
                self.modules.restore()
                self._follow_console()
            return await self._end(outcome)
        except Exception:
            _log.exception("outcome_write.failed", run=self.name)
            outcome = without_secrets(outcome, self.mask.hide)
            self.remember(outcome)
            self.report_begun()
            return outcome

    def take_over(self, handle: RunHandle, reason: str = "") -> None:
        """Adopt a living run of an earlier daemon; `resume` follows. `reason`: what is unusual about it."""
        self.stop.restore()
        self._take(handle)
        state = self.readiness.restore()
        if self.stop.order is not None:
            state, reason = _State.STOPPING, self.stop.order.reason
        self.reason = reason  # the intent's reason was about the start
        self._history = self._history.found(state, self.reason)
        self.modules.restore()
        self.modules.started(adopted=True)

    async def resume(self) -> RunOutcome:
        """Monitor an adopted run."""
        assert self.handle is not None
        self.report_begun()  # a fault of ours came between its start and the answer
        await self.mask.learn(self.handle)
        return await self._monitor(self.handle)

    async def conclude(self, exit: RunExit, handle: RunHandle | None) -> RunOutcome:
        """The outcome when it exited while no daemon was running."""
        self.stop.restore()
        self.modules.restore()
        if handle is not None:
            self.pid, self.started_at_ms = handle.pid, handle.started_at_ms
        self._follow_console()
        state = _State.STOPPING if self.stop.order else _State.RUNNING
        self._history = self._history.found(state, "it ended while no daemon was looking")
        return await self._conclude(MonitoredExit(exit=exit))

    def remember(self, outcome: RunOutcome) -> None:
        """Take an outcome that is on disk."""
        self._outcome_waits = False
        self._show(outcome)

    def _show(self, outcome: RunOutcome) -> None:
        self.outcome = outcome
        self.reason = outcome.reason
        self._history = self._history.ended(outcome.state, self.reason)
        self.pid, self.started_at_ms = outcome.pid, outcome.started_at_ms
        self.handle = None
        self.times.end(outcome.ended_at_ms, now_ms=self._services.now_ms())

    def _take(self, handle: RunHandle) -> None:
        self.handle = handle
        self.pid, self.started_at_ms = handle.pid, handle.started_at_ms
        self.times.start(handle, now_ms=self._services.now_ms())
        with contextlib.suppress(CorralError):  # it has them, whatever the ledger holds
            self._services.ports.take(self.name, self.order.ports)
        self._services.directories.hold(self.order.instance_id, self.order.incarnation)
        self._follow_console()

    def _follow_console(self) -> None:
        with log_context.apart():  # a watch of its files, which stays
            self._services.consoles.attach(
                self.order.instance_id, self.order.incarnation, str(self.files.console), nonce=self.nonce
            )

    async def _monitor(self, handle: RunHandle) -> RunOutcome:
        began_at, started_at = self.times.began_at, self.times.started_at
        assert started_at is not None
        monitor = RunMonitor(
            runtime=self.runtime,
            handle=handle,
            order=self.order,
            stop=self.stop,
            began_at=began_at if began_at is not None else started_at,
            started_at=started_at,
            clock=self._services.clock,
            watch=self.readiness.watch(handle),
            ready=self.state is _State.RUNNING,
            in_time=self._in_time,
            now_ready=self._now_ready,
            now_stopping=self._now_stopping,
            before_stop=self.modules.before_stop,
        )
        monitored = await monitor.until_ended()
        self.readiness.end()
        return await self._conclude(monitored)

    def _now_ready(self) -> None:
        self.readiness.start_is_over()
        with log_context.bound(**self.intent.ids):
            self._enter(_Trigger.READY)

    def _now_stopping(self, reason: str) -> None:
        if self.state is not _State.STOPPING:
            with log_context.bound(**self.stop.ids):
                self._enter(_Trigger.STOP, reason)

    async def _conclude(self, monitored: MonitoredExit) -> RunOutcome:
        last = await asyncio.to_thread(self.read_last_lines)
        self.tail = last.lines
        return await self._end(
            await self._outcomes.outcome_of(monitored, last, pid=self.pid, started_at_ms=self.started_at_ms)
        )

    def read_last_lines(self) -> LastLines:
        """The last console lines, without its secrets. Blocks."""
        return read_last_lines(self.files.console, self.mask.known())

    async def _end(self, outcome: RunOutcome) -> RunOutcome:
        """Write the outcome first; while the disk refuses, the connected controller receives it before."""
        outcome = await self._outcomes.written(outcome, self._report_unwritten)
        self._services.consoles.ended(self.order.instance_id, self.order.incarnation)
        self.remember(outcome)
        self._services.ports.release(self.name)
        if outcome.restarted_as is not None:  # else its kept files are searched for secrets
            self.mask.forget()
        with log_context.bound(**self.stop.ids):
            _log.info("instance.ended", run=self.name, outcome=outcome.outcome, how=outcome.summary)
            self.modules.stopped(outcome)
            self.report_begun()
        return outcome

    def _report_unwritten(self, outcome: RunOutcome, error: CorralError) -> RunOutcome:
        """Send the outcome as it is, once a controller is connected. A run whose exit was sent like this is not
        restarted here: the controller decides."""
        if self._outcome_waits:
            return outcome
        self.handle = None
        last = msgspec.structs.replace(outcome, restarted_as=None, restart_delay_seconds=0.0)
        reason = f"{last.reason or last.summary}; its end is not written yet: {error.message}"
        if not self._services.send(exit_update(self, last, reason=self.mask.hide(reason))):
            return outcome
        self._outcome_waits = True
        self._show(last)
        self.reason = reason
        return last

    def wait_to_start(self, why: str) -> None:
        """Its start is pending, and waits for disk space or for its ports."""
        self.reason = why
        self.report_stage(VALIDATION)

    def wait_for_modules(self, what: str) -> None:
        """Its start waits for these modules, and goes on when this is empty; a stop has its own reason."""
        if self.state is _State.PREPARING:
            self.reason = what
            self.report_stage(PROCESS_START)

    def report_stage(self, stage: str) -> None:
        """Send its stage to the connected controller; it is not stored."""
        self._services.send(stage_update(self, stage))

    def report_begun(self) -> None:
        """Call the callback of its start, once."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun(self)

    def _enter(self, trigger: InstanceTrigger, reason: str = "") -> None:
        before = self.state
        self.reason = reason
        self._history = self._history.stepped(trigger, self.reason)
        _log.info(
            "instance_state.changed", run=self.name, before=before, state=self.state, reason=self.reason
        )
        self._services.reporter.report(status_update(self))
