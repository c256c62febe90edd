"""Taking a body in as it comes: never whole in memory, never faster than it is put away."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, Final, TypeVar

from corral.controller.http.call import Call
from corral.controller.http.open_streams import OpenStream
from corral.controller.http.request import ClientGone, Request, too_large
from corral.controller.http.route_table import Describe, Upload
from corral.controller.http.setting import Leading
from corral.errors import Code, CorralError, Rejected, Retryable

T = TypeVar("T")

_SLOWEST: Final = 1024
"""Bytes a second on the whole; who sends less holds a place that others need."""


class Incoming:
    """A body as pieces. What is not asked for waits in the caller's socket."""

    def __init__(
        self,
        request: Request,
        *,
        limit: int,
        idle_seconds: float,
        digested: bool,
        head_start_seconds: float = 60.0,
    ) -> None:
        self._request = request
        self._limit = limit
        self._idle = idle_seconds
        self._head_start = head_start_seconds
        self._digest = hashlib.sha256() if digested else None
        self._waited = 0.0
        self._more = True
        self.size = 0

    @property
    def digest(self) -> bytes:
        """Of all that came, where it was asked for."""
        return self._digest.digest() if self._digest is not None else b""

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """BODY_TOO_LARGE, BAD_REQUEST when it comes too slowly, `ClientGone`."""
        while self._more:
            piece = await self._next()
            if piece:
                yield piece

    async def drain(self) -> None:
        """Read to the end what the handler did not need."""
        async for _ in self.pieces():
            pass

    async def _next(self) -> bytes:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._idle):
                message = await self._request.receive()
        except TimeoutError:
            raise _too_slow(f"nothing came for {self._idle:g} seconds") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        self._more = message.get("more_body", False)
        self.size += len(piece)
        if self.size > self._limit:
            raise too_large(self._limit)
        self._waited += loop.time() - began
        if self._waited > self._head_start + self.size / _SLOWEST:
            raise _too_slow(f"it comes with less than {_SLOWEST} bytes a second")
        if self._digest is not None:
            self._digest.update(piece)
        return piece


async def take_in(
    route: Upload, leading: Leading, call: Call[Any, Any], *, incoming: Incoming, stream: OpenStream
) -> Describe:
    """Let the handler read the body; what ends a stream of this caller ends it, too."""

    async def work() -> Describe:
        async with contextlib.aclosing(incoming.pieces()) as pieces:
            describe = await route.handler(leading, call, pieces)
        await incoming.drain()
        return describe

    return await within(leading, stream, work())


async def within(leading: Leading, stream: OpenStream, work: Awaitable[T]) -> T:
    """What `work` yields, unless the caller's token or this term ends before it does."""
    working = asyncio.ensure_future(work)
    ends: set[asyncio.Future[Any]] = {working, stream.closing}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise _ended(leading, stream)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def _ended(leading: Leading, stream: OpenStream) -> CorralError:
    reason = stream.closing.result()
    if leading.state.tokens.find(stream.token.id) is None:
        return Rejected(Code.UNAUTHENTICATED, f"nothing was stored: {reason}", hint="log in again")
    return Retryable(Code.NOT_LEADER, f"nothing was stored: {reason}", hint="send it again", retry_after=1.0)


def _too_slow(why: str) -> Rejected:
    return Rejected(Code.BAD_REQUEST, f"the upload was given up: {why}", hint="send it again")
