"""A caller that asks one thing after another on one connection: quick enough for thousands of requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from http_rig import DEADLINE, Rig

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
"""Of a request that opens a WebSocket."""


class Answered(NamedTuple):
    status: int
    code: str
    """The error's; "a text" in place of one on Universe's paths; "" of an answer that is none, or has no body."""
    text: str


class KeptConnection:
    """Writes requests as they are given. A stream or a WebSocket that opens is dropped as soon as its head is there."""

    def __init__(self, rig: Rig) -> None:
        self._address = rig.server.address
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answered:
        given = {"Host": f"127.0.0.1:{self._address.port}", **headers}
        if body is not None:
            given |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        async with asyncio.timeout(DEADLINE):
            reader, writer = self._open or await asyncio.open_connection(*self._address)
            self._open = reader, writer
            writer.write(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + (body or b""))
            return await self._read(reader, bodiless=method == "HEAD")

    async def _read(self, reader: asyncio.StreamReader, *, bodiless: bool) -> Answered:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        fields = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        length = fields.get("content-length")
        if bodiless or status in (204, 304):
            text = ""
        elif length is None:
            await self.drop()
            return Answered(status, "", "")
        else:
            text = (await reader.readexactly(int(length))).decode("utf-8", "replace")
        if fields.get("connection", "").lower() == "close" or status == 101:
            await self.drop()
        return Answered(status, _code(text), text)

    async def drop(self) -> None:
        if self._open is not None:
            _, writer = self._open
            self._open = None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _code(text: str) -> str:
    with contextlib.suppress(ValueError):
        match json.loads(text):
            case {"error": {"code": str(code)}}:
                return code
            case {"error": str()}:
                return "a text"
    return ""


@contextlib.asynccontextmanager
async def kept_connection(rig: Rig) -> AsyncIterator[KeptConnection]:
    made = KeptConnection(rig)
    try:
        yield made
    finally:
        await made.drop()
