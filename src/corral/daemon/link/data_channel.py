"""Bulk transfer with the controller, on a connection of its own, so that control frames never queue behind it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pathlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, BinaryIO, Final

import grpc
import structlog

from corral.daemon.link.connection import LinkConnection
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.pki.names import controller_host
from corral.system.aio.tasks import Tasks, first_of
from corral.system.files import sync_directory
from corral.wire.channels import channel_options
from corral.wire.client_streams import ClientStream, StreamChannel
from corral.wire.frames import read_frame
from corral.wire.transfer import CHUNK, CREDIT, EPOCH_KEY, SESSION_KEY, CreditWindow, Regrant
from corral.wire.v1.data_pb2 import (
    Credit,
    DataChunk,
    FetchMessage,
    FetchOpen,
    PushAccepted,
    PushMessage,
    PushOpen,
    PushReply,
)
from corral.wire.v1.data_pb2_grpc import DataServiceStub

_STALL_SECONDS: Final = 30.0
_HEX: Final = frozenset("0123456789abcdef")
_USELESS_PART: Final = frozenset({Code.INVALID_FIELD, Code.ARTIFACT_DIGEST_MISMATCH})
_log = structlog.get_logger("corral.daemon.link")

Source = Callable[[int], AsyncGenerator[bytes, None]]
"""The bytes of a push from an offset on."""
Expect = Callable[[int], Awaitable[None]]
"""Receives the minimum size of a file before the file grows to it; an exception it raises ends the transfer."""


class DataChannel:
    """Fetches and pushes for one session. Use as `async with`."""

    def __init__(self, connection: LinkConnection) -> None:
        self._address = connection.address
        self._metadata = (
            (SESSION_KEY, connection.ack.session_id),
            (EPOCH_KEY, str(connection.ack.epoch)),
        )
        self._channel = grpc.aio.secure_channel(
            connection.address,
            connection.identity.channel_credentials(),
            options=channel_options(controller_host(connection.identity.cluster)),
        )
        self._stub = DataServiceStub(StreamChannel(self._channel))  # type: ignore[no-untyped-call]  # generated code

    async def __aenter__(self) -> DataChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def fetch(
        self, digest: str, target: pathlib.Path, *, expect: Expect | None = None, transfer_id: str = ""
    ) -> int:
        """Download a blob to `target`, or the file that is offered under `transfer_id`; returns its size. A partial file of an earlier attempt for this digest is
        resumed; the file appears under its name only once its digest was verified. A partial file that turns out not to
        be a prefix of this blob is deleted, and the download starts over."""
        if len(digest) != 64 or not _HEX.issuperset(digest):
            raise Rejected(Code.INVALID_FIELD, f"'{digest[:80]}' is no SHA-256 digest", field="digest")
        part = target.with_name(f"{target.name}.{digest[:16]}.part")
        resuming = part.exists() and part.stat().st_size > 0
        try:
            size = await self._fetch_part(digest, part, expect, transfer_id)
        except Rejected as error:
            if not resuming or error.code not in _USELESS_PART:
                raise
            _log.warning("blob_fetch.restarted", digest=digest, reason=str(error))
            part.unlink(missing_ok=True)
            size = await self._fetch_part(digest, part, expect, transfer_id)
        part.replace(target)
        await asyncio.to_thread(sync_directory, target.parent)
        return size

    async def _fetch_part(
        self, digest: str, part: pathlib.Path, expect: Expect | None, transfer_id: str
    ) -> int:
        """Complete this partial file, durably, and verify it; an empty or wrong one is deleted."""
        try:
            with part.open("ab") as file:
                hasher = await asyncio.to_thread(_hash_file, part)
                opening = FetchOpen(
                    kind="file" if transfer_id else "blob",
                    digest=digest,
                    offset=file.tell(),
                    credit=CREDIT,
                    transfer_id=transfer_id,
                )
                size = await self._receive(opening, file, hasher, expect)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
        except BaseException:
            if part.exists() and not part.stat().st_size:
                part.unlink()
            raise
        if hasher.hexdigest() != digest:
            part.unlink()
            raise Rejected(
                Code.ARTIFACT_DIGEST_MISMATCH,
                f"what {self._address} sent as {digest[:12]}… has digest {hasher.hexdigest()[:12]}…",
                hint="the transfer was thrown away; try again",
            )
        return size

    async def _receive(self, opening: FetchOpen, file: BinaryIO, hasher: Any, expect: Expect | None) -> int:
        async with contextlib.aclosing(self._chunks(opening)) as chunks:
            async for data in chunks:
                if expect is not None:
                    await expect(file.tell() + len(data))
                file.write(data)
                hasher.update(data)
        return file.tell()

    async def bundle(self, digests: Sequence[str], *, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """Blobs one after the other as one stream of bytes, from an offset into all of them together. NOT_FOUND when
        one of them is missing, and then nothing is sent. The receiver knows their sizes and checks their digests. Close
        it (`contextlib.aclosing`): that ends the transfer."""
        opening = FetchOpen(kind="bundle", digests=digests, offset=offset, credit=CREDIT)
        async with contextlib.aclosing(self._chunks(opening)) as chunks:
            async for data in chunks:
                yield data

    async def _chunks(self, opening: FetchOpen) -> AsyncGenerator[bytes, None]:
        """The complete byte stream that the controller sends for this request. The controller gets new credit only when
        the consumer comes back for more, which bounds the memory used."""
        offset, regrant = opening.offset, Regrant(opening.credit)
        call: ClientStream = self._stub.Fetch(metadata=self._metadata)
        try:
            await call.write(FetchMessage(open=opening))
            while isinstance(chunk := await _within(read_frame(call)), DataChunk):
                if chunk.offset != offset:
                    raise Rejected(Code.INVALID_FIELD, f"expected offset {offset}, got {chunk.offset}")
                offset += len(chunk.data)
                if chunk.data:
                    yield chunk.data
                if chunk.last:
                    return
                if grant := regrant.consumed(len(chunk.data)):
                    await call.write(FetchMessage(credit=Credit(bytes=grant)))
            raise await self._ending(call)
        finally:
            call.cancel()

    async def push(self, transfer_id: str, path: pathlib.Path) -> str:
        """Upload a file that the controller expects, from the offset up to which the controller has it; returns its
        digest once it is stored there."""
        hasher, size = await asyncio.to_thread(_hash_file, path), path.stat().st_size
        opening = PushOpen(transfer_id=transfer_id, digest=hasher.hexdigest(), size_bytes=size)
        return await self._push(opening, lambda offset: _blocks(path, offset))

    async def push_part(
        self, transfer_id: str, file: int, *, digest: str, offset: int, size: int, left_out: int = 0
    ) -> str:
        """Upload a part of an open file whose digest is known. TRANSFER_INTERRUPTED when the file has become shorter.
        `left_out`: how many entries an archive lacks."""
        opening = PushOpen(transfer_id=transfer_id, digest=digest, size_bytes=size, left_out=left_out)
        return await self._push(opening, lambda start: _part_blocks(file, offset + start, size - start))

    async def push_bytes(self, transfer_id: str, content: bytes) -> str:
        """Like `push`, for bytes in memory; the controller checks their digest as it does a file's."""
        digest = hashlib.sha256(content).hexdigest()
        opening = PushOpen(transfer_id=transfer_id, digest=digest, size_bytes=len(content))
        return await self._push(opening, lambda offset: _slices(content, offset))

    async def _push(self, opening: PushOpen, source: Source) -> str:
        call: ClientStream = self._stub.Push(metadata=self._metadata)
        try:
            await call.write(PushMessage(open=opening))
            first = await _within(read_frame(call))
            if not isinstance(first, PushReply):
                raise await self._ending(call)
            start = first.accepted.offset
            if not 0 <= start <= opening.size_bytes:
                raise Rejected(
                    Code.INVALID_FIELD,
                    f"{self._address} wants to go on at {start} of {opening.size_bytes} bytes",
                )
            return await self._supply(call, opening, source, first.accepted)
        finally:
            call.cancel()

    async def _supply(
        self, call: ClientStream, opening: PushOpen, source: Source, accepted: PushAccepted
    ) -> str:
        """Send as credit comes in; returns the digest once everything is stored."""
        window = CreditWindow(accepted.credit)
        unsent: asyncio.Future[CorralError] = asyncio.get_running_loop().create_future()

        async def send() -> None:
            try:
                await self._send(call, source, accepted.offset, window)
            except CorralError as error:  # of the source: then nothing more will be sent
                unsent.set_result(error)

        async with Tasks() as tasks:
            tasks.spawn(send(), name=f"data/push/{opening.transfer_id}", awaited=True)
            try:
                while isinstance(reply := await self._reply(call, unsent), PushReply):
                    if reply.WhichOneof("payload") == "stored":
                        return reply.stored.digest
                    window.grant(reply.credit.bytes)
                raise await self._ending(call)
            finally:
                window.close()

    @staticmethod
    async def _reply(call: ClientStream, unsent: asyncio.Future[CorralError]) -> Any:
        """The next frame; the error of a source that failed."""
        read, failed = await _within(first_of(read_frame(call), unsent, name="data/reply"))
        if read is None:
            raise failed.result()
        return read.result()

    @staticmethod
    async def _send(call: ClientStream, source: Source, offset: int, window: CreditWindow) -> None:
        async with contextlib.aclosing(source(offset)) as blocks:  # a file is closed when the push is over
            async for block in blocks:
                view = memoryview(block)
                while view:
                    room = await window.take(len(view))
                    if not room:
                        return
                    chunk = DataChunk(offset=offset, data=bytes(view[:room]))
                    if not await call.write(PushMessage(chunk=chunk)):
                        return
                    offset += room
                    view = view[room:]

    async def _ending(self, call: ClientStream) -> CorralError:
        """Why the call ended without the expected result."""
        reason = await _within(call.ending(peer=self._address))
        return reason or Retryable(Code.TRANSFER_INTERRUPTED, f"{self._address} ended the transfer early")


async def _within(waiting: Any) -> Any:
    """Await with a deadline, as every outward call must: a transfer that stalls counts as ended."""
    try:
        async with asyncio.timeout(_STALL_SECONDS):
            return await waiting
    except TimeoutError:
        raise Retryable(Code.TIMEOUT, f"the transfer stalled for {_STALL_SECONDS:g} s") from None


async def _blocks(path: pathlib.Path, offset: int) -> AsyncGenerator[bytes, None]:
    with path.open("rb") as file:
        file.seek(offset)
        while block := await asyncio.to_thread(file.read, CHUNK):
            yield block


async def _part_blocks(file: int, offset: int, left: int) -> AsyncGenerator[bytes, None]:
    while left:
        block = await asyncio.to_thread(os.pread, file, min(CHUNK, left), offset)
        if not block:
            raise Retryable(
                Code.TRANSFER_INTERRUPTED, "the file became shorter while it was sent", hint="try again"
            )
        yield block
        offset += len(block)
        left -= len(block)


async def _slices(content: bytes, offset: int) -> AsyncGenerator[bytes, None]:
    for start in range(offset, len(content), CHUNK):
        yield content[start : start + CHUNK]


def _hash_file(path: pathlib.Path) -> Any:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
