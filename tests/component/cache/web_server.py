"""A web server that says exactly what a test tells it to, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Self


class Asked:
    """One request."""

    def __init__(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.path = lines[0].split(" ")[1]
        self.headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }

    @property
    def first_byte(self) -> int:
        """Where the range it asks for begins."""
        return int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))


Page = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


class WebServer:
    """Pages by path; each writes its own answer, status line included. Use as `async with`."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.pages: dict[str, Page] = {}
        self.asked: list[Asked] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def url(self, path: str, *, host: str = "127.0.0.1", credentials: str = "") -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{credentials}{host}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            asked = Asked(await reader.readuntil(b"\r\n\r\n"))
            self.asked.append(asked)
            await self.pages[asked.path.partition("?")[0]](asked, writer)
            with contextlib.suppress(OSError):
                await writer.drain()
                writer.close()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()


def says(status: str, body: bytes = b"", **headers: str) -> Page:
    """A plain answer with its length."""

    async def page(_: Asked, writer: asyncio.StreamWriter) -> None:
        lines = {"Content-Length": str(len(body)), **{k.replace("_", "-"): v for k, v in headers.items()}}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        writer.write(f"HTTP/1.1 {status}\r\n{text}\r\n".encode() + body)
        await writer.drain()

    return page


def serves(content: bytes, *, etag: str = '"v1"', cut_after: int | None = None) -> Page:
    """A file, with ranges; with `cut_after` the connection breaks after so many bytes of each answer."""

    async def page(asked: Asked, writer: asyncio.StreamWriter) -> None:
        start = asked.first_byte if asked.headers.get("if-range", etag) == etag else 0
        body = content[start:]
        head = [f"Content-Length: {len(body)}", f"ETag: {etag}"]
        if start:
            head.append(f"Content-Range: bytes {start}-{len(content) - 1}/{len(content)}")
        status = "206 Partial Content" if start else "200 OK"
        writer.write("\r\n".join([f"HTTP/1.1 {status}", *head, "", ""]).encode())
        writer.write(body if cut_after is None else body[:cut_after])
        await writer.drain()

    return page
