"""The status ping against the demo server, against hostile ones, and compared with mcstatus."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import struct
import sys
import tracemalloc
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcstatus import JavaServer

from corral.daemon.probes.minecraft_ping import MAX_STATUS, PlayerCount, ping, players_of, varint
from corral.daemon.probes.port_probes import NotYet
from corral.demo import server as demo
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.testing.ports import free_range
from corral.testing.waiting import eventually

HOST = "127.0.0.1"


@contextlib.asynccontextmanager
async def demo_server(*flags: str) -> AsyncIterator[int]:
    port, _ = free_range(1)
    process = await asyncio.create_subprocess_exec(
        sys.executable, demo.__file__, "--host", HOST, "--port", str(port), *flags,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while b"Done!" not in await process.stdout.readline():
                pass
        yield port
    finally:
        process.kill()
        await process.communicate()


def status_packet(body: bytes) -> bytes:
    content = b"\0" + varint(len(body)) + body
    return varint(len(content)) + content


def answering(data: bytes):
    async def talk(reader, writer):
        await reader.read(1)
        writer.write(data)
        await writer.drain()
        writer.write_eof()
        while await reader.read(1024):
            pass

    return talk


async def test_the_demo_server_tells_its_players_and_mcstatus_agrees():
    async with demo_server("--max-players", "33", "--bots", "--seed", "1", "--pace", "0.2") as port:
        before = (await (await JavaServer.async_lookup(f"{HOST}:{port}")).async_status()).players
        found = await ping(HOST, port)
        assert found is not None
        assert found.maximum == before.max == 33
        assert abs(found.online - before.online) <= 2

        async def players() -> int:
            count = await ping(HOST, port)
            return count.online if count else 0

        await eventually(players)


async def test_readiness_and_players_of_a_real_server(readiness):
    reported: list[PlayerCount | None] = []
    async with demo_server("--max-players", "5", "--bots", "--seed", "2", "--pace", "0.1") as port:
        found = readiness(ProbeSpec(kind=ProbeKind.MINECRAFT, interval_ms=50, timeout_ms=2000), port=port)
        assert found.counts_players
        async with asyncio.timeout(60):
            await found.until_ready()
        watching = asyncio.create_task(found.watch_players(reported.append, interval=0.05))
        await eventually(lambda: len(reported) >= 3, state=lambda: reported)
    await eventually(lambda: reported[-1] is None, state=lambda: reported)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert all(one != other for one, other in itertools.pairwise(reported))
    assert {count.maximum for count in reported if count is not None} == {5}


async def test_a_daemon_that_begins_asks_each_server_once_in_an_interval_and_at_a_moment_of_its_own(
    serve, readiness
):
    asked: list[str] = []

    async def talk(reader, writer):
        asked.append(writer.get_extra_info("sockname")[0])
        await answering(status_packet(b'{"players": {"online": 1, "max": 2}}'))(reader, writer)

    port = await serve(talk, host="0.0.0.0")
    probe = ProbeSpec(kind=ProbeKind.MINECRAFT, timeout_ms=600_000)
    runs = {f"run-{n}": f"127.0.0.{n}" for n in (2, 20, 23, 52, 84)}  # a fifth of the interval apart

    async def first_asked(names: list[str]) -> list[str]:
        """In which order they are asked when they begin in this one."""
        asked.clear()
        async with asyncio.TaskGroup() as group:
            probes = [readiness(probe, port=port, name=name, host=runs[name]) for name in names]
            watching = [group.create_task(one.watch_players(lambda _: None, interval=1)) for one in probes]
            await eventually(lambda: len(asked) >= len(runs), state=lambda: asked)
            for task in watching:
                task.cancel()
        return asked[: len(runs)]

    first = await first_asked(list(runs))
    assert sorted(first) == sorted(runs.values()), "one was asked again before another was asked at all"
    assert first == await first_asked(list(reversed(runs))), "their order is that of their beginning"


async def test_the_watch_of_players_outlives_whatever_an_attempt_raises(readiness):
    # A name that cannot be looked up: not an OSError, but a fault of its encoding.
    found = readiness(ProbeSpec(kind=ProbeKind.MINECRAFT), host="x" * 70 + ".example")
    watching = asyncio.create_task(found.watch_players(lambda count: pytest.fail("nobody"), interval=0.01))
    done, _ = await asyncio.wait({watching}, timeout=0.3)
    assert not done
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_without_a_minecraft_probe_nobody_counts_players(readiness):
    found = readiness(ProbeSpec(kind=ProbeKind.WORKLOAD))
    assert not found.counts_players
    await found.watch_players(lambda count: pytest.fail("nothing to report"))


@pytest.mark.parametrize(
    ("status", "count"),
    [
        ({"players": {"online": 3, "max": 20}}, PlayerCount(online=3, maximum=20)),
        ({"version": {"name": "x"}, "description": "hi"}, None),
        ({"players": {"online": -5, "max": 10**30}}, PlayerCount(online=0, maximum=2**31 - 1)),
        (
            {"players": {"online": 1, "max": 2, "sample": None}, "forgeData": [1]},
            PlayerCount(online=1, maximum=2),
        ),
        ({"players": {"online": 1, "max": 2}, "favicon": "A" * 500_000}, PlayerCount(online=1, maximum=2)),
    ],
)
async def test_what_servers_answer_is_read(serve, status, count):
    port = await serve(answering(status_packet(json.dumps(status).encode())))
    assert await ping(HOST, port) == count


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff" * 64,
        b"\0" * 64,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x80" * 4096,
        varint(MAX_STATUS + 1) + b"\0" * 100,
        varint(0xFFFFFFFF) + b"\0" * 100,
        b"\x05\0" + varint(0xFFFFFFFF),
        b"\x10\0\x20{}",
        b"\x05\1\2{}",
        status_packet(b"{" * 1000),
        status_packet(b"[" * 900_000),
        status_packet(b'{"players": "many"}'),
        status_packet(b'{"players": {"online": "1", "max": 2}}'),
        status_packet(b'{"players": {"online": 1e999, "max": 2}}'),
        status_packet(b"null"),
        status_packet(b'{"description": ' + b"[" * 100_000),
        status_packet(b'{"players": {"online": 1, "max": 2}}')[:-1],
        b"x" * 5_000_000,
    ],
)
async def test_garbage_is_no_status(serve, answer):
    port = await serve(answering(answer))
    with pytest.raises(NotYet):
        async with asyncio.timeout(60):
            await ping(HOST, port)


@pytest.mark.parametrize(
    "body",
    [
        b'{"description": [' + b"[]," * 349_000 + b"[]]}",
        b'{"version": {' + b",".join(b'"%d":{}' % n for n in range(80_000)) + b"}}",
        b'{"players": {"max": 1, "online": ' + b"1" * 1_000_000 + b"}}",
    ],
    ids=["lists", "maps", "digits"],
)
def test_an_answer_that_is_dear_to_read_is_not_read(body):
    assert len(body) <= MAX_STATUS
    tracemalloc.start()
    try:
        with contextlib.suppress(NotYet):
            players_of(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000  # it is read in the loop; read as a whole it takes some megabytes, and a while


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.sampled_from(["players", "online", "max", "x"]), x),
    ).map(lambda v: json.dumps(v).encode())
)
def test_no_body_makes_anything_but_a_count_or_a_refusal(body):
    try:
        found = players_of(body)
    except NotYet:
        return
    assert found is None or 0 <= found.online < 2**31


@pytest.mark.parametrize(
    "text",
    ["§1\x00127\x001.6.4\x00A server\x003\x0020", "An old server§3§20", "§1\x0051\x001.4\x00§§\x003\x0020"],
)
async def test_servers_older_than_the_status_ping_are_asked_in_their_own_way(serve, text):
    async def talk(reader, writer):
        first = await reader.read(1)
        if first == b"\xfe":
            writer.write(b"\xff" + struct.pack(">H", len(text)) + text.encode("utf-16-be"))

    assert await ping(HOST, await serve(talk)) == PlayerCount(online=3, maximum=20)


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff",
        b"\xff\xff\xff" + b"x" * 200_000,
        b"\xff\0\1\0x",
        b"\xfe\0\0",
        b"\xff\0\5\0a\0\xa7\0x\0\xa7\0y",
    ],
)
async def test_garbage_in_the_old_way_is_refused(serve, answer):
    async def talk(reader, writer):
        if await reader.read(1) == b"\xfe":
            writer.write(answer)

    with pytest.raises(NotYet, match="instead of answering a status ping"):
        await ping(HOST, await serve(talk))
