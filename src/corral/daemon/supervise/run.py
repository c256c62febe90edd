"""One run of an instance, from its intent until nothing of it is left.

A run is an actor: `live` (or `resume`, `conclude` after an adoption) is its only task, everybody else
changes it by orders. An order to stop is on disk before it is followed; the end is on disk before it
is told. Cancelling the task detaches: the workload goes on and a later daemon finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from corral.daemon.disk import full_disk
from corral.daemon.hooks.provenance import Provenance
from corral.daemon.prepare.run_mask import RunMask
from corral.daemon.prepare.stages import PROCESS_START, VALIDATION, Progress, StageFailed
from corral.daemon.probes.players import PlayerCount
from corral.daemon.supervise.beginning import Beginning, Interrupted
from corral.daemon.supervise.endings import (
    Life,
    is_clean,
    judge,
    never_started,
    start_failed,
    supervision_failed,
    without_secrets,
)
from corral.daemon.supervise.last_lines import LastLines, console_end, read_last_lines
from corral.daemon.supervise.minding import Ending, Minding, kill_run
from corral.daemon.supervise.readiness import ReadyWatch
from corral.daemon.supervise.restarts import with_restart
from corral.daemon.supervise.run_age import process_started
from corral.daemon.supervise.run_files import Intent, Outcome, RunFiles, StopOrder
from corral.daemon.supervise.run_modules import RunModules
from corral.daemon.supervise.services import Services
from corral.daemon.supervise.stage_reports import StageReports
from corral.daemon.supervise.stop_request import StopRequest
from corral.daemon.supervise.wire_forms import (
    end_update,
    figures_update,
    files_kept,
    stage_update,
    status_update,
)
from corral.domain.ids import RESTARTS_PER_START
from corral.domain.instance_history import StateHistory
from corral.domain.instance_states import InstanceState, InstanceTrigger
from corral.errors import Code, CorralError, Rejected
from corral.sdk.runtime import RunExit, RunHandle, RuntimeProvider

_RETRY_SECONDS: Final = 1.0
_CLOCK_MARGIN_MS: Final = 1000
_log = structlog.get_logger("corral.daemon.supervise")
_State, _Trigger = InstanceState, InstanceTrigger


class Run:
    """See the module. `begun` is called once, when the start has succeeded or come to nothing."""

    def __init__(
        self,
        services: Services,
        files: RunFiles,
        intent: Intent,
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
        self._history = history or StateHistory(subject=f"instance '{intent.order.instance_id}'")
        self._reason = intent.reason
        self.pid = 0
        self.started_at_ms = 0
        self.handle: RunHandle | None = None
        """How the runtime knows it; None before its start and after its end."""
        self.outcome: Outcome | None = None
        self._outcome_waits = False
        """For the disk: it is told, and not written yet."""
        self.tail: tuple[str, ...] = ()
        self.ready = False
        """Can it be used, as its probes or the built-in rule say?"""
        self.players: PlayerCount | None = None
        """As its probe counted them last; None: nobody knows."""
        self.files_kept: tuple[str, ...] = ()
        """Of a static directory, at this start."""
        self._ready_watch: ReadyWatch | None = None
        self._said_ready = False
        self._services = services
        self._begun = begun
        self._began_at: float | None = None
        self._started_at: float | None = None
        self._ended_at = 0.0
        self._in_time = True
        self.modules = RunModules(self, hooks=services.hooks, directories=services.directories)

    @property
    def state(self) -> InstanceState:
        return self._history.state

    @property
    def reason(self) -> str:
        """Why it is in its state, as everybody may read it: whatever words got into it, no secret of the run is
        among them."""
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
        """And its end is written."""
        return self.outcome is not None and not self._outcome_waits

    @property
    def was_ready(self) -> bool:
        """Whether it has ended, and had been ready before."""
        if self.outcome is None or self.outcome.exit is None:
            return False
        if self.order.probes:
            return self.files.was_ready()
        return self.outcome.uptime_ms >= self.order.min_alive_seconds * 1000

    @property
    def runtime(self) -> RuntimeProvider:
        """Who minds it, by the mark in its directory; before there is one, as it was ordered."""
        if self.handle is not None:
            return self._services.runtimes.of(str(self.files.directory))
        return self._services.runtimes.get(self.order.runtime)

    @property
    def uptime_ms(self) -> int:
        if self.outcome is not None:
            return self.outcome.uptime_ms
        if self._started_at is None:
            return 0
        return max(0, round((self._services.clock.boottime() - self._started_at) * 1000))

    @property
    def ended_seconds(self) -> float:
        """How long ago it ended, by a clock that nobody sets."""
        return self._services.clock.boottime() - self._ended_at

    @property
    def console_end(self) -> int:
        if self.outcome is not None:
            return self.outcome.console_end
        return console_end(self.files.console) if self.handle else 0

    async def ask_stop(self, order: StopOrder) -> None:
        """Let it end. A kill comes first and waits for nothing; a stop begins once it is on disk. Either
        way an end that comes meanwhile is one that was asked for."""
        if self.ended:
            return
        self.stop.take(order)
        if order.force and self.handle is not None:
            self.modules.say_stopping()
            await kill_run(self.runtime, self.handle)
        await self.stop.make(order)
        if self.outcome is None:
            self._now_stopping(order.reason)

    async def live(self) -> Outcome:
        """Write the intent down, start it, and mind it to its end. Cancelled, it detaches."""
        stages = StageReports(self._tell_stage)
        progress = Progress(stages.entered, run=self.name)
        beginning = Beginning(
            self._services,
            self.files,
            self.intent,
            self.stop,
            stages,
            progress,
            self.mask,
            self.modules,
            waits=self._start_waits,
        )
        try:
            await beginning.write_intent()
            await beginning.wait_for_turn()
            await beginning.wait_for_ports()
            self._enter(_Trigger.PREPARE)
            self._began_at = self._services.clock.boottime()
            handle, self._in_time = await beginning.spawn()
        except (StageFailed, Interrupted) as stopped:
            self.files_kept = files_kept(progress.kept_files)
            return await self._end(self._unstarted(stopped))
        self.files_kept = files_kept(progress.kept_files)
        self._take(handle)
        if self.state is _State.PREPARING:
            self._enter(_Trigger.SPAWN)
        self.modules.started()
        self.tell_begun()
        return await self._mind(handle)

    def _unstarted(self, why: StageFailed | Interrupted) -> Outcome:
        now_ms = self._services.now_ms()
        if isinstance(why, StageFailed):
            return start_failed(why.stage, why.error, now_ms=now_ms)
        assert self.stop.order is not None
        return self._followed(never_started(self.stop.order, now_ms=now_ms))

    async def begin_again(self) -> Outcome:
        """Like `live`, for an intent that a daemon before us left behind without executing it. One that
        could not be read says nothing that could be started."""
        self.stop.restore()
        self._history = self._history.found(_State.SCHEDULED, "nothing of it was executed")
        if self.order.command or self.order.plan is not None:
            return await self.live()
        damaged = Rejected(Code.FORMAT_INVALID, "what was to be started cannot be read any more")
        return await self._end(start_failed(VALIDATION, damaged, now_ms=self._services.now_ms()))

    def begun_anew(self) -> Run:
        """The same run after a fault of ours in its supervision. Whoever waits for its start goes on waiting."""
        again = Run(
            self._services,
            self.files,
            self.intent,
            begun=self._begun,
            stop=self.stop,
            mask=self.mask,
            history=self._history,
        )
        again.pid, again.started_at_ms = self.pid, self.started_at_ms
        again._began_at = self._began_at  # the time of its start goes on
        return again

    def start_deadline(self, now: float) -> float:
        """By the clock that nobody sets: until when it has to be executed; never, when it was."""
        if self._started_at is not None:
            return math.inf
        return (self._began_at if self._began_at is not None else now) + self.order.startup_timeout_seconds

    async def fail(self, error: CorralError, exit: RunExit | None, handle: RunHandle | None) -> Outcome:
        """Its end when it could not be supervised, and nothing of it is left. It cannot fail itself: what the
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
            _log.exception("instance.outcome_not_stored", run=self.name)
            outcome = without_secrets(outcome, self.mask.hide)
            self.remember(outcome)
            self.tell_begun()
            return outcome

    def take_over(self, handle: RunHandle, reason: str = "") -> None:
        """It lives, started by a daemon before us; `resume` follows. `reason`: what is not as usual with it."""
        self.stop.restore()
        self._take(handle)
        running = not self.order.probes or self.files.was_ready()
        self.ready = running and (bool(self.order.probes) or self._lives_on())
        state = _State.RUNNING if running else _State.STARTING
        if self.stop.order is not None:
            state, reason = _State.STOPPING, self.stop.order.reason
        self.reason = reason  # that of its intent told why it would start
        self._history = self._history.found(state, self.reason)
        self.modules.restore()
        self.modules.started(adopted=True)

    async def resume(self) -> Outcome:
        """Mind a run that was taken over."""
        assert self.handle is not None
        self.tell_begun()  # a fault of ours came between its start and the answer
        await self.mask.learn(self.handle)
        return await self._mind(self.handle)

    async def conclude(self, exit: RunExit, handle: RunHandle | None) -> Outcome:
        """Its end, when it ended while no daemon was looking."""
        self.stop.restore()
        self.modules.restore()
        if handle is not None:
            self.pid, self.started_at_ms = handle.pid, handle.started_at_ms
        self._follow_console()
        state = _State.STOPPING if self.stop.order else _State.RUNNING
        self._history = self._history.found(state, "it ended while no daemon was looking")
        return await self._judge(Ending(exit=exit))

    def remember(self, outcome: Outcome) -> None:
        """It has ended, and its end is known and on disk."""
        self._outcome_waits = False
        self._show(outcome)

    def _show(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.reason = outcome.reason
        self._history = self._history.ended(outcome.state, self.reason)
        self.pid, self.started_at_ms = outcome.pid, outcome.started_at_ms
        self.handle = None
        ago = max(0, self._services.now_ms() - outcome.ended_at_ms) / 1000
        self._ended_at = self._services.clock.boottime() - ago

    @property
    def _is_ordered(self) -> bool:
        """Begun by an order, and not by the end of the run before."""
        return self.order.incarnation % RESTARTS_PER_START == 0

    def _take(self, handle: RunHandle) -> None:
        self.handle = handle
        self.pid, self.started_at_ms = handle.pid, handle.started_at_ms
        self._started_at = process_started(handle.pid)
        if self._started_at is None:  # it has ended
            ago = (
                max(0, self._services.now_ms() - handle.started_at_ms) / 1000 if handle.started_at_ms else 0.0
            )
            self._started_at = self._services.clock.boottime() - ago
        with contextlib.suppress(CorralError):  # it has them, whoever else may believe so
            self._services.ports.take(self.name, self.order.ports)
        self._services.directories.hold(self.order.instance_id, self.order.incarnation)
        self._follow_console()

    def _follow_console(self) -> None:
        self._services.consoles.attach(
            self.order.instance_id, self.order.incarnation, str(self.files.console), nonce=self.nonce
        )

    def _lives_on(self) -> bool:
        """Of a run without probes that a daemon before us started: taken for ready until a look says otherwise."""
        return self._alive_in() <= 0 and not self.files.is_waiting()

    def _alive_in(self) -> float:
        """How many seconds are left until it has lived for `min_alive_ms`."""
        assert self._started_at is not None
        return self._started_at + self.order.min_alive_seconds - self._services.clock.boottime()

    async def _mind(self, handle: RunHandle) -> Outcome:
        assert self._started_at is not None
        watch = self._ready_watch = ReadyWatch(
            order=self.order,
            files=self.files,
            handle=handle,
            runtime=self.runtime,
            growth=self._services.growth,
            tables=self._services.sockets,
            host=self._services.preparer.probed_address(self.order),
            hide=self.mask.hide,
            listener=self,
            alive_in=self._alive_in,
            ready=self.ready,
        )
        if self._said_ready:
            watch.workload_said_ready()
        minding = Minding(
            runtime=self.runtime,
            handle=handle,
            order=self.order,
            stop=self.stop,
            began_at=self._began_at if self._began_at is not None else self._started_at,
            started_at=self._started_at,
            clock=self._services.clock,
            watch=watch,
            ready=self.state is _State.RUNNING,
            in_time=self._in_time,
            now_ready=self._now_ready,
            now_stopping=self._now_stopping,
            before_stop=self.modules.before_stop,
        )
        ending = await minding.until_ended()
        self._ready_watch = None
        return await self._judge(ending)

    def workload_said_ready(self) -> None:
        """Its own call, handed on by the controller; it may come before anybody waits for it."""
        self._said_ready = True
        if self._ready_watch is not None:
            self._ready_watch.workload_said_ready()

    def players_counted(self, players: PlayerCount | None) -> None:
        self.players = players
        self._services.send(figures_update(self))

    def waits_for(self, reason: str) -> None:
        """What keeps it from being ready."""
        if self.state in (_State.STARTING, _State.RUNNING):
            self.reason = reason
            self._tell_stage(PROCESS_START)

    def ready_changed(self, ready: bool, reason: str) -> None:
        if self.state is not _State.RUNNING:
            return
        self.ready, self.reason = ready, reason
        _log.info("instance.ready_changed", run=self.name, ready=ready, reason=self.reason)
        self._services.reporter.report(status_update(self))

    def _now_ready(self) -> None:
        self.ready = self._ready_watch is not None and self._ready_watch.became_ready()
        self._enter(_Trigger.READY)

    def _now_stopping(self, reason: str) -> None:
        if self.state is not _State.STOPPING:
            self._enter(_Trigger.STOP, reason)

    async def _judge(self, ending: Ending) -> Outcome:
        tail = await asyncio.to_thread(self.read_last_lines)
        self.tail = tail.lines
        uptime_ms = self._lived_ms(ending.exit, tail.last_ms)
        outcome = judge(
            Life(
                exit=ending.exit,
                pid=self.pid,
                started_at_ms=self.started_at_ms,
                uptime_ms=uptime_ms,
                clean=ending.ready and is_clean(ending.exit, self.order, uptime_ms=uptime_ms),
                console_end=tail.end,
                now_ms=self._services.now_ms(),
                rung=ending.rung,
                stop=self.stop.order,
                ready=ending.ready,
                waited_for=ending.waited_for,
                tail=tail.lines,
                tail_offset=tail.offset,
            )
        )
        return await self._end(self._followed(await asyncio.to_thread(self._with_full_disk, outcome)))

    def _with_full_disk(self, outcome: Outcome) -> Outcome:
        """A crash on a full disk says so: it may be the cause, and is the first thing to mend. Blocks."""
        place = self._services.directories.path(self.order.instance_id, static=self.order.static)
        if outcome.state is not _State.CRASHED or not (full := full_disk(place.parent)):
            return outcome
        return msgspec.structs.replace(
            outcome, summary=f"{outcome.summary}; {full}", reason=f"{outcome.reason}; {full}"
        )

    def read_last_lines(self) -> LastLines:
        """Of its console, without its secrets. Blocks."""
        return read_last_lines(self.files.console, self.mask.known())

    def _followed(self, outcome: Outcome) -> Outcome:
        """With the run that follows here, if one does; none beside another that lives."""
        if (lost := self._services.lost.of(self.order.instance_id)) is not None:
            return msgspec.structs.replace(outcome, reason=f"{outcome.reason}; {lost.reason}")
        return with_restart(
            outcome,
            order=self.order,
            stop=self.stop.order,
            crashes=self.intent.crashes if self.intent.boot_id == self._services.boot_id else (),
            now=self._services.clock.boottime(),
            age=self._age(outcome),
            fraction=self._services.entropy.fraction(),
            last=self._services.known_runs.last(self.order),
        )

    def _age(self, outcome: Outcome) -> float:
        """How many seconds ago its process was started."""
        if self._started_at is not None:
            return self._services.clock.boottime() - self._started_at
        return max(0.0, (self._services.now_ms() - (outcome.started_at_ms or outcome.ended_at_ms)) / 1000)

    def _lived_ms(self, exit: RunExit, last_output_ms: int) -> int:
        """By the times of start and end; where a clock was set in between, by one that nobody sets. Of an end that
        nobody saw only what is certain: until its last output."""
        if not exit.seen:
            return max(0, last_output_ms - self.started_at_ms) if self.started_at_ms else 0
        by_wall = exit.ended_at_ms - self.started_at_ms
        if not exit.ended_at_ms or not self.started_at_ms:
            return self.uptime_ms
        if self._started_at is None:  # it ended before our time
            return max(0, by_wall)
        return by_wall if 0 <= by_wall <= self.uptime_ms + _CLOCK_MARGIN_MS else self.uptime_ms

    def _store_outcome(self, outcome: Outcome) -> None:
        if not self.files.has_intent():
            self.files.make(self.intent)
        self.files.write_outcome(outcome)

    async def _end(self, outcome: Outcome) -> Outcome:
        """Durable first. A disk that refuses is asked again: an end that is forgotten happens twice. Whoever is
        connected hears of it meanwhile. Only of an order that never came to disk nothing can happen twice."""
        if self.mask.needed:
            outcome = without_secrets(outcome, await asyncio.to_thread(self.mask.known))
        refused = False
        while True:
            try:
                await asyncio.to_thread(self._store_outcome, outcome)
            except CorralError as error:
                if outcome.exit is None and self._is_ordered and not self.files.has_intent():
                    break
                if not refused:
                    refused = True
                    await self._make_room(error)
                outcome = self._tell_unwritten(outcome, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if outcome.restarted_as is None or not self.stop.stays_stopped:
                break
            # It was asked to stop while we wrote: then it stays stopped.
            outcome = msgspec.structs.replace(outcome, restarted_as=None, restart_delay_seconds=0.0)
        self._services.consoles.ended(self.order.instance_id, self.order.incarnation)
        self.remember(outcome)
        self._services.ports.release(self.name)
        if outcome.restarted_as is not None:  # else what is kept of its files is searched for them
            self.mask.forget()
        _log.info("instance.ended", run=self.name, outcome=outcome.outcome, how=outcome.summary)
        self.modules.stopped(outcome)
        self.tell_begun()
        return outcome

    async def _make_room(self, error: CorralError) -> None:
        """Its end cannot be written: its own files go first, for they may be what fills the disk. Not those of a
        static directory, nor of one in which another run of this id lives."""
        _log.error("instance.outcome_not_stored", run=self.name, reason=str(error))
        directories, id = self._services.directories, self.order.instance_id
        if self.order.static or self._services.lost.of(id) is not None:
            return
        if directories.discard(id, self.order.incarnation):
            await directories.empty_bin()

    def _tell_unwritten(self, outcome: Outcome, error: CorralError) -> Outcome:
        """The end is told as it is, once somebody hears it. What was told as an end is not begun again here: that is
        for the controller to decide."""
        if self._outcome_waits:
            return outcome
        last = msgspec.structs.replace(outcome, restarted_as=None, restart_delay_seconds=0.0)
        reason = f"{last.reason or last.summary}; its end is not written yet: {error.message}"
        if not self._services.send(end_update(self, last, reason=self.mask.hide(reason))):
            return outcome
        self._outcome_waits = True
        self._show(last)
        self.reason = reason
        return last

    def _start_waits(self, why: str) -> None:
        """Its start is owed, and waits for room on the disk or for its ports."""
        self.reason = why
        self._tell_stage(VALIDATION)

    def wait_for_modules(self, what: str) -> None:
        """Its start waits for them, and goes on when this is empty; a stop has its own reason."""
        if self.state is _State.PREPARING:
            self.reason = what
            self._tell_stage(PROCESS_START)

    def _tell_stage(self, stage: str) -> None:
        """To who looks at it now: not worth keeping."""
        self._services.send(stage_update(self, stage))

    def tell_begun(self) -> None:
        """To whoever waits for its start, once."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun(self)

    def _enter(self, trigger: InstanceTrigger, reason: str = "") -> None:
        before = self.state
        self.reason = reason
        self._history = self._history.stepped(trigger, self.reason)
        _log.info("instance.transition", run=self.name, before=before, state=self.state, reason=self.reason)
        self._services.reporter.report(status_update(self))
