"""Attacks on the ports, for P20: strangers without a token, and a token that takes all it can get."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from benchmarks.p20_under_attack import Attack, Target

_FLOODS: Final = 4
_IDLE: Final = 500
_STREAMS: Final = 200
_BEGUN_BYTES: Final = 1_000_000
_WORDS: Final = 100_000
_LENGTH: Final = re.compile(rb"content-length: ([0-9]+)", re.IGNORECASE)


async def _for_ever(*workers: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(worker)


async def _opened(
    target: Target, address: str | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = (address or target.http).rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def trailers(target: Target, begun: Callable[[], None]) -> None:
    """Four connections that send trailers without an end, and come again when they are cut."""
    sent = 0

    async def flood() -> None:
        nonlocal sent
        filler = b"X-Filler: " + b"a" * 1000 + b"\r\n"
        while True:
            with contextlib.suppress(OSError):
                _, writer = await _opened(target)
                writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
                while not writer.is_closing():
                    writer.write(filler * 64)
                    await writer.drain()
                    if sent < _BEGUN_BYTES <= (sent := sent + len(filler) * 64):
                        begun()

    await _for_ever(*(flood() for _ in range(_FLOODS)))


async def idle_connections(target: Target, begun: Callable[[], None]) -> None:
    """500 connections with half a head each, opened again whenever they are cut."""
    opened = 0

    async def hold() -> None:
        nonlocal opened
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await _opened(target)
                writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Filler: a")
                opened += 1
                if opened == _IDLE:
                    begun()
                await reader.read()
            await asyncio.sleep(0.1)

    await _for_ever(*(hold() for _ in range(_IDLE)))


async def silent_peers(target: Target, begun: Callable[[], None]) -> None:
    """500 connections without a handshake at both gRPC ports, opened again whenever they are cut."""
    opened = 0

    async def hold(address: str) -> None:
        nonlocal opened
        while True:
            with contextlib.suppress(OSError):
                reader, _ = await _opened(target, address)
                opened += 1
                if opened == _IDLE:
                    begun()
                await reader.read()
            await asyncio.sleep(0.1)

    await _for_ever(
        *(hold(address) for address in (target.grpc, target.bootstrap) for _ in range(_IDLE // 2))
    )


async def streams_of_one_token(target: Target, begun: Callable[[], None]) -> None:
    """200 event streams of one VIEWER, asked for again whenever they are refused."""
    asked = 0

    async def follow() -> None:
        nonlocal asked
        head = (
            f"GET /api/v1/events/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.viewer}\r\n\r\n"
        )
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await _opened(target)
                writer.write(head.encode())
                await reader.readline()
                asked += 1
                if asked == _STREAMS:
                    begun()
                while await reader.read(65536):
                    pass
            await asyncio.sleep(0.1)

    await _for_ever(*(follow() for _ in range(_STREAMS)))


async def documents_of_many_words(target: Target, begun: Callable[[], None]) -> None:
    """A group whose command has 100,000 words."""
    await _tried_groups(target, begun, command=["a"] * _WORDS)


async def large_documents(target: Target, begun: Callable[[], None]) -> None:
    """A group that is about as large as one may be, and right."""
    artifacts = [{"url": f"https://files.example/{number}.jar", "sha256": "0" * 64} for number in range(990)]
    extensions = [
        {"id": f"e-{number}", "artifact": artifact, "install_path": "plugins"}
        for number, artifact in enumerate(artifacts)
    ]
    await _tried_groups(target, begun, command=["a"], extensions=extensions)


async def _tried_groups(target: Target, begun: Callable[[], None], **document: Any) -> None:
    """Four connections of an OPERATOR that try to create a group, again and again."""
    body = json.dumps({"name": "tried", **document}).encode()
    head = (
        "POST /api/v1/groups?dry_run=true HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {target.operator}\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    async def send() -> None:
        while True:
            with contextlib.suppress(OSError, EOFError):
                reader, writer = await _opened(target)
                while True:
                    writer.write(head.encode() + body)
                    answer = await reader.readuntil(b"\r\n\r\n")
                    begun()
                    await reader.readexactly(int(_LENGTH.search(answer)[1]))  # type: ignore[index]  # each has one

    await _for_ever(*(send() for _ in range(_FLOODS)))


ATTACKS: Final[Mapping[str, Attack]] = {
    "trailers without end": trailers,
    "500 half heads": idle_connections,
    "500 silent gRPC peers": silent_peers,
    "200 streams of one token": streams_of_one_token,
    "documents of many words": documents_of_many_words,
    "large documents": large_documents,
}
