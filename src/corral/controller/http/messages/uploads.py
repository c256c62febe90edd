"""Uploads: bodies that are read in pieces, never whole in memory and never faster than they are stored.

Of a form with one large file, the file is written to disk and the small parts are kept in memory.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import pathlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Final, TypeVar

import msgspec

from corral.controller.http.messages.multipart import FormReader, PartBegins, PartData, boundary_of, refused
from corral.controller.http.messages.request import BodyPace, HttpRequest, too_large
from corral.controller.modules.upload_files import create_upload
from corral.errors import Code, Rejected, Retryable, unknown_choice
from corral.system.files import free_bytes
from corral.system.threads import to_end

NOTHING_STORED: Final = "nothing was stored"


T = TypeVar("T")
FILE: Final = "file"
RAW_TYPES: Final = ("application/zip", "application/octet-stream", "application/x-zip-compressed")
HEADS: Final = 256 * 1024
"""Bytes that a form may need beside the content of its parts."""
_HOP: Final = 1024 * 1024
_RESERVE: Final = 16 * 1024 * 1024
"""Bytes that uploads leave free: the store lies on the same disk."""


class UploadBody:
    """A body in pieces. What is not read yet waits in the caller's socket."""

    def __init__(
        self,
        request: HttpRequest,
        *,
        limit: int,
        pace: BodyPace,
        digested: bool,
        head_start_seconds: float = 60.0,
    ) -> None:
        self._request = request
        self._limit = limit
        self._pace = pace
        self._head_start = head_start_seconds
        self._digest = hashlib.sha256() if digested else None
        self._more = True

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
        pace = self._pace
        piece, self._more = await self._request.next_piece(pace, limit=self._limit)
        if pace.waited > self._head_start + pace.size / pace.SLOWEST:
            raise Rejected(
                Code.BAD_REQUEST,
                f"the body was given up: it comes with less than {pace.SLOWEST} bytes a second",
                hint="send it again",
            )
        if self._digest is not None:
            self._digest.update(piece)
        return piece


class SmallPart(msgspec.Struct, frozen=True, kw_only=True):
    filename: str
    content: bytes


class ReceivedForm(msgspec.Struct, frozen=True, kw_only=True):
    """A form on disk. `file` is removed with the form; a handler that keeps it copies it."""

    file: pathlib.Path
    filename: str
    size: int
    sha256: str
    parts: dict[str, SmallPart]

    @property
    def digest(self) -> bytes:
        """Of what was sent, however it was wrapped: a repetition has another boundary."""
        fields = [(name, part.filename, part.content) for name, part in sorted(self.parts.items())]
        return hashlib.sha256(msgspec.msgpack.encode((self.sha256, fields))).digest()


class _Spool:
    """A file that grows by whole MiBs, each written and digested on a thread."""

    def __init__(self, directory: pathlib.Path, *, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self._gathered = bytearray()
        self._digest = hashlib.sha256()
        self._undo = contextlib.ExitStack()
        self._fd = -1
        self.path = directory
        self.size = 0

    async def open(self) -> None:
        await self._on_disk(self._create)

    async def add(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self._limit:
            raise too_large(self._limit)
        self._gathered += data
        if len(self._gathered) >= _HOP:
            await self._flush()

    async def finish(self) -> str:
        """All of it is in the file; its digest."""
        await self._flush()
        return self._digest.hexdigest()

    async def close(self) -> None:
        await to_end(self._undo.close)  # to free gigabytes takes its time

    async def _flush(self) -> None:
        block = bytes(self._gathered)
        self._gathered.clear()
        await self._on_disk(functools.partial(self._write, block))

    def _create(self) -> None:
        self._fd, self.path = create_upload(self._directory)
        self._undo.callback(os.close, self._fd)
        self._undo.callback(self.path.unlink, missing_ok=True)

    def _write(self, block: bytes) -> None:
        """Write the whole block: a disk that is nearly full takes a part, without an error."""
        self._digest.update(block)
        if free_bytes(self._directory) < _RESERVE + len(block):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._directory))
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    async def _on_disk(self, work: Callable[[], T]) -> T:
        try:
            return await to_end(work)
        except OSError as error:
            raise Retryable(
                Code.DISK_FULL,
                f"the upload cannot be kept in {self._directory}: {error.strerror or error}",
                hint="make room on the controller's disk and send it again",
                retry_after=30.0,
            ) from error


class _Intake:
    """Sorts the pieces of a form into the file and the small parts."""

    def __init__(self, spool: _Spool, small: Mapping[str, int]) -> None:
        self._spool = spool
        self._small = small
        self._current = ""
        self._limit = 0
        self._gathered = bytearray()
        self.filenames: dict[str, str] = {}
        self.contents: dict[str, bytes] = {}

    def begin(self, part: PartBegins) -> None:
        if part.name != FILE and part.name not in self._small:
            raise unknown_choice(
                "part", part.name, [FILE, *self._small], code=Code.UNKNOWN_FIELD, field=part.name
            )
        if part.name in self.filenames:
            raise refused(f"it has two parts '{part.name}'")
        self.filenames[part.name] = part.filename
        self._current = part.name
        self._limit = self._small.get(part.name, 0)
        self._gathered.clear()

    async def add(self, content: bytes) -> None:
        if self._current == FILE:
            await self._spool.add(content)
            return
        self._gathered += content
        if len(self._gathered) > self._limit:
            raise Rejected(
                Code.BODY_TOO_LARGE,
                f"part '{self._current}' is larger than {self._limit} bytes",
                field=self._current,
            )

    def end(self) -> None:
        if self._current != FILE:
            self.contents[self._current] = bytes(self._gathered)


@contextlib.asynccontextmanager
async def received_form(
    source: AsyncIterator[bytes],
    *,
    content_type: str | None,
    directory: pathlib.Path,
    limit: int,
    small: Mapping[str, int],
) -> AsyncIterator[ReceivedForm]:
    """Take a form in, or a bare file. `small` names the other parts and how large each may be. `content_type` None: it is a
    bare file, and may be empty.

    BAD_REQUEST, UNKNOWN_FIELD, MISSING_FIELD, BODY_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, DISK_FULL."""
    boundary = require_form(content_type) if content_type is not None else None
    spool = _Spool(directory, limit=limit)
    try:
        await spool.open()
        intake = _Intake(spool, small)
        if boundary is None:
            intake.begin(PartBegins(name=FILE))
            async for piece in source:
                await intake.add(piece)
        else:
            await _read(FormReader(boundary), source, intake)
        if not spool.size and content_type is not None:
            raise Rejected(
                Code.MISSING_FIELD, "no file was sent", hint="send it as the part 'file'", field=FILE
            )
        yield ReceivedForm(
            file=spool.path,
            filename=intake.filenames.get(FILE, ""),
            size=spool.size,
            sha256=await spool.finish(),
            parts={
                name: SmallPart(filename=intake.filenames[name], content=content)
                for name, content in intake.contents.items()
            },
        )
    finally:
        await spool.close()


async def _read(reader: FormReader, source: AsyncIterator[bytes], intake: _Intake) -> None:
    async for data in source:
        for piece in reader.feed(data):
            match piece:
                case PartBegins():
                    intake.begin(piece)
                case PartData():
                    await intake.add(piece.content)
                case _:
                    intake.end()
    reader.close()


def require_form(content_type: str) -> str | None:
    """The boundary of a form, None for a bare file; UNSUPPORTED_MEDIA_TYPE for anything else."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return boundary_of(content_type)
    if kind in RAW_TYPES:
        return None
    raise Rejected(
        Code.UNSUPPORTED_MEDIA_TYPE,
        f"cannot take a body of type '{content_type[:80]}'"
        if content_type
        else "the body has no Content-Type",
        hint="send multipart/form-data with a part 'file', or the file itself as application/zip",
    )
