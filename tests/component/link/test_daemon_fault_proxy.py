"""The proxy that the link's tests trust to misbehave as it says."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from corral.testing.fault_proxy import FaultProxy
from corral.testing.waiting import eventually


class Line:
    """A client and the server it reaches through a proxy."""

    def __init__(self) -> None:
        self.accepted: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append((reader, writer))


@pytest.fixture
async def line():
    line = Line()
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with FaultProxy(f"127.0.0.1:{port}") as proxy:
        host, _, proxy_port = proxy.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(proxy_port))
        await eventually(lambda: line.accepted)
        yield proxy, (reader, writer), line.accepted[0]
        for open_writer in (writer, line.accepted[0][1]):
            open_writer.close()
            with contextlib.suppress(OSError):
                await open_writer.wait_closed()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_stalled_line_holds_back_the_end_of_a_connection_until_it_is_healed(line, reset):
    proxy, (reader, _), (_, server) = line
    proxy.stall()
    if reset:
        server.transport.abort()
    else:
        server.close()
    ending = asyncio.create_task(reader.read())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(ending), 0.3)
    proxy.heal()
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(ending, 20) == b""


async def test_a_stalled_line_can_be_cut(line):
    proxy, (reader, _), (_, server) = line
    proxy.stall()
    server.close()
    await asyncio.wait_for(proxy.cut(), 20)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 20) == b""


async def test_with_answers_held_back_requests_still_pass(line):
    proxy, (reader, writer), (server_reader, server) = line
    proxy.stall(answers_only=True)
    server.write(b"answer")
    writer.write(b"request")
    assert await asyncio.wait_for(server_reader.readexactly(7), 20) == b"request"
    proxy.heal()
    assert await asyncio.wait_for(reader.readexactly(6), 20) == b"answer"


async def test_healing_lets_go_of_what_waits_for_a_slow_line_and_owes_it_nothing(line):
    proxy, (reader, _), (_, server) = line
    proxy.throttle(1)
    server.write(b"x" * 10_000)  # hours at this speed
    await eventually(lambda: max(proxy._line_free_at) > 0)
    proxy.heal()
    assert await asyncio.wait_for(reader.readexactly(10_000), 20)
    proxy.throttle(10_000_000)
    server.write(b"y" * 10)
    assert await asyncio.wait_for(reader.readexactly(10), 20) == b"y" * 10
