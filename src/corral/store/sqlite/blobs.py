"""Blobs as files: `artifacts/<first two of the digest>/<digest>`, complete or missing."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime as dt
import functools
import pathlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Final, TypeVar

from corral.store.digests import check_digest, check_digests, mismatch, no_such_blob
from corral.store.port import BlobInfo, BlobStamp
from corral.store.sqlite.blob_files import BlobFiles, BlobUpload, OpenBlob, Reading
from corral.store.store_errors import StoreUnavailable
from corral.system.clock import Clock, SystemClock

T = TypeVar("T")

_HOP: Final = 256 * 1024
"""Bytes gathered before a hop to a worker: a hop costs about as much as hashing 64 KiB."""


class FileBlobs:
    """The `BlobEngine` of the embedded store. All file work runs on two threads of its own."""

    def __init__(self, directory: pathlib.Path, *, clock: Clock | None = None) -> None:
        self._files = BlobFiles(directory)
        self._clock = clock or SystemClock()
        self._workers = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="corral/store/blob")

    async def open(self) -> None:
        """Make the directories; half-written files of an earlier process are removed."""
        await self._work(self._files.prepare)

    def close(self) -> None:
        """Wait for the workers; queued work is run, for it may close a file."""
        self._workers.shutdown(wait=True)

    async def put_blob(self, chunks: AsyncIterator[bytes], *, expect: str | None = None) -> BlobInfo:
        if expect is not None:
            check_digest(expect)
        upload = BlobUpload(self._files)
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
            await self._work(functools.partial(upload.keep, self._clock.now()))
            return BlobInfo(digest=upload.digest, size=upload.size)
        finally:
            self._afterwards(upload.discard)

    async def put_blobs(self, contents: Sequence[bytes]) -> list[BlobInfo]:
        return await self._work(lambda: self._files.keep_all(contents, at=self._clock.now()))

    async def blob_info(self, digest: str) -> BlobInfo | None:
        check_digest(digest)
        size = await self._work(functools.partial(self._files.size, digest))
        return None if size is None else BlobInfo(digest=digest, size=size)

    async def blob_sizes(self, digests: Collection[str]) -> dict[str, int]:
        check_digests(digests)
        return await self._work(functools.partial(self._files.sizes, digests))

    async def read_blob(self, digest: str, *, offset: int = 0, chunk: int = 65536) -> AsyncIterator[bytes]:
        check_digest(digest)
        blob = OpenBlob(self._files, digest, offset=offset)
        try:
            while block := await self._work(functools.partial(blob.read, chunk)):
                yield block
        except FileNotFoundError:
            raise no_such_blob(digest) from None
        finally:
            self._afterwards(blob.close)

    async def read_blobs(self, digests: Sequence[str]) -> AsyncIterator[bytes]:
        check_digests(digests)
        reading = Reading(self._files, digests)
        try:
            while block := await self._work(functools.partial(reading.next, _HOP)):
                yield block
        finally:
            self._afterwards(reading.close)

    async def touch_blobs(self, digests: Collection[str], *, at: dt.datetime) -> set[str]:
        check_digests(digests)
        return await self._work(functools.partial(self._files.touch, digests, at=at))

    async def blob_stamps(self, *, after: str = "", limit: int) -> list[BlobStamp]:
        return await self._work(functools.partial(self._files.stamps, after=after, limit=limit))

    async def drop_blobs(self, digests: Collection[str], *, before: dt.datetime) -> int:
        check_digests(digests)
        return await self._work(functools.partial(self._files.drop, digests, before=before))

    async def delete_blob(self, digest: str) -> bool:
        check_digest(digest)
        return await self._work(functools.partial(self._files.delete, digest))

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
