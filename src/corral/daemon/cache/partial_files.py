"""Partial files of the cache: transfers and downloads that grow, can be resumed, and count only when complete.

Everything here blocks and belongs into worker threads; one partial file is used by one thread at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Sequence
from typing import IO, Any, Final

from corral.daemon.cache.sealed_files import SealedFiles
from corral.domain.templates import PIECE, TemplateFile
from corral.errors import Code, Retryable

_BLOCK: Final = 1024 * 1024


def part_of(parts: pathlib.Path, digest: str) -> pathlib.Path:
    return parts / f"{digest}.part"


class SmallFiles:
    """The files of one bundle, one after the other, each complete in one blob."""

    def __init__(self, files: Sequence[TemplateFile], *, parts: pathlib.Path, contents: SealedFiles) -> None:
        self._files = list(files)
        self._parts = parts
        self._contents = contents
        self._open: IO[bytes] | None = None
        self._hasher: Any = hashlib.sha256()
        self._whole: list[TemplateFile] = []
        self.stored = 0
        """Bytes of the files that are complete by now."""

    def begin(self) -> int:
        """Open the first one; a partial file of an earlier attempt gives the offset to continue at."""
        return self._next()

    def take(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._open is None:
                raise _too_much()
            room = min(len(view), self._files[0].size - self._open.tell())
            self._open.write(view[:room])
            self._hasher.update(view[:room])
            view = view[room:]
            self._end_of_file()
        self._admit()

    def end(self) -> None:
        """Finish; raises when something is missing."""
        if self._files:
            raise Retryable(Code.TRANSFER_INTERRUPTED, "the controller sent less than it was asked for")

    def close(self) -> None:
        """Keep the partial file for the next attempt. Idempotent."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _next(self) -> int:
        part = part_of(self._parts, self._files[0].digest)
        self._open = part.open("a+b")
        if self._open.tell() >= self._files[0].size:
            self._open.truncate(0)
        self._open.seek(0)
        self._hasher = hashlib.file_digest(self._open, "sha256")
        return self._open.tell()

    def _end_of_file(self) -> None:
        """If the current file is complete, verify it and go on with the next."""
        assert self._open is not None
        file = self._files[0]
        if self._open.tell() < file.size:
            return
        self.close()
        part = part_of(self._parts, file.digest)
        if self._hasher.hexdigest() != file.digest:
            part.unlink()
            self._admit()
            raise _wrong(file)
        self._whole.append(self._files.pop(0))
        if self._files:
            self._next()

    def _admit(self) -> None:
        """Store the complete files as contents."""
        whole, self._whole = self._whole, []
        self._contents.admit_all([(part_of(self._parts, file.digest), file.digest) for file in whole])
        self.stored += sum(file.size for file in whole)


class LargeFile:
    """A large content assembled from its pieces, in order. Each piece is verified when it is complete, the content when
    all are. The partial file of an earlier attempt is verified and used."""

    def __init__(self, file: TemplateFile, *, parts: pathlib.Path, contents: SealedFiles) -> None:
        self._file = file
        self._part = part_of(parts, file.digest)
        self._contents = contents
        self._open: IO[bytes] | None = None
        self._whole: Any = hashlib.sha256()
        self._whole_before: Any = hashlib.sha256()
        """The state at the beginning of the current piece."""
        self._piece: Any = hashlib.sha256()
        self.position = 0

    def begin(self) -> None:
        """Open the partial file and keep the correct part of it: complete pieces, and the beginning of the next."""
        self._open = self._part.open("a+b")
        self._open.seek(0)
        with contextlib.suppress(Retryable):  # it is truncated at the first wrong piece
            while self.position < self._file.size and (block := self._open.read(_BLOCK)):
                self._count(memoryview(block)[: self._file.size - self.position])
        self._open.truncate(self.position)
        self._open.seek(self.position)

    @property
    def piece(self) -> int:
        """The current piece."""
        return self.position // PIECE

    @property
    def within(self) -> int:
        """How many bytes of it are here."""
        return self.position % PIECE

    @property
    def complete(self) -> bool:
        return self.position == self._file.size

    def take(self, data: bytes | memoryview) -> None:
        assert self._open is not None
        if len(data) > self._file.size - self.position:
            raise _too_much()
        self._open.write(data)
        self._count(memoryview(data))

    def copy(self, source: pathlib.Path, offset: int) -> bool:
        """Take the next piece from a file that has it; False, and nothing taken, when it does not."""
        size = min(PIECE, self._file.size - self.position)
        try:
            with source.open("rb") as reading:
                data = os.pread(reading.fileno(), size, offset)
        except OSError:
            return False
        if hashlib.sha256(data).hexdigest() != self._file.pieces[self.piece]:
            return False
        self.take(data)
        return True

    def finish(self) -> None:
        self.close()
        if self._whole.hexdigest() != self._file.digest:
            self._part.unlink()
            raise _wrong(self._file)
        self._contents.admit(self._part, self._file.digest)

    def close(self) -> None:
        """Keep the partial file for the next attempt. Idempotent."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _count(self, view: memoryview) -> None:
        while view:
            room = min(len(view), PIECE - self.within)
            block, view = view[:room], view[room:]
            index = self.piece
            self._piece.update(block)
            self._whole.update(block)
            self.position += room
            if self.within and not self.complete:
                continue
            if self._piece.hexdigest() != self._file.pieces[index]:
                self._back_to(index)
                raise _wrong(self._file)
            self._piece, self._whole_before = hashlib.sha256(), self._whole.copy()

    def _back_to(self, index: int) -> None:
        """Drop the wrong piece; those before it stay."""
        assert self._open is not None
        self.position = index * PIECE
        self._piece, self._whole = hashlib.sha256(), self._whole_before.copy()
        self._open.truncate(self.position)
        self._open.seek(self.position)


def _too_much() -> Retryable:
    return Retryable(Code.ARTIFACT_DIGEST_MISMATCH, "the controller sent more than it was asked for")


def _wrong(file: TemplateFile) -> Retryable:
    return Retryable(
        Code.ARTIFACT_DIGEST_MISMATCH,
        f"what the controller sent for '{file.path}' has another digest",
        hint="it was thrown away; it is tried again",
    )


class PartFile:
    """`target` with the suffix `.part`. The rest of an earlier attempt is kept until it turns out wrong."""

    def __init__(self, target: pathlib.Path) -> None:
        self._target = target
        self._path = target.with_name(f"{target.name}.part")
        self._file: IO[bytes] | None = None
        self._hasher: Any = hashlib.sha256()
        self.size = 0

    def open(self) -> None:
        self._file = self._path.open("a+b")
        self._file.seek(0)
        self._hasher = hashlib.file_digest(self._file, "sha256")
        self.size = self._file.tell()

    def clear(self) -> None:
        assert self._file is not None
        self._file.truncate(0)
        self._file.seek(0)
        self._hasher, self.size = hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)
        self._hasher.update(data)
        self.size += len(data)

    @property
    def digest(self) -> str:
        return str(self._hasher.hexdigest())

    def finish(self) -> None:
        """The file is complete and verified: rename it, with its content durable."""
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        self._path.replace(self._target)

    def discard(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Keep it for the next attempt, unless it is empty. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if not self.size:
                self._path.unlink(missing_ok=True)
