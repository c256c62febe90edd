"""Blobs as files: `artifacts/<first two of the digest>/<digest>`, complete or not there at all."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import hashlib
import os
import pathlib
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from typing import IO, Final, TypeVar

from corral.store.digests import check_digest, mismatch, no_such_blob
from corral.store.port import BlobInfo, StoreUnavailable
from corral.system.files import sync_directory

T = TypeVar("T")

_INCOMING: Final = ".incoming"
_HOP: Final = 256 * 1024
"""How much is gathered before a hop to a worker: a hop costs about as much as hashing 64 KiB."""


class FileBlobs:
    """The `BlobEngine` of the embedded store. All file work runs on two threads of its own."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._incoming = directory / _INCOMING
        self._workers = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="corral/store/blob")

    async def open(self) -> None:
        """Make the directories; what an earlier process left half-written is removed."""
        await self._work(self._prepare)

    def close(self) -> None:
        """Wait for the workers; what is queued is run, for it may be what closes a file."""
        self._workers.shutdown(wait=True)

    async def put_blob(self, chunks: AsyncIterator[bytes], *, expect: str | None = None) -> BlobInfo:
        if expect is not None:
            check_digest(expect)
        upload = _Upload(self._incoming)
        try:
            gathered = bytearray()
            async for chunk in chunks:
                gathered += chunk
                if len(gathered) >= _HOP:
                    await self._work(functools.partial(upload.write, bytes(gathered)))
                    gathered.clear()
            await self._work(functools.partial(upload.write, bytes(gathered)))
            if expect is not None and upload.digest != expect:
                raise mismatch(expect=expect, found=upload.digest)
            await self._work(functools.partial(upload.keep, self._path(upload.digest)))
            return BlobInfo(digest=upload.digest, size=upload.size)
        finally:
            self._afterwards(upload.discard)

    async def blob_info(self, digest: str) -> BlobInfo | None:
        check_digest(digest)
        try:
            found = await self._work(self._path(digest).stat)
        except FileNotFoundError:
            return None
        return BlobInfo(digest=digest, size=found.st_size)

    async def read_blob(self, digest: str, *, offset: int = 0, chunk: int = 65536) -> AsyncIterator[bytes]:
        check_digest(digest)
        try:
            file: IO[bytes] = await self._work(lambda: self._path(digest).open("rb"))
        except FileNotFoundError:
            raise no_such_blob(digest) from None
        try:
            file.seek(offset)
            while block := await self._work(functools.partial(file.read, chunk)):
                yield block
        finally:
            self._afterwards(file.close)

    async def delete_blob(self, digest: str) -> bool:
        check_digest(digest)
        return await self._work(functools.partial(_delete, self._path(digest)))

    def _path(self, digest: str) -> pathlib.Path:
        return self._directory / digest[:2] / digest

    def _prepare(self) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._incoming.mkdir(mode=0o700, exist_ok=True)

    def _afterwards(self, work: Callable[[], None]) -> None:
        """Clean up on a worker without waiting: the caller may be a generator being closed."""
        try:
            self._workers.submit(work)
        except RuntimeError:  # closed: then no worker is left to do it
            work()

    async def _work(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._workers, work)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise StoreUnavailable(f"an artifact file failed: {error}") from error


class _Upload:
    """A blob on its way in: a private file that becomes the blob by a rename, or goes.

    The lock is for a cancelled caller, whose last block is still being written on one worker
    while another already discards the file.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
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
                self._file = tempfile.NamedTemporaryFile(dir=self._directory, delete=False)  # noqa: SIM115
            self._file.write(block)
            self._hash.update(block)
            self.size += len(block)

    def keep(self, path: pathlib.Path) -> None:
        """Make the file the blob, durably: content first, then its name."""
        with self._lock:
            if self._file is None or self._over:
                return
            self._file.flush()
            os.fsync(self._file.fileno())
            path.parent.mkdir(mode=0o700, exist_ok=True)
            sync_directory(path.parent.parent)
            pathlib.Path(self._file.name).rename(path)
            sync_directory(path.parent)

    def discard(self) -> None:
        with self._lock:
            self._over = True
            if self._file is not None:
                pathlib.Path(self._file.name).unlink(missing_ok=True)
                self._file.close()


def _delete(path: pathlib.Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_directory(path.parent)
    return True
