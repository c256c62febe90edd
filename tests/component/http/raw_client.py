"""A caller that does with its connection what no library would."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from http_rig import DEADLINE, Rig


class RawCall:
    """One request on one connection, written by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def drop(self) -> None:
        """Hang up in the middle."""
        self.writer.transport.abort()

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers and decoded body."""
        async with asyncio.timeout(DEADLINE):
            status = int((await self._reader.readline()).split()[1])
            headers: dict[str, str] = {}
            while line := (await self._reader.readline()).strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            raw = await self._reader.readexactly(int(headers.get("content-length", "0")))
            return status, headers, json.loads(raw) if raw else None


@contextlib.asynccontextmanager
async def raw_call(
    rig: Rig, method: str, target: str, *, token: str | None = None, **headers: str
) -> AsyncIterator[RawCall]:
    """A connection on which the head of a request has been sent; `target` goes out as it is."""
    host, _, port = rig.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        named = {"Host": "x", "Authorization": f"Bearer {rig.admin if token is None else token}"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        writer.write(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode())
        await writer.drain()
        yield RawCall(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
