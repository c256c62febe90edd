"""Bulk data from daemons: only expected uploads are accepted, resumable by offset.

Small answers stay in memory, and files of instances are passed on as they come. Anything else is collected in a file until
it is complete; only then, and only
with the announced digest, does it become a blob. An interrupted transfer resumes where it stopped, within one
term.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import pathlib
import shutil
from collections.abc import AsyncIterator, Iterator
from typing import Any, BinaryIO

import msgspec

from corral.controller.sessions.fetches import within
from corral.controller.sessions.incoming_streams import IncomingStream
from corral.domain.ids import NodeId
from corral.errors import Code, Rejected, Retryable
from corral.store.digests import mismatch
from corral.store.port import BlobEngine, BlobInfo
from corral.system.files import make_directory
from corral.wire.frames import read_frame
from corral.wire.transfer import CHUNK, CREDIT, Regrant
from corral.wire.v1.data_pb2 import Credit, PushAccepted, PushMessage, PushOpen, PushReply, PushStored


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that the controller requested from a node."""

    node_id: NodeId
    max_bytes: int
    stored: asyncio.Future[BlobInfo] | None = None
    """Set for an upload that becomes a blob."""
    held: asyncio.Future[bytes] | None = None
    """Set for an upload that stays in memory."""
    filed: asyncio.Future[pathlib.Path] | None = None
    """Set for an upload that stays a file."""
    stream: IncomingStream | None = None
    """Set for an upload that is passed on as it comes."""
    receiving: asyncio.Lock


class Uploads:
    """Receives expected uploads. Use as a context manager: partial files are removed with the term."""

    def __init__(self, blobs: BlobEngine, *, directory: pathlib.Path) -> None:
        self._blobs = blobs
        self._directory = directory
        self._expected: dict[str, Expected] = {}
        self._parts: dict[str, pathlib.Path] = {}
        """Partial files of uploads that stay files."""

    def __enter__(self) -> Uploads:
        shutil.rmtree(self._directory, ignore_errors=True)
        make_directory(self._directory)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def expect(self, transfer_id: str, *, node_id: NodeId, max_bytes: int) -> asyncio.Future[BlobInfo]:
        """Allow this node one upload; the future holds the blob once it is stored and verified."""
        stored: asyncio.Future[BlobInfo] = asyncio.get_running_loop().create_future()
        self._expected[transfer_id] = Expected(
            node_id=node_id, max_bytes=max_bytes, stored=stored, receiving=asyncio.Lock()
        )
        stored.add_done_callback(lambda _: self._expected.pop(transfer_id, None))
        return stored

    def expect_bytes(self, transfer_id: str, *, node_id: NodeId, max_bytes: int) -> asyncio.Future[bytes]:
        """Allow this node one small upload that is kept in memory only; the future holds it once it is
        complete and verified. When the future ends, by a result or otherwise, the permission ends."""
        held: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._expected[transfer_id] = Expected(
            node_id=node_id, max_bytes=max_bytes, held=held, receiving=asyncio.Lock()
        )
        held.add_done_callback(lambda _: self._expected.pop(transfer_id, None))
        return held

    def expect_file(
        self, transfer_id: str, *, node_id: NodeId, max_bytes: int
    ) -> asyncio.Future[pathlib.Path]:
        """Allow this node one upload that stays a file; the future holds its path once it is complete and
        verified, and the awaiting caller removes the file. Ending the future in another way ends the
        permission, and the partial file is removed."""
        filed: asyncio.Future[pathlib.Path] = asyncio.get_running_loop().create_future()
        self._expected[transfer_id] = Expected(
            node_id=node_id, max_bytes=max_bytes, filed=filed, receiving=asyncio.Lock()
        )

        def over(ended: asyncio.Future[pathlib.Path]) -> None:
            self._expected.pop(transfer_id, None)
            part = self._parts.pop(transfer_id, None)
            if part is not None and (ended.cancelled() or ended.exception() is not None):
                part.unlink(missing_ok=True)

        filed.add_done_callback(over)
        return filed

    @contextlib.contextmanager
    def expect_stream(self, transfer_id: str, *, node_id: NodeId, max_bytes: int) -> Iterator[IncomingStream]:
        """Allow this node one upload that is read as it comes, as long as this lasts; it cannot be resumed."""
        stream = IncomingStream()
        self._expected[transfer_id] = Expected(
            node_id=node_id, max_bytes=max_bytes, stream=stream, receiving=asyncio.Lock()
        )
        try:
            yield stream
        finally:
            del self._expected[transfer_id]
            stream.close()

    async def push(self, context: Any, node_id: NodeId) -> None:
        """Receive one attempt at an expected upload, from where the last one stopped."""
        first = await within(read_frame(context))
        if not isinstance(first, PushMessage) or first.WhichOneof("payload") != "open":
            raise Rejected(Code.BAD_REQUEST, "a push begins with PushOpen")
        opening = first.open
        expected = self._check(opening, node_id)
        if expected.receiving.locked():
            raise Retryable(Code.CONFLICT, f"transfer '{opening.transfer_id[:80]}' is under way already")
        async with expected.receiving:
            if expected.stream is not None:
                info = await _pass_on(context, opening, expected.stream)
            elif expected.held is not None:
                info = await _hold(context, opening, expected.held)
            elif expected.filed is not None:
                info = await self._file(context, opening, expected.filed)
            else:
                info = await self._receive(context, opening)
        if expected.stored is not None and not expected.stored.done():
            expected.stored.set_result(info)
        await within(context.write(PushReply(stored=PushStored(digest=info.digest, size_bytes=info.size))))

    def _check(self, opening: PushOpen, node_id: NodeId) -> Expected:
        expected = self._expected.get(opening.transfer_id)
        if expected is None or expected.node_id != node_id:
            raise Rejected(Code.NOT_FOUND, f"nobody expects transfer '{opening.transfer_id[:80]}'")
        if not 0 <= opening.size_bytes <= expected.max_bytes:
            raise Rejected(
                Code.BODY_TOO_LARGE,
                f"the transfer has {opening.size_bytes} bytes, at most {expected.max_bytes} are expected",
                field="size_bytes",
            )
        return expected

    def _place(self, opening: PushOpen) -> pathlib.Path:
        name = hashlib.sha256(f"{opening.transfer_id}\0{opening.digest}".encode()).hexdigest()
        return self._directory / name

    async def _part(self, context: Any, opening: PushOpen) -> pathlib.Path:
        """Receive the missing part of an upload; returns the complete file."""
        part = self._place(opening)
        with part.open("ab") as file:
            if file.tell() > opening.size_bytes:
                file.truncate(0)
            await _append(context, opening, file)
        return part

    async def _file(self, context: Any, opening: PushOpen, filed: asyncio.Future[pathlib.Path]) -> BlobInfo:
        part = self._place(opening)
        before = self._parts.get(opening.transfer_id, part)
        if before != part:  # the announced content changed: the earlier partial file is of no use
            before.unlink(missing_ok=True)
        self._parts[opening.transfer_id] = part
        await self._part(context, opening)
        found = "" if filed.done() else await asyncio.to_thread(_digest_of, part)
        if filed.done():
            part.unlink(missing_ok=True)
            raise Retryable(Code.TRANSFER_INTERRUPTED, "nobody waits for this transfer any more")
        if found != opening.digest:
            part.unlink()
            raise mismatch(expect=opening.digest, found=found)
        filed.set_result(part)
        return BlobInfo(digest=found, size=opening.size_bytes)

    async def _receive(self, context: Any, opening: PushOpen) -> BlobInfo:
        part = await self._part(context, opening)
        try:
            return await self._blobs.put_blob(_blocks(part), expect=opening.digest)
        finally:
            part.unlink()


async def _pass_on(context: Any, opening: PushOpen, stream: IncomingStream) -> BlobInfo:
    if stream.head.done():
        raise Retryable(Code.TRANSFER_INTERRUPTED, "this transfer was begun already, and cannot be resumed")
    return await stream.receive(context, opening)


async def _hold(context: Any, opening: PushOpen, held: asyncio.Future[bytes]) -> BlobInfo:
    """Receive an upload into memory, from its beginning."""
    file = io.BytesIO()
    await _append(context, opening, file)
    data = file.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    if digest != opening.digest:
        raise mismatch(expect=opening.digest, found=digest)
    if not held.done():
        held.set_result(data)
    return BlobInfo(digest=digest, size=len(data))


async def _append(context: Any, opening: PushOpen, file: BinaryIO) -> None:
    """Append the missing part, exactly as many bytes as were announced, returning credit as it is written."""
    file.seek(0, 2)
    received = file.tell()
    regrant = Regrant(CREDIT)
    await within(context.write(PushReply(accepted=PushAccepted(offset=received, credit=CREDIT))))
    while received < opening.size_bytes:
        message = await within(read_frame(context))
        if not isinstance(message, PushMessage):
            raise Retryable(Code.TRANSFER_INTERRUPTED, f"the upload ended after {received} bytes")
        data = message.chunk.data
        if message.chunk.offset != received or not data or received + len(data) > opening.size_bytes:
            raise Rejected(Code.INVALID_FIELD, f"unexpected chunk at {message.chunk.offset}", field="offset")
        file.write(data)
        received += len(data)
        if (grant := regrant.consumed(len(data))) > 0:
            await within(context.write(PushReply(credit=Credit(bytes=grant))))


def _digest_of(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _blocks(path: pathlib.Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while block := await asyncio.to_thread(file.read, CHUNK):
            yield block
