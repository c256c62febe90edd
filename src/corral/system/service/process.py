"""Running one long-lived service as a process: an event loop, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from typing import Final, Protocol

import uvloop

from corral.system.aio.tasks import Tasks, first_of
from corral.system.service.parent_watch import watch

_INTERRUPTED: Final = 130


class Service(Protocol):
    """A controller or a daemon, as a process sees it."""

    @property
    def ready(self) -> asyncio.Event:
        """Set once it does what it is for."""

    def announcement(self) -> str:
        """What follows `ready: ` on standard output."""

    async def start(self) -> None:
        """Leaves nothing behind when it fails or is cancelled."""

    async def run(self) -> None:
        """Returns or raises only when it cannot go on."""

    async def stop(self) -> None:
        """The orderly end; bounded, and never raises."""


def run_service(make: Callable[[], Service], *, parent_fd: int | None = None) -> int:
    """Run a service until SIGTERM, SIGINT or its parent's death; returns the exit code.

    A second signal ends the process at once: an operator who insists must not be kept waiting.
    """
    return uvloop.run(_main(make, parent_fd))


async def _main(make: Callable[[], Service], parent_fd: int | None) -> int:
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
    service = make()
    if not await _start(service, stop):
        return 0
    try:
        await _serve(service, stop)
    finally:
        await service.stop()
    return 0


async def _start(service: Service, stop: asyncio.Event) -> bool:
    """Start, unless we are told to stop meanwhile; a start that is given up cleans up after itself."""
    started, *_ = await first_of(service.start(), stop, name="service/start")
    if started is None:
        return False
    started.result()
    return True


async def _serve(service: Service, stop: asyncio.Event) -> None:
    async with Tasks() as tasks:
        running = tasks.spawn(service.run(), name="service/run", awaited=True)
        await first_of(running, stop, service.ready, name="service/ready")
        if service.ready.is_set():
            # What lives now lives long: later collections need not look at it again.
            gc.collect()
            gc.freeze()
            print(f"ready: {service.announcement()}", flush=True)
            await first_of(running, stop, name="service/stop")
        if running.done():
            running.result()
