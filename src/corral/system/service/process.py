"""A long-lived service as a process: its event loop, its signals, its parent, and the stages of its orderly
shutdown.

The parent holds the write end of a pipe and never writes to it. Whatever kills the parent, the kernel closes
that end, and the child's read end reports the end of the file. (A death signal would be sent when the
parent's *thread* ends, and is lost across a set-uid exec.)
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import pathlib
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
import structlog
import uvloop

from corral.errors import Code, Rejected
from corral.system.aio.tasks import Tasks, first_of
from corral.system.clock import Clock
from corral.system.service.task_dump import DUMP_SIGNAL, TaskDump

_INTERRUPTED: Final = 130
_log = structlog.get_logger("corral.system")


class Service(Protocol):
    """A controller or a daemon, as a process sees it."""

    @property
    def ready(self) -> asyncio.Event:
        """Set once it serves."""

    def announcement(self) -> str:
        """The text after `ready: ` on standard output."""

    async def run(self) -> None:
        """Returns or raises only when it cannot continue."""


Open = Callable[[], contextlib.AbstractAsyncContextManager[Service]]
"""Enters with an open service; leaves nothing behind when that fails or is cancelled. Exits with its orderly
shutdown, which is bounded and never raises."""


def run_service(open_service: Open, *, dumps: pathlib.Path, parent_fd: int | None = None) -> int:
    """Run a service until SIGTERM, SIGINT or its parent's death; returns the exit code. SIGUSR1 writes its
    threads and tasks into the folder `dumps`.

    A second signal ends the process at once.
    """
    try:
        return uvloop.run(_main(open_service, dumps, parent_fd))
    finally:
        signal.signal(DUMP_SIGNAL, lambda _number, _frame: None)  # the loop took its handler with it


async def _main(open_service: Open, dumps: pathlib.Path, parent_fd: int | None) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def asked() -> None:
        if stop.is_set():
            os._exit(_INTERRUPTED)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    if parent_fd is not None:
        watch(parent_fd, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(TaskDump(dumps))
        entered, *_ = await first_of(stack.enter_async_context(open_service()), stop, name="service/start")
        if entered is not None:
            await _serve(entered.result(), stop)
    return 0


async def _serve(service: Service, stop: asyncio.Event) -> None:
    async with Tasks() as tasks:
        running = tasks.spawn(service.run(), name="service/run", awaited=True)
        await first_of(running, stop, service.ready, name="service/ready")
        if service.ready.is_set():
            # Objects that live now live long: later collections skip them.
            gc.collect()
            gc.freeze()
            print(f"ready: {service.announcement()}", flush=True)
            await first_of(running, stop, name="service/stop")
        if running.done():
            running.result()


def watch(fd: int, callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback` once, on the running loop, when the other end of the pipe is closed.

    Takes the descriptor over and keeps it from programs started later. Returns the function
    that stops watching and closes it; calling that again does nothing.
    """
    try:
        os.set_inheritable(fd, False)
        os.set_blocking(fd, False)
    except OSError as error:
        raise Rejected(
            Code.INVALID_CONFIG,
            f"--parent-fd {fd} is not an open pipe",
            hint="only 'corral up' uses this flag",
        ) from error
    loop = asyncio.get_running_loop()
    closed = False

    def stop() -> None:
        nonlocal closed
        if not closed:
            closed = True
            loop.remove_reader(fd)
            os.close(fd)

    def readable() -> None:
        try:
            ended = os.read(fd, 512) == b""
        except BlockingIOError:
            return
        except OSError:
            ended = True
        if ended:
            stop()
            callback()

    loop.add_reader(fd, readable)
    return stop


Closing = Callable[[], Awaitable[object]]


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a shutdown. `share` is its part of what is left of the whole budget."""

    name: str
    share: float
    action: Callable[[], Awaitable[object]]


async def run_stages(stages: Sequence[Stage], *, budget: float, clock: Clock) -> list[str]:
    """Run every stage, whatever fails; returns the names of those that failed or ran out of time."""
    ends = clock.monotonic() + budget
    stragglers: list[str] = []
    for stage in stages:
        left = max(0.1, ends - clock.monotonic()) * stage.share
        try:
            async with asyncio.timeout(left):
                await stage.action()
        except TimeoutError:
            stragglers.append(stage.name)
            _log.error("shutdown_stage.expired", stage=stage.name, seconds=round(left, 1))
        except Exception:
            stragglers.append(stage.name)
            _log.exception("shutdown.failed", stage=stage.name)
    return stragglers


class Shutdown:
    """The resources that each stage of a shutdown closes. It fills up while a service is opened, so a start
    that fails or is cancelled midway closes exactly what was opened until then."""

    def __init__(self, shares: Mapping[str, float], *, budget: float, clock: Clock) -> None:
        """`shares`: the stages in their order, each with its share of what is left of the budget."""
        self._shares = shares
        self.budget: Final = budget
        self._clock = clock
        self._closings: dict[str, list[Closing]] = {name: [] for name in shares}

    def at(self, stage: str, closing: Closing) -> None:
        """Add to a stage; the last added of a stage is closed first."""
        self._closings[stage].append(closing)

    async def run(self) -> None:
        """Every stage in order, within the budget. A second call finds nothing left to close."""
        stages = [
            Stage(name=name, share=share, action=functools.partial(self._close, name))
            for name, share in self._shares.items()
        ]
        await run_stages(stages, budget=self.budget, clock=self._clock)

    async def _close(self, stage: str) -> None:
        closings = self._closings[stage]
        while closings:
            await closings.pop()()
