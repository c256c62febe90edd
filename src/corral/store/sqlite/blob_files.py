"""The files behind the embedded store's blobs: stamped, named and dropped under one lock.

A blob's stamp is its file's modification time. Naming, stamping and dropping a blob all need the lock, so the
comparison of a stamp and the deletion are one step, and a stamp given in between is never lost. Everything
here blocks; the engine calls it on its workers.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import hashlib
import os
import pathlib
import shutil
import tempfile
import threading
from collections.abc import Collection, Generator, Iterator, Sequence
from typing import IO, Final

from corral.store.digests import no_such_blob
from corral.store.port import BlobInfo, BlobStamp
from corral.store.sqlite.stamps import from_microseconds, to_microseconds
from corral.system.files import sync_directory

_INCOMING: Final = ".incoming"
_BLOCK: Final = 256 * 1024
_FEW: Final = 8
"""Up to so many files are flushed one by one; more of them by a flush of the file system."""
_TURN: Final = 256
"""Blobs stamped or dropped before the lock is released for a moment."""


class BlobFiles:
    """`<first two of the digest>/<digest>` in a directory, complete or missing."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._root = str(directory)
        self.incoming = directory / _INCOMING
        self._lock = threading.Lock()
        self._homes: set[str] = set()

    def prepare(self) -> None:
        """Make the directories; half-written files of an earlier process are removed."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        shutil.rmtree(self.incoming, ignore_errors=True)
        self.incoming.mkdir(mode=0o700, exist_ok=True)

    def path(self, digest: str) -> pathlib.Path:
        return self._directory / digest[:2] / digest

    def place(self, digest: str) -> str:
        """The same path as text, which is quicker."""
        return f"{self._root}/{digest[:2]}/{digest}"

    def size(self, digest: str) -> int | None:
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            return None

    def sizes(self, digests: Collection[str]) -> dict[str, int]:
        found = ((digest, self.size(digest)) for digest in digests)
        return {digest: size for digest, size in found if size is not None}

    def keep(self, source: pathlib.Path, digest: str, *, at: dt.datetime) -> None:
        """Give a flushed file its name, durably and stamped. It replaces an identical blob: so a concurrent
        naming or drop of that one does not matter."""
        self._make_home(digest)
        with self._lock:
            _stamp(source, to_microseconds(at))
            source.rename(self.path(digest))
        sync_directory(self.path(digest).parent)

    def keep_all(self, contents: Sequence[bytes], *, at: dt.datetime) -> list[BlobInfo]:
        """Store many: all contents are on disk before the first gets its name."""
        infos = [BlobInfo(digest=hashlib.sha256(each).hexdigest(), size=len(each)) for each in contents]
        missing = self.touch({info.digest for info in infos}, at=at)
        fresh = {
            info.digest: each for info, each in zip(infos, contents, strict=True) if info.digest in missing
        }
        if fresh:
            aside = pathlib.Path(tempfile.mkdtemp(dir=self.incoming))
            try:
                self._keep_fresh(aside, fresh, at=at)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        return infos

    def _keep_fresh(self, aside: pathlib.Path, fresh: dict[str, bytes], *, at: dt.datetime) -> None:
        single = len(fresh) <= _FEW
        for digest, content in fresh.items():
            self._make_home(digest)
            _write(aside / digest, content, flush=single)
        if not single:
            _flush_file_system(self._directory)
        with self._lock:
            for digest in fresh:
                _stamp(aside / digest, to_microseconds(at))
                (aside / digest).rename(self.path(digest))
        if single:
            for home in {self.path(digest).parent for digest in fresh}:
                sync_directory(home)
        else:
            _flush_file_system(self._directory)

    def touch(self, digests: Collection[str], *, at: dt.datetime) -> set[str]:
        """Stamp, never back in time; returns the missing ones."""
        stamp = to_microseconds(at)
        missing = set()
        for turn in _turns(sorted(digests)):
            with self._lock:
                missing |= {digest for digest in turn if not _raise_stamp(self.place(digest), stamp)}
        return missing

    def drop(self, digests: Collection[str], *, before: dt.datetime) -> int:
        """Delete the blobs stamped before that moment."""
        limit = to_microseconds(before)
        dropped: list[pathlib.Path] = []
        for turn in _turns(sorted(digests)):
            with self._lock:
                dropped += [path for digest in turn if _unlink_older(path := self.path(digest), limit=limit)]
        # Not flushed: a blob that reappears after a power cut is collected once more.
        return len(dropped)

    def delete(self, digest: str) -> bool:
        path = self.path(digest)
        try:
            with self._lock:
                path.unlink()
        except FileNotFoundError:
            return False
        sync_directory(path.parent)
        return True

    def stamps(self, *, after: str, limit: int) -> list[BlobStamp]:
        found: list[BlobStamp] = []
        for home in sorted(self._directory.glob("[0-9a-f][0-9a-f]")):
            if home.name < after[:2]:
                continue
            for path in sorted(path for path in home.iterdir() if path.name > after):
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                at = from_microseconds(status.st_mtime_ns // 1000)
                found.append(BlobStamp(digest=path.name, size=status.st_size, at=at))
                if len(found) == limit:
                    return found
        return found

    def _make_home(self, digest: str) -> None:
        """Make the directory durably, before a blob relies on its name."""
        home = self.path(digest).parent
        with self._lock:
            if home.name not in self._homes:
                home.mkdir(mode=0o700, exist_ok=True)
                sync_directory(self._directory)
                self._homes.add(home.name)


class BlobUpload:
    """A blob being uploaded: a private file that becomes the blob by a rename, or is removed.

    The lock is for a cancelled caller, whose last block is still being written on one worker while another
    already discards the file.
    """

    def __init__(self, files: BlobFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._hash = hashlib.sha256()
        self._over = False
        self.size = 0

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def write(self, block: bytes) -> None:
        with self._lock:
            if self._over:
                return
            if self._file is None:
                self._file = tempfile.NamedTemporaryFile(dir=self._files.incoming, delete=False)  # noqa: SIM115
            self._file.write(block)
            self._hash.update(block)
            self.size += len(block)

    def keep(self, at: dt.datetime) -> None:
        """Make the file the blob, durably: content first, then its name."""
        with self._lock:
            if self._file is None or self._over:
                return
            self._file.flush()
            os.fsync(self._file.fileno())
            self._files.keep(pathlib.Path(self._file.name), self.digest, at=at)

    def discard(self) -> None:
        with self._lock:
            self._over = True
            if self._file is not None:
                pathlib.Path(self._file.name).unlink(missing_ok=True)
                self._file.close()


class OpenBlob:
    """One blob from an offset on, opened by its first read; the lock is for a caller that was cancelled
    meanwhile."""

    def __init__(self, files: BlobFiles, digest: str, *, offset: int) -> None:
        self._path = files.path(digest)
        self._offset = offset
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._over = False

    def read(self, size: int) -> bytes:
        """Empty at the end, and when it was closed; FileNotFoundError where there is none."""
        with self._lock:
            if self._over:
                return b""
            if self._file is None:
                self._file = self._path.open("rb")
                self._file.seek(self._offset)
            return self._file.read(size)

    def close(self) -> None:
        with self._lock:
            self._over = True
            if self._file is not None:
                self._file.close()


class Reading:
    """Blobs one after the other as one stream; the lock is for a caller that was cancelled during a read."""

    def __init__(self, files: BlobFiles, digests: Sequence[str]) -> None:
        self._blocks = _blocks(files, digests)
        self._lock = threading.Lock()

    def next(self, size: int) -> bytes:
        """At least `size` bytes, fewer only at the end: a hop to a worker has a cost."""
        gathered = bytearray()
        with self._lock:
            for block in self._blocks:
                gathered += block
                if len(gathered) >= size:
                    break
        return bytes(gathered)

    def close(self) -> None:
        with self._lock:
            self._blocks.close()


def _blocks(files: BlobFiles, digests: Sequence[str]) -> Generator[bytes, None, None]:
    """Plain system calls: there may be tens of thousands of small ones."""
    for digest in digests:
        try:
            descriptor = os.open(files.place(digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise no_such_blob(digest) from None
        try:
            while block := os.read(descriptor, _BLOCK):
                yield block
                if len(block) < _BLOCK:
                    break  # the end of a file
        finally:
            os.close(descriptor)


def _turns(digests: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(digests), _TURN):
        yield digests[start : start + _TURN]


def _stamp(path: pathlib.Path | str, microseconds: int) -> None:
    os.utime(path, ns=(microseconds * 1000, microseconds * 1000))


def _raise_stamp(path: str, microseconds: int) -> bool:
    """False: there is no such file."""
    try:
        if os.stat(path).st_mtime_ns // 1000 < microseconds:  # noqa: PTH116 - quicker, see `place`
            _stamp(path, microseconds)
    except FileNotFoundError:
        return False
    return True


def _unlink_older(path: pathlib.Path, *, limit: int) -> bool:
    try:
        if path.stat().st_mtime_ns // 1000 >= limit:
            return False
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _write(path: pathlib.Path, content: bytes, *, flush: bool) -> None:
    with path.open("wb") as file:
        file.write(content)
        if flush:
            file.flush()
            os.fsync(file.fileno())


_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _flush_file_system(directory: pathlib.Path) -> None:
    """One flush for many files: `fsync` of each costs a journal commit of its own."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _LIBC.syncfs(descriptor) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(directory))
    finally:
        os.close(descriptor)
