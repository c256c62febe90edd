"""Start of a run: restart delay, ports, preparation, spawn; unless it is stopped before.

A stop meanwhile ends the preparation at once, and with it whatever its threads are doing. The stage of a preparation
that lasts is reported to the controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

import structlog

from corral.daemon.node.port_probe import check_free
from corral.daemon.prepare.prepared_start import finish
from corral.daemon.runs.run_files import RunFiles, RunIntent
from corral.daemon.runs.run_hooks import RunHooks
from corral.daemon.runs.services import Services
from corral.daemon.runs.stop_ladder import StopRequest
from corral.daemon.workload.run_secrets import RunMask
from corral.daemon.workload.start_stages import PROCESS_START, VALIDATION, StageFailed, StartProgress
from corral.domain.ids import RESTARTS_PER_START
from corral.errors import Bug, Code, CorralError, Retryable
from corral.sdk.runtime import AdoptionKind, RunHandle, RunSpec, RuntimeProvider
from corral.system.aio.tasks import Tasks, first_of, set_within

_LASTS_SECONDS: Final = 0.25


class StageReports:
    """Stage reports of one preparation. `report` is called with the name of a stage that lasts."""

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        self._timer: asyncio.TimerHandle | None = None
        self.current = ""

    def entered(self, stage: str) -> None:
        if stage == self.current:
            return
        self.close()
        self.current = stage
        self._timer = asyncio.get_running_loop().call_later(_LASTS_SECONDS, self._report, stage)

    def close(self) -> None:
        """The start is over, or it failed: nothing more is reported."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_RETRY_SECONDS: Final = 1.0
_LATE_SECONDS: Final = 5.0
_LINGER_SECONDS: Final = 90.0
_TAKEN_SECONDS: Final = 10.0
_PORT_PAUSE: Final = 5.0
_log = structlog.get_logger("corral.daemon.runs")
T = TypeVar("T")


class Interrupted(Exception):
    """A stop came before the workload was executed."""


class StartedRun(NamedTuple):
    handle: RunHandle
    in_time: bool
    """False: it exists, but its time was up before that was known."""


class StartingRun(Protocol):
    """The run that is started, and its reports."""

    intent: RunIntent
    files: RunFiles
    stop: StopRequest
    mask: RunMask
    modules: RunHooks

    def wait_to_start(self, why: str) -> None:
        """Its start is pending, and cannot be made yet."""

    def report_stage(self, stage: str) -> None:
        """Its preparation is there, and that lasts."""


class RunStart:
    """Start of one run."""

    def __init__(self, services: Services, run: StartingRun) -> None:
        self._services = services
        self._run = run
        self._files = run.files
        self._intent = run.intent
        self._order = run.intent.order
        self._stop = run.stop
        self._stages = StageReports(run.report_stage)
        self._progress = StartProgress(
            self._stages.entered, run=run.intent.name, stored=self.until_intent_stored
        )
        self._tasks = Tasks()
        self._intent_write: asyncio.Task[None] | None = None
        self._until = 0.0
        """When its time is up."""

    @property
    def kept_files(self) -> Mapping[str, str]:
        """Files of a static directory that stay though templates give others, and why."""
        return self._progress.kept_files

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The start is over, or it failed: wait for a write under way; not when it is cancelled, as a detach is."""
        try:
            if kind is None or not issubclass(kind, asyncio.CancelledError):
                await self._tasks.wait()
        finally:
            await self._tasks.close()

    async def begin(self, preparing: Callable[[], object]) -> None:
        """Write the intent; `preparing` is called once it is on disk, unless a stop came before. A first start is
        prepared meanwhile, but executes nothing, and makes nothing that stays, before that: see
        `StartProgress.until_stored`. A restart waits here for its turn and its ports."""
        if self._order.incarnation % RESTARTS_PER_START == 0:
            name = f"supervise/intent/{self._order.instance_id}"
            self._intent_write = self._tasks.spawn(self._write_then(preparing), name=name, awaited=True)
            return
        await self._write_intent()
        await self._wait_for_turn()
        await self.wait_for_ports()
        preparing()

    async def _write_then(self, preparing: Callable[[], object]) -> None:
        await self._write_intent()
        if not self._stop.requested.is_set():
            preparing()

    async def until_intent_stored(self) -> None:
        """Wait until the intent is on disk. StageFailed when the disk refuses."""
        if self._intent_write is not None:
            await asyncio.shield(self._intent_write)

    async def _write_intent(self) -> None:
        """An order that cannot be written is refused. A restart is pending, whatever the disk does: it waits until it
        can be written, or until it is stopped."""
        while not self._files.holds(self._intent):
            async with self._stop.writing:
                try:
                    await asyncio.to_thread(self._files.make, self._intent)
                except CorralError as error:
                    if self._order.incarnation % RESTARTS_PER_START == 0:
                        raise StageFailed(VALIDATION, error) from error
                    _log.error("intent_write.failed", run=self._intent.name, reason=str(error))
                    self._run.wait_to_start(
                        f"it starts again when there is room on the disk: {error.message}"
                    )
                else:
                    return
            await self._wait_for_stop(_RETRY_SECONDS)

    async def _wait_for_turn(self) -> None:
        """A restart waits until it is due; Interrupted when it is stopped before."""
        due = self._intent.due if self._intent.boot_id == self._services.boot_id else 0.0
        await self._wait_for_stop(max(0.0, due - self._services.clock.boottime()))

    async def wait_for_ports(self) -> None:
        """A restart has the ports of the run before it, whose connections may linger there: it waits for them. A port
        that another process has taken is waited for a moment only, and then refused as in any start."""
        clock = self._services.clock
        began = clock.monotonic()
        while True:
            try:
                await asyncio.to_thread(check_free, self._order.ports)
                break
            except CorralError as error:
                left = error.retry_after or 0.0
                if clock.monotonic() - began > (_LINGER_SECONDS if left else _TAKEN_SECONDS):
                    break
                self._run.wait_to_start(f"it starts again when its port is free: {error.message}")
            await self._wait_for_stop(min(max(left, _RETRY_SECONDS), _PORT_PAUSE))
        await self._wait_for_stop(0.0)  # one that came while we looked

    async def _wait_for_stop(self, seconds: float) -> None:
        if seconds > 0:
            await set_within(self._stop.requested, seconds)
        if self._stop.requested.is_set():
            raise Interrupted

    async def spawn(self) -> StartedRun:
        """Prepare and start it within its time. StageFailed, Interrupted."""
        if (lost := self._services.lost.of(self._order.instance_id)) is not None:
            raise StageFailed(VALIDATION, lost.refusal())
        limit = self._order.startup_timeout_seconds
        runtime = self._runtime()
        self._until = self._services.clock.monotonic() + limit
        try:
            async with asyncio.timeout(limit):
                spec = await self._unless_stopped(self._prepared())
                self._stages.entered(PROCESS_START)
                return StartedRun(await runtime.start(spec), True)
        except TimeoutError:
            return await self._resolve_timeout(runtime, limit)
        except CorralError as error:
            raise StageFailed(PROCESS_START, error) from error
        finally:
            self._stages.close()

    async def _prepared(self) -> RunSpec:
        """Whatever goes wrong here, nothing was executed: it is a failed start, reported and counted as one, and not
        retried for ever unseen."""
        try:
            start = await self._services.preparer.prepare(
                self._order, self._files.directory, self._progress, self._run.mask, anew=self._intent.anew
            )
            await self.until_intent_stored()
            with self._progress.stage(PROCESS_START):
                left = self._until - self._services.clock.monotonic()
                values = await self._run.modules.ask(start.proposal, seconds=left)
            return finish(start, values, self._progress)
        except (StageFailed, CorralError):
            raise
        except Exception as error:
            stage = self._stages.current or VALIDATION
            _log.exception("preparation.failed", run=self._intent.name, stage=stage)
            # Only its kind: the text may hold a secret.
            fault = Bug(f"{type(error).__name__} in {stage}; the node's log says where")
            raise StageFailed(stage, fault) from error

    def _runtime(self) -> RuntimeProvider:
        try:
            return self._services.runtimes.get(self._order.runtime)
        except CorralError as error:
            raise StageFailed(VALIDATION, error) from error

    async def _resolve_timeout(self, runtime: RuntimeProvider, limit: float) -> StartedRun:
        """The time was up in the middle of something: what exists is monitored until its exit, else the start
        failed."""
        found = await runtime.adopt(str(self._files.directory))
        if found.kind is AdoptionKind.ALIVE and found.handle is not None:
            return StartedRun(found.handle, False)
        stage = self._stages.current or PROCESS_START
        late = Retryable(
            Code.STARTUP_TIMEOUT,
            f"it was not started within {limit:g} s; the time was up in {stage}",
            hint="raise startup_timeout_seconds, or pre-warm the node",
            retry_after=_LATE_SECONDS,
        )
        raise StageFailed(stage, late)

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        name = f"supervise/start/{self._order.instance_id}"
        done, *_ = await first_of(work, self._stop.requested, name=name)
        if done is None or self._stop.requested.is_set():
            raise Interrupted
        return done.result()
