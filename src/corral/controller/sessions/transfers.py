"""Bulk data for daemons, on their second channel: blobs out, expected uploads in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final, TypeVar

import msgspec

from corral.domain.ids import NodeId
from corral.errors import Code, Rejected, Retryable
from corral.store.port import BlobEngine, BlobInfo
from corral.wire.transfer import CHUNK, CREDIT, CreditWindow, Regrant
from corral.wire.v1.data_pb2 import (
    Credit,
    DataChunk,
    FetchMessage,
    PushAccepted,
    PushMessage,
    PushOpen,
    PushReply,
    PushStored,
)

T = TypeVar("T")

STALL_SECONDS: Final = 30.0


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """An upload the controller asked a node for."""

    node_id: NodeId
    max_bytes: int
    stored: asyncio.Future[BlobInfo]


class Transfers:
    """Serves fetches from the store's blobs and takes only uploads that somebody waits for."""

    def __init__(self, blobs: BlobEngine) -> None:
        self._blobs = blobs
        self._expected: dict[str, Expected] = {}

    def expect(self, transfer_id: str, *, node_id: NodeId, max_bytes: int) -> asyncio.Future[BlobInfo]:
        """Allow this node one upload; the future holds the blob once it is stored and verified."""
        stored: asyncio.Future[BlobInfo] = asyncio.get_running_loop().create_future()
        self._expected[transfer_id] = Expected(node_id=node_id, max_bytes=max_bytes, stored=stored)
        stored.add_done_callback(lambda _: self._expected.pop(transfer_id, None))
        return stored

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
        reader = asyncio.create_task(self._read_grants(context, window), name="transfers/grants")
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

    async def push(self, context: Any, node_id: NodeId) -> None:
        """Take an expected upload; it becomes a blob only when whole and of the promised digest."""
        first = await within(context.read())
        if not isinstance(first, PushMessage) or first.WhichOneof("payload") != "open":
            raise Rejected(Code.BAD_REQUEST, "a push begins with PushOpen")
        opening = first.open
        expected = self._expected.get(opening.transfer_id)
        if expected is None or expected.node_id != node_id:
            raise Rejected(Code.NOT_FOUND, f"nobody expects transfer '{opening.transfer_id[:80]}'")
        if not 0 <= opening.size_bytes <= expected.max_bytes:
            raise Rejected(
                Code.BODY_TOO_LARGE,
                f"the transfer has {opening.size_bytes} bytes, at most {expected.max_bytes} are expected",
                field="size_bytes",
            )
        await context.write(PushReply(accepted=PushAccepted(offset=0, credit=CREDIT)))
        info = await self._blobs.put_blob(_chunks(context, opening), expect=opening.digest)
        await context.write(PushReply(stored=PushStored(digest=info.digest, size_bytes=info.size)))
        if not expected.stored.done():
            expected.stored.set_result(info)


async def within(waiting: Awaitable[T]) -> T:
    """No peer may hold a transfer open without moving it."""
    try:
        async with asyncio.timeout(STALL_SECONDS):
            return await waiting
    except TimeoutError:
        raise Retryable(Code.TIMEOUT, f"the transfer stalled for {STALL_SECONDS:g} s") from None


async def _chunks(context: Any, opening: PushOpen) -> AsyncIterator[bytes]:
    """The data of a push, exactly as many bytes as were announced, credit given back as it goes."""
    received = 0
    regrant = Regrant(CREDIT)
    while received < opening.size_bytes:
        message = await within(context.read())
        if not isinstance(message, PushMessage):
            raise Retryable(Code.TRANSFER_INTERRUPTED, f"the upload ended after {received} bytes")
        data = message.chunk.data
        if message.chunk.offset != received or not data or received + len(data) > opening.size_bytes:
            raise Rejected(Code.INVALID_FIELD, f"unexpected chunk at {message.chunk.offset}", field="offset")
        received += len(data)
        yield data
        if (grant := regrant.consumed(len(data))) > 0:
            await context.write(PushReply(credit=Credit(bytes=grant)))


def call_metadata(context: Any, key: str) -> str:
    """A metadata value of the call, or empty."""
    for name, value in context.invocation_metadata() or ():
        if name == key:
            return str(value)
    return ""
