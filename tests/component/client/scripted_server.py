"""A server that answers each request with the next step of a script, whatever it is: bytes, a cut, silence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, NamedTuple, Self


class Asked(NamedTuple):
    """A request that came."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


CUT = b""
"""The step that closes the connection without an answer."""
GONE = b"gone"
"""The step that ends the server: the connection is closed without an answer, and others are refused."""
SILENCE = None
"""The step that answers nothing, until the server ends."""


def answer(
    status: int, body: Any = None, *, headers: dict[str, str] | None = None, raw: bytes = b""
) -> bytes:
    content = raw or (b"" if body is None else json.dumps(body).encode())
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def refused(status: int, code: str, **headers: str) -> bytes:
    body = {"error": {"code": code, "message": "no", "status": status, "hint": "wait"}}
    return answer(status, body, headers={name.replace("_", "-"): value for name, value in headers.items()})


class ScriptedServer:
    """Use as `async with`. A step that is a cut or unframed ends its connection."""

    def __init__(self, steps: Iterable[bytes | None], *, closes: bool = False) -> None:
        self._steps = list(steps)
        self._closes = closes
        self._server: asyncio.Server | None = None
        self._ended = asyncio.Event()
        self._here: set[asyncio.Task[Any]] = set()
        self._connections = 0
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._ended.set()
        self._server.close()
        if self._here:
            await asyncio.wait(self._here)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._here.add(task)
        self._connections += 1
        number = self._connections
        try:
            while await self._turn(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._here.discard(task)
            writer.close()

    async def _turn(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.asked.append(Asked(line, headers, body, number))
        step = self._steps.pop(0)
        if step is SILENCE:
            await self._ended.wait()
            return False
        if step == GONE:
            assert self._server is not None
            self._server.close()
            return False
        writer.write(step)
        await writer.drain()
        return step != CUT and not self._closes
