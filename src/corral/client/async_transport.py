"""Connections of the asyncio client: a protocol that feeds the parser, kept for the next request. It starts no tasks; whatever
interrupts a call closes its connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final, cast

from corral.client.addresses import Address
from corral.client.bodies import BLOCK, Body, BodyCount
from corral.client.errors import InvalidAnswer, Unreachable
from corral.client.failures import broken_off, invalid, unreachable
from corral.client.http1 import AnswerFault, AnswerParser, Head
from corral.client.outgoing import Outgoing

_WHOLE: Final = 10
"""So many times the longest pause of an answer it may take as a whole."""
_KEPT: Final = 8
"""Connections that wait for the next request."""
_HIGH_WATER: Final = 1024 * 1024
"""Bytes of a body that wait for their reader; then no more is read from the socket."""


class AsyncTransport:
    """Sends requests to one controller, and to no other host."""

    def __init__(self, address: Address, *, token: str | None, context: ssl.SSLContext | None) -> None:
        self.address = address
        self._token = token
        self._context = context
        self._kept: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._closed = False

    async def open(self, request: Outgoing, *, seconds: float) -> AsyncAnswer:
        """Send a request and read the head of its answer, within so many seconds of the last block that was sent.

        It is sent once: a second time, over a fresh connection, only when the kept one did not take its head, so that nobody can
        have acted on it."""
        kept = self._take()
        if kept is not None:
            try:
                return await self._ask(kept, request, seconds)
            except Unreachable as failure:
                if kept.begun or not failure.passing:
                    raise  # else it was closed while it was kept: that is no failure of the controller
        try:
            async with asyncio.timeout(seconds):
                fresh = await self._connect()
        except (OSError, TimeoutError) as error:
            raise unreachable(self.address.url, error, sent=False, changes=False) from error
        return await self._ask(fresh, request, seconds)

    async def close(self) -> None:
        """End all connections, those of open downloads and streams included."""
        self._closed = True
        self._kept.clear()
        left = list(self._open)
        for each in left:
            each.abort()
        for each in left:
            await each.lost.wait()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        name = self.address.host if self._context is not None else None
        _, connection = await loop.create_connection(
            lambda: _Connection(self._open),
            self.address.host,
            self.address.port,
            ssl=self._context,
            server_hostname=name,
        )
        return connection

    async def _ask(self, connection: _Connection, request: Outgoing, seconds: float) -> AsyncAnswer:
        try:
            await connection.exchange(request.head(self.address, self._token), request.body, seconds)
        except (OSError, AnswerFault) as error:
            connection.abort()
            failure = unreachable(self.address.url, error, sent=connection.begun, changes=not request.reads)
            raise failure from error
        except BaseException:
            connection.abort()
            raise
        return AsyncAnswer(connection, self, changes=not request.reads)

    def _take(self) -> _Connection | None:
        if self._closed:
            raise ValueError("the client is closed; make a new one")
        while self._kept:
            connection = self._kept.pop()
            if connection.stands():
                return connection
            connection.abort()
        return None

    def give_back(self, connection: _Connection) -> None:
        if (
            connection.parser.reusable
            and not connection.parser.buffered  # its reading may be paused
            and not connection.spoiled
            and not self._closed
            and len(self._kept) < _KEPT
        ):
            self._kept.append(connection)
        else:
            connection.abort()


class AsyncAnswer:
    """An answer whose head has come. `close` it: the connection is used again when all of the body was read."""

    def __init__(self, connection: _Connection, transport: AsyncTransport, *, changes: bool) -> None:
        self._changes = changes
        self._connection: _Connection | None = connection
        self._transport = transport
        assert connection.parser.head is not None, "the head was read"
        self.head: Head = connection.parser.head

    async def piece(self, seconds: float) -> bytes:
        """What came of the body, at least a byte; empty: that was all. `Unreachable` when it breaks off."""
        connection = self._connection
        if connection is None:
            return b""
        try:
            async with asyncio.timeout(seconds):
                return await connection.piece()
        except (OSError, AnswerFault, TimeoutError) as error:
            self.close()
            raise broken_off(self._transport.address.url, error, changes=self._changes) from error
        except BaseException:
            connection.spoiled = True
            self.close()
            raise

    async def whole(self, *, limit: int, seconds: float) -> bytes:
        """The body, if it has no more than `limit` bytes, never pauses for so many seconds, and takes ten times as long at most."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _WHOLE * seconds
        if int(self.head.get("content-length") or 0) > limit:
            raise self._too_long(limit)
        found = bytearray()
        while piece := await self.piece(min(seconds, deadline - loop.time())):
            found += piece
            if len(found) > limit:
                raise self._too_long(limit)
        return bytes(found)

    def _too_long(self, limit: int) -> InvalidAnswer:
        self.close()
        what = f"an answer of more than {limit} bytes"
        return invalid(self._transport.address.url, what, in_doubt=self._changes)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.give_back(connection)


class _Connection(asyncio.Protocol):
    """A connection and the answer that is read from it."""

    def __init__(self, registry: set[_Connection]) -> None:
        self._registry = registry
        self._wire: asyncio.Transport | None = None
        self._changed: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._blocked = False
        self._reading = True
        self.lost = asyncio.Event()
        self.parser = AnswerParser()
        self.spoiled = False
        """Not to be used again: the request was not sent as a whole, or bytes came that belong to nothing."""
        self.begun = False
        """The head of the request was handed to the system: from there on it may have an effect."""

    # called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast(asyncio.Transport, transport)  # other loops have classes of their own
        self._registry.add(self)

    def data_received(self, data: bytes) -> None:
        if self.parser.complete:
            self.spoiled = True
            self.abort()
            return
        try:
            self.parser.feed(data)
        except AnswerFault as fault:
            self._failure = fault
            self.abort()
        if self.parser.buffered > _HIGH_WATER and self._reading and self._wire is not None:
            self._reading = False
            self._wire.pause_reading()
        self._notify()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._registry.discard(self)
        self.lost.set()
        self.spoiled = True
        if self._failure is None:
            try:
                self._failure = error
                self.parser.end()
            except AnswerFault as fault:
                self._failure = error or fault
        self._notify()

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self._notify()

    # called by the transport

    async def exchange(self, head: bytes, body: Body | None, seconds: float) -> None:
        """Send, and read until the head of the answer is here. An answer that comes before everything was sent ends the sending."""
        self.parser = AnswerParser()
        self._failure = None
        assert self._wire is not None, "it is connected"
        self._wire.write(head)
        self.begun = not self._wire.is_closing()  # a socket that does not take it closes at once
        await self._flushed(seconds)
        if self.begun and body is not None and body.size != 0:
            await self._send_body(body, seconds)
        async with asyncio.timeout(seconds):
            while self.parser.head is None:
                await self._change()

    async def piece(self) -> bytes:
        while not self.parser.buffered and not self.parser.complete:
            await self._change()
        taken = self.parser.take()
        if not self._reading and self._wire is not None and not self.lost.is_set():
            self._reading = True
            self._wire.resume_reading()
        return taken

    def stands(self) -> bool:
        """Whether it can take a request: not ended, nor about to, as far as the system knows. The loop may not have looked yet."""
        if self._wire is None or self.spoiled or self.lost.is_set() or self._wire.is_closing():
            return False
        wire = self._wire.get_extra_info("socket")
        if wire is None or wire.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(wire.fileno(), select.POLLIN)
        return not poll.poll(0)  # input without a question is the end

    def abort(self) -> None:
        if self._wire is not None:
            self._wire.abort()

    async def _change(self) -> None:
        """Wait until something happens; raises what ended the connection."""
        if self._failure is not None:
            raise self._failure
        if self.lost.is_set():
            raise ConnectionResetError("the connection was closed")
        self._changed = asyncio.get_running_loop().create_future()
        try:
            await self._changed
        finally:
            self._changed = None

    def _notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    async def _send(self, data: bytes, seconds: float) -> None:
        assert self._wire is not None, "it is connected"
        if not self.lost.is_set():
            self._wire.write(data)
        await self._flushed(seconds)

    async def _flushed(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while self._blocked and not self.lost.is_set() and self.parser.head is None:
                await self._change()

    async def _send_body(self, body: Body, seconds: float) -> None:
        chunked, count = body.size is None, BodyCount(body)
        for segment in body.segments:
            async with contextlib.aclosing(_blocks(segment)) as blocks:
                async for block in blocks:
                    if self.parser.head is not None or self.lost.is_set():
                        self.spoiled = True
                        return
                    count.sending(block)
                    data = b"%x\r\n%b\r\n" % (len(block), block) if chunked else block
                    await self._send(data, seconds)
        count.complete()
        if chunked:
            await self._send(b"0\r\n\r\n", seconds)


async def _blocks(segment: Any) -> AsyncGenerator[bytes, None]:
    if isinstance(segment, bytes):
        for start in range(0, len(segment), BLOCK):
            yield segment[start : start + BLOCK]
    elif isinstance(segment, os.PathLike):
        with await asyncio.to_thread(Path(segment).open, "rb") as file:
            while block := await asyncio.to_thread(file.read, BLOCK):
                yield block
    elif hasattr(segment, "read"):
        while block := await asyncio.to_thread(segment.read, BLOCK):
            yield block
    elif hasattr(segment, "__aiter__"):
        async for block in segment:
            if block:
                yield block
    else:
        for block in segment:
            if block:
                yield block
