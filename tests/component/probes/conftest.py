"""Consoles to follow, and servers that answer anything."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from corral.daemon.probes.log_probe import ConsoleGrowth
from corral.daemon.probes.probe_runner import ReadinessProbes
from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import LeasedPort
from corral.domain.groups.probes import ProbeSpec
from corral.runtimes.keeper import console_layout as layout
from corral.sdk.runtime import Execution

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Console:
    """Written as a shim writes it."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.first = 0

    def write(self, data: bytes) -> None:
        with (self.directory / layout.segment_name(self.first)).open("ab") as segment:
            segment.write(data)

    def rotate(self) -> None:
        self.first += (self.directory / layout.segment_name(self.first)).stat().st_size


@pytest.fixture
def console(scratch: pathlib.Path) -> Console:
    directory = scratch / "console"
    directory.mkdir()
    return Console(directory)


@pytest.fixture
async def growth() -> AsyncIterator[ConsoleGrowth]:
    with ConsoleGrowth() as growth:
        yield growth


@pytest.fixture
def readiness(console: Console, growth: ConsoleGrowth) -> Callable[..., ReadinessProbes]:
    async def refuse(command: tuple[str, ...], timeout: float) -> Execution:
        raise AssertionError("no command was expected")

    def make(*probes: ProbeSpec, port: int = 0, **given: Any) -> ReadinessProbes:
        leased = LeasedPort(name="primary", port=port, protocol=PortProtocol.BOTH)
        given = {"ports": [leased], "console": console.directory, "execute": refuse} | given
        return ReadinessProbes(probes=probes, growth=growth, **given)

    return make


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[int]]]:
    """Servers that do what a test says; their clients are cut off in the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(talk: Talk, port: int = 0, host: str = "127.0.0.1") -> int:
            talks: set[asyncio.Task[None]] = set()

            async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                talks.add(task)
                try:
                    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                        await talk(reader, writer)
                    writer.close()
                    with contextlib.suppress(ConnectionError):
                        await writer.wait_closed()
                finally:
                    writer.transport.abort()

            async def end() -> None:
                server.close()
                for task in talks:
                    task.cancel()
                await asyncio.gather(*talks, return_exceptions=True)
                await server.wait_closed()

            server = await asyncio.start_server(accept, host, port)
            stack.push_async_callback(end)
            found: int = server.sockets[0].getsockname()[1]
            return found

        yield start
