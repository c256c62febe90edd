"""A reader of server-sent events for tests, over its own connection, and one that stops reading."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

DEADLINE = 15.0


class Frame(msgspec.Struct, frozen=True):
    id: str
    event: str
    data: dict[str, Any] | None
    comment: str


class StreamEnded(Exception):
    """The server ended the stream; carries the last comment."""


class SseClient:
    """Frames one after the other; every wait has a deadline."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()
        self.last_comment = ""

    async def frame(self, *, deadline: float = DEADLINE) -> Frame:
        """The next frame of any kind."""
        async with asyncio.timeout(deadline):
            fields: dict[str, str] = {}
            async for line in self._lines:
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.removeprefix(" ")
                    continue
                return self._framed(fields)
        raise StreamEnded(self.last_comment)

    def _framed(self, fields: dict[str, str]) -> Frame:
        comment = fields.get("", "")
        self.last_comment = comment or self.last_comment
        data = msgspec.json.decode(fields["data"]) if "data" in fields else None
        return Frame(fields.get("id", ""), fields.get("event", ""), data, comment)

    async def event(self, *, deadline: float = DEADLINE) -> Frame:
        """The next frame with data."""
        async with asyncio.timeout(deadline):
            while True:
                frame = await self.frame()
                if frame.data is not None:
                    return frame

    async def events(self, count: int) -> list[Frame]:
        return [await self.event() for _ in range(count)]

    async def end(self, *, deadline: float = DEADLINE) -> str:
        """Wait until the server ends the stream; what it said last."""
        async with asyncio.timeout(deadline):
            while True:
                try:
                    await self.frame()
                except StreamEnded as ended:
                    return str(ended)


@contextlib.asynccontextmanager
async def following(
    client: httpx.AsyncClient, path: str = "/api/v1/events/stream", **options: Any
) -> AsyncIterator[SseClient]:
    """Open a stream and wait until the server says that it follows (or replays)."""
    async with client.stream("GET", path, **options) as response:
        if response.status_code != 200:
            await response.aread()
        assert response.status_code == 200, response.text
        reader = SseClient(response)
        assert (await reader.frame()).id == ""  # `retry:`
        yield reader


@contextlib.asynccontextmanager
async def stalled(
    host: str, port: int, token: str, path: str = "/api/v1/events/stream"
) -> AsyncIterator[socket.socket]:
    """A client that asks for a stream, sees it begin, and never reads again."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await loop.sock_connect(sock, (host, port))
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
        await loop.sock_sendall(sock, request.encode())
        seen = b""
        async with asyncio.timeout(DEADLINE):
            while b": following" not in seen:
                seen += await loop.sock_recv(sock, 512)
        yield sock
    finally:
        sock.close()
