"""Bulk data for daemons, on their second channel: blobs and offered files, from any offset, under the daemon's credit."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Collection, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from corral.controller.sessions.offered_files import OfferedFile, OfferedFiles
from corral.domain.ids import NodeId
from corral.errors import Code, Rejected, Retryable
from corral.store.port import BlobEngine
from corral.system.aio.tasks import Tasks, failure_of
from corral.wire.frames import read_frame
from corral.wire.transfer import CHUNK, CreditWindow
from corral.wire.v1.data_pb2 import (
    DataChunk,
    FetchMessage,
    FetchOpen,
)

T = TypeVar("T")

STALL_SECONDS: Final = 30.0
MAX_DIGESTS: Final = 4096
"""The most digests of one bundle; a daemon requests further ones separately."""
_SINGLE: Final = frozenset({"", "blob", "manifest"})
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class RequestedBlobs(msgspec.Struct, frozen=True, kw_only=True):
    """Requested blobs, one after the other, as one sequence of bytes."""

    digests: tuple[str, ...]
    sizes: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(self.sizes[digest] for digest in self.digests)

    def behind(self, offset: int) -> tuple[tuple[str, ...], int]:
        """The blobs still to be sent from this offset on, and the offset within the first."""
        for place, digest in enumerate(self.digests):
            if offset < self.sizes[digest]:
                return self.digests[place:], offset
            offset -= self.sizes[digest]
        return (), 0


class BlobAccess(Protocol):
    """Read permissions of nodes on blobs."""

    async def readable(self, node_id: NodeId, digests: Collection[str], /) -> frozenset[str]:
        """The subset of these blobs that the node may read."""


class Fetches:
    """Serves the store's blobs, one or a bundle of them, to nodes that may read them."""

    def __init__(self, blobs: BlobEngine, *, access: BlobAccess, files: OfferedFiles) -> None:
        self._blobs = blobs
        self._access = access
        self._files = files

    async def fetch(self, context: Any, node_id: NodeId) -> None:
        """Send the requested data from an offset, never more in flight than the daemon granted."""
        first = await within(read_frame(context))
        if not isinstance(first, FetchMessage) or first.WhichOneof("payload") != "open":
            raise Rejected(Code.BAD_REQUEST, "a fetch begins with FetchOpen")
        request = first.open
        wanted: RequestedBlobs | OfferedFile
        if request.kind == "file":
            wanted = self._files.find(node_id, request.transfer_id)
        else:
            wanted = await self._find(node_id, request)
        if not 0 <= request.offset <= wanted.size:
            raise Rejected(
                Code.INVALID_FIELD,
                f"offset {request.offset} is outside the {wanted.size} bytes",
                field="offset",
            )
        window = CreditWindow(request.credit)
        async with Tasks() as tasks:
            reader = tasks.spawn(self._read_grants(context, window), name="fetch/grants", awaited=True)
            try:
                await self._send(context, wanted, request.offset, window)
            except Retryable:
                if reader.done() and (refused := failure_of(reader)) is not None:
                    raise refused from None  # the transfer was ended by a grant out of bounds
                raise

    async def _find(self, node_id: NodeId, request: FetchOpen) -> RequestedBlobs:
        """The requested blobs, all of them present. An incomplete bundle is of no use; blobs that the node
        may not read count as absent."""
        digests = _digests(request)
        readable = await within(self._access.readable(node_id, digests))
        sizes = await within(self._blobs.blob_sizes(set(readable)))
        missing = next((digest for digest in digests if digest not in sizes), None)
        if missing is not None:
            raise Rejected(Code.NOT_FOUND, f"there is no blob '{missing[:80]}'")
        return RequestedBlobs(digests=digests, sizes=sizes)

    @staticmethod
    async def _read_grants(context: Any, window: CreditWindow) -> None:
        try:
            while isinstance(message := await read_frame(context), FetchMessage):
                window.grant(message.credit.bytes)
        finally:
            window.close()

    async def _send(
        self, context: Any, wanted: RequestedBlobs | OfferedFile, offset: int, window: CreditWindow
    ) -> None:
        size = wanted.size
        if offset == size:
            await within(context.write(DataChunk(offset=offset, total_size_bytes=size, last=True)))
            return
        async with contextlib.aclosing(
            _chunks(
                wanted.blocks(offset) if isinstance(wanted, OfferedFile) else self._blocks(wanted, offset)
            )
        ) as blocks:
            async for block in blocks:
                view = memoryview(block)
                while view:
                    room = await within(window.take(len(view)))
                    if not room:
                        raise Retryable(Code.TRANSFER_INTERRUPTED, "the daemon ended the transfer")
                    last = offset + room == size
                    chunk = DataChunk(
                        offset=offset, data=bytes(view[:room]), total_size_bytes=size, last=last
                    )
                    await within(context.write(chunk))
                    offset += room
                    view = view[room:]

    async def _blocks(self, wanted: RequestedBlobs, offset: int) -> AsyncGenerator[bytes]:
        """The bytes from this offset on, in the store's blocks."""
        digests, skip = wanted.behind(offset)
        if skip or len(digests) == 1:
            async with _closed_after(self._blobs.read_blob(digests[0], offset=skip, chunk=CHUNK)) as blocks:
                async for block in blocks:
                    yield block
            digests = digests[1:]
        if digests:
            async with _closed_after(self._blobs.read_blobs(digests)) as blocks:
                async for block in blocks:
                    yield block


def _digests(request: FetchOpen) -> tuple[str, ...]:
    if request.kind in _SINGLE:
        return (request.digest,)
    if request.kind != "bundle":
        raise Rejected(Code.INVALID_FIELD, f"there is no data of kind '{request.kind[:40]}'", field="kind")
    if not 0 < len(request.digests) <= MAX_DIGESTS:
        raise Rejected(
            Code.INVALID_FIELD,
            f"a bundle of {len(request.digests)} digests was asked for",
            hint=f"ask for 1 to {MAX_DIGESTS} at a time",
            field="digests",
        )
    for digest in request.digests:
        if _DIGEST.fullmatch(digest) is None:
            raise Rejected(Code.INVALID_FIELD, f"'{digest[:80]}' is not a digest", field="digests")
    return tuple(request.digests)


@contextlib.asynccontextmanager
async def _closed_after(blocks: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Close the blocks after use: an interrupted transfer must not leave a file of the store open until
    garbage collection."""
    try:
        yield blocks
    finally:
        if isinstance(blocks, AsyncGenerator):
            await blocks.aclose()


async def _chunks(blocks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """The same bytes in chunks of one size: a bundle of ten thousand small files is not ten thousand
    messages."""
    held = bytearray()
    async with contextlib.aclosing(blocks):
        async for block in blocks:
            held += block
            whole = len(held) - len(held) % CHUNK
            for start in range(0, whole, CHUNK):
                yield bytes(held[start : start + CHUNK])
            del held[:whole]
    if held:
        yield bytes(held)


async def within(waiting: Awaitable[T]) -> T:
    """Bound a wait: no peer may hold a transfer open without progress."""
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
