"""Bulk data for daemons, on their second channel: blobs, from any offset, under the daemon's credit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from corral.errors import Code, Rejected, Retryable
from corral.store.port import BlobEngine, BlobInfo
from corral.wire.transfer import CHUNK, CreditWindow
from corral.wire.v1.data_pb2 import (
    DataChunk,
    FetchMessage,
)

T = TypeVar("T")

STALL_SECONDS: Final = 30.0


class Fetches:
    """Serves the store's blobs."""

    def __init__(self, blobs: BlobEngine) -> None:
        self._blobs = blobs

    async def fetch(self, context: Any) -> None:
        """Send a blob from an offset, never more under way than the daemon granted."""
        first = await within(context.read())
        if not isinstance(first, FetchMessage) or first.WhichOneof("payload") != "open":
            raise Rejected(Code.BAD_REQUEST, "a fetch begins with FetchOpen")
        request = first.open
        if request.kind not in ("", "blob"):
            raise Rejected(
                Code.INVALID_FIELD, f"there is no data of kind '{request.kind[:40]}'", field="kind"
            )
        info = await self._blobs.blob_info(request.digest)
        if info is None:
            raise Rejected(Code.NOT_FOUND, f"there is no blob '{request.digest[:80]}'")
        if not 0 <= request.offset <= info.size:
            raise Rejected(Code.INVALID_FIELD, f"offset {request.offset} is outside the blob", field="offset")
        window = CreditWindow(request.credit)
        reader = asyncio.create_task(self._read_grants(context, window), name="fetch/grants")
        try:
            await self._send(context, info, request.offset, window)
        except Retryable:
            if reader.done() and not reader.cancelled() and (refused := reader.exception()) is not None:
                raise refused from None  # a grant that is out of bounds ended it
            raise
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    @staticmethod
    async def _read_grants(context: Any, window: CreditWindow) -> None:
        try:
            while isinstance(message := await context.read(), FetchMessage):
                window.grant(message.credit.bytes)
        finally:
            window.close()

    async def _send(self, context: Any, info: BlobInfo, offset: int, window: CreditWindow) -> None:
        if offset == info.size:
            await context.write(DataChunk(offset=offset, total_size_bytes=info.size, last=True))
            return
        async for block in self._blobs.read_blob(info.digest, offset=offset, chunk=CHUNK):
            view = memoryview(block)
            while view:
                room = await within(window.take(len(view)))
                if not room:
                    raise Retryable(Code.TRANSFER_INTERRUPTED, "the daemon ended the transfer")
                last = offset + room == info.size
                chunk = DataChunk(
                    offset=offset, data=bytes(view[:room]), total_size_bytes=info.size, last=last
                )
                await within(context.write(chunk))
                offset += room
                view = view[room:]


async def within(waiting: Awaitable[T]) -> T:
    """No peer may hold a transfer open without moving it."""
    try:
        async with asyncio.timeout(STALL_SECONDS):
            return await waiting
    except TimeoutError:
        raise Retryable(Code.TIMEOUT, f"the transfer stalled for {STALL_SECONDS:g} s") from None


def call_metadata(context: Any, key: str) -> str:
    """A metadata value of the call, or empty."""
    for name, value in context.invocation_metadata() or ():
        if name == key:
            return str(value)
    return ""
