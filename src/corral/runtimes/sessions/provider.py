"""The runtimes `tmux` and `screen`: runs of the process runtime, each with a window in a session."""

from __future__ import annotations

import asyncio
from typing import Final

from corral.runtimes.keeper import run_files
from corral.runtimes.process.provider import ProcessRuntime
from corral.runtimes.sessions.multiplexer import Multiplexer
from corral.runtimes.sessions.windows import Windows
from corral.sdk.runtime import (
    Adoption,
    AdoptionKind,
    Execution,
    RunExit,
    RunHandle,
    RunSpec,
    RunStats,
    RuntimeCapabilities,
    SideRun,
)

_COMMAND_SECONDS: Final = 20.0


class SessionRuntime:
    """A `corral.sdk.runtime.RuntimeProvider`. A run is started, supervised and ended as by the process
    runtime; its session is opened after the start, and opened again whenever it ends before the run does.
    `close` detaches: sessions stay."""

    def __init__(self, process: ProcessRuntime, multiplexer: Multiplexer) -> None:
        """`process` has the multiplexer's name, and is owned by this object."""
        self.name = multiplexer.name
        self._process = process
        self._multiplexer = multiplexer
        self._windows = Windows(multiplexer, directory=process.directory, execute=self._execute)

    async def open(self) -> None:
        """Called once, before anything else."""
        await self._process.start_keeper()
        await asyncio.to_thread(self._multiplexer.prepare, str(self._process.directory))

    async def close(self) -> None:
        """Detach from every run. Idempotent."""
        await self._windows.close()
        await self._process.close()

    def capabilities(self) -> RuntimeCapabilities:
        return self._process.capabilities()

    async def start(self, spec: RunSpec) -> RunHandle:
        handle = await self._process.start(spec)
        self._windows.keep(spec.run_directory, spec.run_name, terminal=spec.tty)
        return handle

    async def adopt(self, run_directory: str) -> Adoption:
        adoption = await self._process.adopt(run_directory)
        if adoption.handle is None:
            return adoption
        if adoption.kind is AdoptionKind.ALIVE:
            record = run_files.read_record(run_directory)
            terminal = record is not None and record.tty
            self._windows.keep(run_directory, adoption.handle.run_name, terminal=terminal)
        else:
            await self._windows.leave(run_directory, adoption.handle.run_name)
        return adoption

    async def send_command(self, handle: RunHandle, line: str) -> None:
        await self._process.send_command(handle, line)

    async def signal(self, handle: RunHandle, number: int) -> None:
        await self._process.signal(handle, number)

    async def kill(self, handle: RunHandle) -> None:
        await self._process.kill(handle)

    async def wait_exit(self, handle: RunHandle) -> RunExit:
        return await self._process.wait_exit(handle)

    async def wait_empty(self, handle: RunHandle) -> RunExit:
        ended = await self._process.wait_empty(handle)
        await self._windows.leave(handle.run_directory, handle.run_name)
        return ended

    async def stats(self, handle: RunHandle) -> RunStats:
        return await self._process.stats(handle)

    async def processes(self, handle: RunHandle) -> tuple[int, ...] | None:
        return await self._process.processes(handle)

    async def execute(self, handle: RunHandle, command: tuple[str, ...], *, timeout: float) -> Execution:
        return await self._process.execute(handle, command, timeout=timeout)

    async def spawn_beside(
        self, handle: RunHandle, name: str, command: tuple[str, ...], environment: dict[str, str]
    ) -> SideRun:
        return await self._process.spawn_beside(handle, name, command, environment)

    async def list_beside(self, handle: RunHandle) -> tuple[SideRun, ...]:
        return await self._process.list_beside(handle)

    async def stop_beside(self, handle: RunHandle, name: str, *, grace: float) -> SideRun | None:
        return await self._process.stop_beside(handle, name, grace=grace)

    async def set_frozen(self, handle: RunHandle, frozen: bool) -> None:
        await self._process.set_frozen(handle, frozen)

    async def _execute(self, command: tuple[str, ...], environment: dict[str, str]) -> Execution:
        return await self._process.execute_for_node(command, environment, timeout=_COMMAND_SECONDS)
