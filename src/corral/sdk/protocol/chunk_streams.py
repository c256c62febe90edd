"""Chunk streams: bodies sent in chunks under a call's number, no faster than the receiver takes them."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import AsyncIterator, Callable

import msgspec

from corral.sdk.protocol.frames import MAX_CHUNK, STREAM_CREDIT, Chunk, Credit, Message


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of a served call with chunks: a body, and the chunks that follow it."""

    answer: object
    chunks: AsyncIterator[bytes]


class ChunkSender:
    """Sends pieces as long as there is credit, and waits otherwise."""

    def __init__(self, number: int, send: Callable[[Message], None]) -> None:
        self._number = number
        self._send = send
        self._credit = STREAM_CREDIT
        self._granted = asyncio.Event()

    def grant(self, size: int) -> None:
        self._credit += size
        self._granted.set()

    async def send_all(self, chunks: AsyncIterator[bytes]) -> None:
        """Returns after the last chunk is sent; raises what the iterator raises."""
        async for piece in chunks:
            for start in range(0, len(piece), MAX_CHUNK):
                await self._send_piece(bytes(piece[start : start + MAX_CHUNK]))
        self._send(Chunk(self._number, b"", True))

    async def _send_piece(self, piece: bytes) -> None:
        while self._credit < len(piece):
            self._granted.clear()
            await self._granted.wait()
        self._credit -= len(piece)
        self._send(Chunk(self._number, piece))


class CreditExceeded(Exception):
    """The sender of chunks did not wait for credit."""


class ChunkReceiver:
    """Chunks as an async iterator; credit is granted for what was read, not for what arrived."""

    def __init__(self, number: int, send: Callable[[Message], None]) -> None:
        self._number = number
        self._send = send
        self._pieces: collections.deque[bytes] = collections.deque()
        self._held = 0
        self._ended = False
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()

    def put(self, chunk: Chunk) -> None:
        """Raises CreditExceeded."""
        self._held += len(chunk.data)
        if self._held > STREAM_CREDIT:
            raise CreditExceeded
        if chunk.data:
            self._pieces.append(chunk.data)
        self._ended = self._ended or chunk.last
        self._changed.set()

    def fail(self, failure: BaseException) -> None:
        self._failure = failure
        self._changed.set()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        piece = self._pieces.popleft()
        self._held -= len(piece)
        self._send(Credit(self._number, len(piece)))
        return piece
