"""Monitor of a run whose workload was executed, until nothing of it is left: readiness, maximum lifetime, stop,
exit."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog

from corral.daemon.runs.run_files import StopOrder
from corral.daemon.runs.run_readiness import ReadyWatch
from corral.daemon.runs.stop_ladder import KILL, StopRequest, descend
from corral.daemon.workload.start_order import StartOrder
from corral.errors import CorralError
from corral.sdk.runtime import RunExit, RunHandle, RuntimeProvider
from corral.system.aio.tasks import Tasks, first_of
from corral.system.clock import Clock

_LEFTOVER_MOMENT: Final = 0.1
_LEFTOVER_SECONDS: Final = 10.0
_KILL_AGAIN_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.daemon.runs")

BeforeStop = Callable[[asyncio.Future[Any], asyncio.Event], Awaitable[None]]
"""Runs before the stop ladder: bounded, and over as soon as the run has exited or is to be killed."""


class MonitoredExit(msgspec.Struct, frozen=True, kw_only=True):
    exit: RunExit
    rung: str = ""
    """The rung of the stop ladder that ended it; empty: it exited by itself."""
    ready: bool = True
    """False: it was stopped because it did not become ready."""
    waited_for: str = ""
    """The condition that was missing then."""


class RunMonitor:
    """Monitors one run. Cancelling it detaches from the run and harms nothing."""

    def __init__(
        self,
        *,
        runtime: RuntimeProvider,
        handle: RunHandle,
        order: StartOrder,
        stop: StopRequest,
        began_at: float,
        started_at: float,
        clock: Clock,
        watch: ReadyWatch,
        ready: bool,
        in_time: bool,
        now_ready: Callable[[], None],
        now_stopping: Callable[[str], None],
        before_stop: BeforeStop | None = None,
    ) -> None:
        self._runtime = runtime
        self._handle = handle
        self._order = order
        self._stop = stop
        self._began_at = began_at
        self._started_at = started_at
        """When its preparation and its program began, by `Clock.boottime`, which is never set."""
        self._watched = watch
        self._waited_for = ""
        self._clock = clock
        self._in_time = in_time
        self._ready = ready
        self._now_ready = now_ready
        self._now_stopping = now_stopping
        self._before_stop = before_stop

    async def until_ended(self) -> MonitoredExit:
        name = self._handle.run_name
        tasks = Tasks()
        ended = tasks.spawn(self._word(self._runtime.wait_exit), name=f"supervise/exit/{name}", awaited=True)
        empty = tasks.spawn(
            self._word(self._runtime.wait_empty), name=f"supervise/empty/{name}", awaited=True
        )
        try:
            self._watched.begin()
            reason = await self._watch(ended)
            rung = KILL if self._stop.killing.is_set() else ""
            if ended.done():
                ended.result()  # a fault of ours is no exit: what lives on must not be taken for leftovers
            else:
                self._now_stopping(reason)
                if self._before_stop is not None:
                    await self._before_stop(ended, self._stop.killing)
                rung = await descend(
                    self._order.ladder,
                    runtime=self._runtime,
                    handle=self._handle,
                    ended=ended,
                    kill=self._stop.killing,
                )
            exit = await self._clear(empty, kill=rung == KILL)
        finally:
            await self._watched.close()
            await tasks.close()
        return MonitoredExit(exit=exit, rung=rung, ready=self._in_time, waited_for=self._waited_for)

    async def _watch(self, ended: asyncio.Future[RunExit]) -> str:
        """Wait until its main process has exited or it is to be stopped; the reason, when the stop is the daemon's
        decision."""
        while self._in_time and not ended.done() and not self._stop.requested.is_set():
            due, reason = self._next_deadline()
            left = due - self._clock.boottime()
            if left > 0:
                await self._something(ended, seconds=None if due == math.inf else left)
            elif not reason:
                self._ready = True
                self._now_ready()
            elif self._ready:
                again = bool(self._order.restart.on)
                await self._stop.make(StopOrder(reason=reason, then_restart=again, too_old=again))
            else:
                self._in_time = False
                self._waited_for = self._watched.last_seen if not self._watched.probed.is_set() else ""
                return f"{reason}: {self._waited_for}" if self._waited_for else reason
        return self._stop.order.reason if self._stop.order else "it did not start in time"

    def _next_deadline(self) -> tuple[float, str]:
        """The next deadline; without a reason: it is RUNNING then."""
        order = self._order
        if self._ready:
            life = order.max_lifetime_seconds
            return (
                (self._started_at + life, f"it reached its maximum lifetime of {life:g} s")
                if life
                else (math.inf, "")
            )
        if self._watched.probed.is_set():
            return -math.inf, ""
        limit = self._began_at + order.startup_timeout_seconds
        return limit, f"it was not ready within {order.startup_timeout_seconds:g} s"

    async def _something(self, ended: asyncio.Future[RunExit], *, seconds: float | None) -> None:
        """Wait until it has exited, is to be stopped, its probes have succeeded, or the time is up."""
        probed = self._watched.probed
        events = [self._stop.requested] if self._ready or probed.is_set() else [self._stop.requested, probed]
        await first_of(ended, *events, timeout=seconds, name=f"supervise/await/{self._handle.run_name}")

    async def _clear(self, empty: asyncio.Future[RunExit], *, kill: bool) -> RunExit:
        """Wait until nothing of it is left. What outlives the main process gets SIGTERM, then SIGKILL."""
        killing = self._stop.killing
        if not kill and not any(await first_of(empty, killing, timeout=_LEFTOVER_MOMENT)):
            _log.info("leftover_processes.found", run=self._handle.run_name, seconds=_LEFTOVER_SECONDS)
            with contextlib.suppress(CorralError):  # the kill below does not depend on it
                await self._runtime.signal(self._handle, signal.SIGTERM)
            await first_of(empty, killing, timeout=_LEFTOVER_SECONDS)
        while not empty.done():
            await kill_run(self._runtime, self._handle)
            await asyncio.wait({empty}, timeout=_KILL_AGAIN_SECONDS)
        return empty.result()

    async def _word(self, wait: Callable[[RunHandle], Any]) -> RunExit:
        """The exit as the runtime reports it; a failed wait is repeated."""
        while True:
            try:
                found: RunExit = await wait(self._handle)
            except (CorralError, OSError) as error:
                _log.error("instance_watch.failed", run=self._handle.run_name, reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return found


async def kill_run(runtime: RuntimeProvider, handle: RunHandle) -> None:
    try:
        await runtime.kill(handle)
    except (CorralError, OSError) as error:
        _log.error("instance_kill.failed", run=handle.run_name, reason=str(error))
