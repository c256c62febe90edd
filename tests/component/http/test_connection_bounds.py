"""A connection without a token costs little and not for long: what comes beside bodies is bounded, slow heads and
silent connections are cut, and there is a limit of connections."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
from collections.abc import AsyncIterator

import pytest
from http_rig import DEADLINE, Rig, http_rig
from raw_client import raw_call
from websockets.asyncio.client import connect

from corral.cli.api.client import Client
from corral.controller.http.messages.request import BodyPace
from corral.controller.http.server.connection import HEAD_LIMIT, MOST_PIPELINED
from corral.controller.http.server.open_connections import Cut
from corral.system.http_config import HttpLimitsSection
from corral.testing.waiting import eventually

KERNEL = 16 * 1024 * 1024
"""More than socket buffers and one read can hold of what nobody wants."""

CHUNKED = "Host: x\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "trailers": ("0\r\n", b"X-Filler: " + b"a" * 1000 + b"\r\n"),
    "one trailer's value": ("0\r\nX-Filler: ", b"a" * 1000),
    "one trailer's name": ("0\r\n", b"a" * 1000),
    "a chunk's extension": ("1;", b"a" * 1000),
    "a chunk's length": ("", b"0" * 1000),
}


@contextlib.asynccontextmanager
async def connected(rig: Rig) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*rig.server.address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def sent_until_cut(writer: asyncio.StreamWriter, piece: bytes, *, most: int) -> int:
    """Send for as long as the peer takes it; how many bytes that were."""
    sent = 0
    with contextlib.suppress(OSError):
        async with asyncio.timeout(DEADLINE):
            while sent < most:
                writer.write(piece * 64)
                await writer.drain()
                sent += len(piece) * 64
    return sent


async def cut(reader: asyncio.StreamReader) -> bytes:
    """Wait until the peer ends the connection; what it said before."""
    said = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(DEADLINE):
            while piece := await reader.read(65536):
                said += piece
    return said


@pytest.mark.trap("T64")
@pytest.mark.parametrize("request_line", ["GET /health", "POST /api/v1/tokens"])
@pytest.mark.parametrize("kind", ENDLESS)
async def test_what_comes_beside_a_body_and_never_ends_is_cut(kind: str, request_line: str, rig: Rig) -> None:
    begin, piece = ENDLESS[kind]
    async with connected(rig) as (reader, writer):
        writer.write(f"{request_line} HTTP/1.1\r\n{CHUNKED}{begin}".encode())
        assert await sent_until_cut(writer, piece, most=KERNEL) < KERNEL
        await cut(reader)
    await eventually(lambda: len(rig.server.connections) == 0)


@pytest.mark.trap("T64")
async def test_a_head_that_never_ends_is_cut_and_so_are_empty_lines_before_one(rig: Rig) -> None:
    for begin, piece in (("GET /health HTTP/1.1\r\nX: ", b"a" * 1000), ("", b"\r\n" * 500)):
        async with connected(rig) as (reader, writer):
            writer.write(begin.encode())
            assert await sent_until_cut(writer, piece, most=KERNEL) < KERNEL
            await cut(reader)


async def test_a_head_of_the_allowed_size_is_served_and_one_above_it_is_answered(rig: Rig) -> None:
    for size, status in ((HEAD_LIMIT - 1000, b"200"), (HEAD_LIMIT + 1, b"400")):
        async with connected(rig) as (reader, writer):
            writer.write(
                b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: " + b"a" * size + b"\r\n\r\n"
            )
            answer = await cut(reader)
            assert answer.split()[1] == status
            assert (b'"code":"BAD_REQUEST"' in answer) == (status == b"400")


@pytest.mark.parametrize("encoding", ["xchunked", "chunked, x", "chunked"])
@pytest.mark.parametrize(
    "chunk", [b"5;a\nb\r\nhello", b"FFFFFFFFFFFFFFFF1\r\nhello", b"0x2\r\nhe", b"-1\r\n"]
)
async def test_a_malformed_body_is_answered_and_what_follows_it_is_not(
    encoding: str, chunk: bytes, rig: Rig
) -> None:
    follows = b"\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    for request_line in ("GET /health", "POST /api/v1/tokens"):
        async with connected(rig) as (reader, writer):
            head = f"{request_line} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {encoding}\r\n\r\n"
            writer.write(head.encode() + chunk + follows)
            answer = await cut(reader)
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert (answer.count(b"HTTP/1.1 "), answer.count(b'"code":"BAD_REQUEST"')) == (1, 1)


async def test_a_body_in_the_smallest_chunks_is_taken(rig: Rig) -> None:
    body = b'{"name":"t","role":"VIEWER"}'.ljust(60_000)
    async with connected(rig) as (reader, writer):
        head = f"POST /api/v1/tokens HTTP/1.1\r\nAuthorization: Bearer {rig.admin}\r\n"
        writer.write(f"{head}Connection: close\r\nContent-Type: application/json\r\n{CHUNKED}".encode())
        writer.write(
            b"".join(b"1\r\n%b\r\n" % bytes([byte]) for byte in body) + b"0\r\nX-Trailer: fine\r\n\r\n"
        )
        assert (await cut(reader)).split()[1] == b"201"


async def test_requests_that_follow_one_another_at_once_are_no_overlong_head(rig: Rig) -> None:
    async with connected(rig) as (reader, writer):
        one = b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 4000 + b"\r\n\r\n"
        writer.write(one * 40 + one.replace(b"Host: x", b"Connection: close"))
        assert (await cut(reader)).count(b"HTTP/1.1 200") == 41


@pytest.mark.trap("T64")
async def test_requests_that_wait_behind_another_are_few(rig: Rig) -> None:
    async with connected(rig) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 5000)
        assert (await cut(reader)).count(b"HTTP/1.1 200") <= 1 + MOST_PIPELINED
        assert rig.server.connections.cut[Cut.MALFORMED] == 1
        assert len(rig.server.connections) == 0


@pytest.mark.trap("T64")
async def test_an_answer_that_nobody_takes_ends_its_connection(data: pathlib.Path) -> None:
    async with http_rig(data, limits=HttpLimitsSection(stall_seconds=0.2)) as rig:
        head = f"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {rig.admin}\r\n\r\n"
        with socket.create_connection(rig.server.address) as stranger:
            stranger.sendall(head.encode() * MOST_PIPELINED)
            await eventually(lambda: rig.server.connections.cut[Cut.EXPIRED] == 1)
            await eventually(
                lambda: len(rig.server.connections) == 0
            )  # a moment later: its transport tells us


QUICK = HttpLimitsSection(head_seconds=0.2, idle_seconds=0.2)


STALLED = {
    "silent": b"",
    "an empty line": b"\r\n",
    "half a head": b"GET /health HTTP/1.1\r\nHost: x\r\n",
    "idle": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    "an empty line after a request": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n\r\n",
    "half a second head": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /he",
    "half a body that was answered": b"POST /api/v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
    "half of trailers": b"POST /api/v1/tokens HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    "idle after a body": b"POST /api/v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{",
}


@pytest.mark.trap("T64")
async def test_a_connection_that_makes_no_progress_is_cut(data: pathlib.Path) -> None:
    async with http_rig(data, limits=QUICK) as rig:
        left = set(STALLED)

        async def stall(kind: str) -> None:
            async with connected(rig) as (reader, writer):
                writer.write(STALLED[kind])
                await cut(reader)
                left.remove(kind)

        try:
            await asyncio.gather(*map(stall, STALLED))
        except TimeoutError:
            pytest.fail(f"not cut: {left}")
        await eventually(lambda: len(rig.server.connections) == 0)


@pytest.mark.trap("T64")
@pytest.mark.parametrize("answered", [0, 2], ids=["first", "after others"])
async def test_a_head_that_comes_byte_by_byte_has_one_deadline(data: pathlib.Path, answered: int) -> None:
    async with http_rig(data, limits=QUICK) as rig, connected(rig) as (reader, writer):
        for _ in range(answered):
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
        gone = asyncio.create_task(cut(reader))
        writer.write(b"GET /health HTTP/1.1\r\nX: ")
        while not gone.done():  # as fast as it likes: bytes do not move the deadline
            with contextlib.suppress(OSError):
                writer.write(b"a")
                await writer.drain()
            await asyncio.wait({gone}, timeout=0.02)
        assert rig.server.connections.cut == {Cut.EXPIRED: 1}


@pytest.mark.trap("T64")
async def test_a_body_that_does_not_come_is_given_up_soon_and_with_an_answer(data: pathlib.Path) -> None:
    async with (
        http_rig(data, limits=HttpLimitsSection(body_pause_seconds=0.2)) as rig,
        raw_call(
            rig, "POST", "/api/v1/tokens", Content_Length="100", Content_Type="application/json"
        ) as call,
    ):
        await call.send(b"{")
        status, _, body = await call.answer()
    assert (status, body["error"]["code"]) == (400, "BAD_REQUEST")
    assert "nothing came for 0.2 seconds" in body["error"]["message"]


def test_a_body_that_has_come_fast_may_pause_for_longer() -> None:
    pace = BodyPace(pause_seconds=5.0, idle_seconds=30.0)
    assert pace.patience == 5.0
    pace.size, pace.waited = 10_000, 1.0
    assert pace.patience == 30.0
    pace.waited = 100.0
    assert pace.patience == 5.0


async def test_a_websocket_keeps_its_place_and_has_no_deadline(data: pathlib.Path) -> None:
    async with http_rig(data, limits=QUICK) as rig:
        record = await rig.instance()
        url = f"{rig.url.replace('http:', 'ws:')}/api/v1/instances/{record.id}/console/ws"
        headers = {"Authorization": f"Bearer {rig.admin}"}
        async with (
            connect(url, additional_headers=headers, proxy=None) as socket,
            connected(rig) as (reader, _),
        ):
            await cut(reader)  # another one's deadline has passed meanwhile
            assert len(rig.server.connections) == 1
            await (await socket.ping())
        await eventually(lambda: len(rig.server.connections) == 0)


async def test_what_is_being_answered_outlives_every_deadline_of_heads(data: pathlib.Path) -> None:
    async with http_rig(data, limits=QUICK) as rig, rig.client() as client:
        rig.store.commits.hold()
        asking = asyncio.create_task(client.post("/api/v1/tokens", json={"name": "t", "role": "VIEWER"}))
        await eventually(lambda: bool(rig.writer.pending))
        async with connected(rig) as (reader, _):
            await cut(reader)  # another one's deadline has passed meanwhile
        rig.store.commits.let_go()
        assert (await asking).status_code == 201


@pytest.mark.trap("T64")
async def test_connections_are_bounded_and_the_one_that_waits_longest_makes_room(data: pathlib.Path) -> None:
    limits = HttpLimitsSection(connections=8, connections_per_address=2)  # the host itself has half of all
    async with http_rig(data, limits=limits) as rig, contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(connected(rig)) for _ in range(4)]
        await eventually(lambda: len(rig.server.connections) == 4)
        async with rig.client() as client:
            assert (await client.get("/health")).status_code == 200
            await cut(silent[0][0])
            assert not silent[1][0].at_eof()
            assert (len(rig.server.connections), rig.server.connections.cut[Cut.DISPLACED]) == (4, 1)


@pytest.mark.trap("T64")
@pytest.mark.parametrize(
    ("before", "behind", "at_work"),
    [
        ("GET /health", "", False),
        ("GET /health", "GET /he", False),
        ("GET /health", "GET /api/v1/events/stream", True),
        ("GET /api/v1/events/stream", "GET /he", True),
        ("GET /api/v1/events/stream", "GET /health", True),
    ],
    ids=["idle", "half a head", "next is a stream", "half a head behind a stream", "request behind a stream"],
)
async def test_a_connection_is_at_work_as_long_as_one_of_its_requests_is(
    data: pathlib.Path, before: str, behind: str, at_work: bool
) -> None:
    limits = HttpLimitsSection(connections=4, connections_per_address=2)  # the host itself has half of all
    rest = " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n"
    async with http_rig(data, limits=limits) as rig, contextlib.AsyncExitStack() as stack:
        head = rest.format(rig.admin)
        sent = before + head + (behind if behind in ("", "GET /he") else behind + head)
        awaited = b"event-stream" if at_work else b'"status"'
        for _ in range(2):
            reader, writer = await stack.enter_async_context(connected(rig))
            writer.write(sent.encode())
            async with asyncio.timeout(DEADLINE):
                await reader.readuntil(awaited)
        async with connected(rig) as (reader, writer):
            if at_work:
                await cut(reader)
            else:
                writer.write(f"GET /health{head}".encode())
                async with asyncio.timeout(DEADLINE):
                    assert b"200" in await reader.readuntil(b"\r\n")
        cuts = rig.server.connections.cut
        assert (cuts[Cut.REFUSED], cuts[Cut.DISPLACED]) == ((1, 0) if at_work else (0, 1))


@pytest.mark.trap("T64")
async def test_connections_at_work_are_not_pushed_out(data: pathlib.Path) -> None:
    limits = HttpLimitsSection(connections=4, connections_per_address=2)
    async with (
        http_rig(data, limits=limits) as rig,
        rig.client() as client,
        contextlib.AsyncExitStack() as stack,
    ):
        streams = [
            await stack.enter_async_context(client.stream("GET", "/api/v1/events/stream")) for _ in range(2)
        ]
        async with connected(rig) as (reader, _):
            await cut(reader)
        assert all(stream.status_code == 200 for stream in streams)
        assert rig.server.connections.cut[Cut.REFUSED] == 1
    assert len(rig.server.connections) == 0


async def test_what_strangers_do_wrong_is_counted_and_not_logged(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    for begin in (
        b"\x16\x03\x01 no HTTP\r\n\r\n",
        b"GET / HTTP/1.1\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ):
        async with connected(rig) as (_, writer):
            writer.write(begin)
            await writer.drain()
    await eventually(lambda: rig.server.connections.cut[Cut.MALFORMED] >= 1)
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []
    async with rig.client() as client:
        shown = (await client.get("/metrics")).text
    assert 'corral_http_connections_cut_total{reason="malformed"} 1.0' in shown
    assert "corral_http_connections 1.0" in shown


async def test_a_command_that_paused_for_longer_than_its_connection_is_kept_goes_on(
    data: pathlib.Path,
) -> None:
    async with http_rig(data, limits=QUICK) as rig:
        client = Client(url=rig.url, token=rig.admin)
        try:
            for name in ("first", "second"):
                made = await asyncio.to_thread(
                    client.post, "/api/v1/tokens", {"name": name, "role": "VIEWER"}
                )
                assert made["name"] == name
                await eventually(lambda: len(rig.server.connections) == 0)
        finally:
            client.close()
