"""Blobs in PostgreSQL: chunks of 256 KiB that become a blob with one row, once all are there.

No transaction stays open while content arrives (a long one would keep dead rows of the busy
tables alive). An upload is a random number; its session holds an advisory lock on that number,
so chunks without a blob whose lock is free are left-overs of a dead uploader: no clock needed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, Final

import structlog

from corral.store.digests import check_digest, check_digests, mismatch, no_such_blob
from corral.store.port import BlobInfo, BlobStamp
from corral.store.postgres import blob_batches
from corral.store.postgres.blob_batches import CHUNK, KEEP, read_chunk, removed
from corral.store.postgres.connections import PostgresConnector, close_connection
from corral.store.postgres.faults import FAILURES, translated
from corral.system.clock import Clock, SystemClock

log = structlog.get_logger("corral.store")

_NAME: Final = "corral-upload"

_DROP: Final = """delete from blob_chunk where upload = $1
    and not exists (select from blob where upload = $1)"""
_LEFT_OVERS: Final = """select distinct upload from blob_chunk c
    where not exists (select from blob b where b.upload = c.upload)"""


class PostgresBlobs:
    """The `BlobEngine`."""

    def __init__(self, server: PostgresConnector, pool: Any, *, clock: Clock | None = None) -> None:
        self._server = server
        self._pool = pool
        self._clock = clock or SystemClock()

    async def sweep(self) -> None:
        """Drop the chunks of uploads whose uploader is gone."""
        with translated():
            async with self._pool.acquire() as connection:
                for (upload,) in await connection.fetch(_LEFT_OVERS):
                    await self._drop_if_orphaned(connection, upload)

    async def _drop_if_orphaned(self, connection: Any, upload: int) -> None:
        async with connection.transaction():
            if await connection.fetchval("select pg_try_advisory_xact_lock($1)", upload):
                # Checked again under the lock: it may have become a blob a moment ago.
                await connection.execute(_DROP, upload)

    async def put_blob(self, chunks: AsyncIterator[bytes], *, expect: str | None = None) -> BlobInfo:
        if expect is not None:
            check_digest(expect)
        with translated():
            connection = await self._server.connect(_NAME)
        upload = _Upload(connection, self._server.token())
        try:
            await upload.begin()
            async for block in _in_chunks(chunks):
                await upload.write(block)
            if expect is not None and upload.digest != expect:
                raise mismatch(expect=expect, found=upload.digest)
            await upload.keep(self._clock.now())
            return BlobInfo(digest=upload.digest, size=upload.size)
        finally:
            await upload.end()

    async def blob_info(self, digest: str) -> BlobInfo | None:
        check_digest(digest)
        with translated():
            size = await self._pool.fetchval("select size from blob where digest = $1", digest)
        return None if size is None else BlobInfo(digest=digest, size=size)

    async def read_blob(self, digest: str, *, offset: int = 0, chunk: int = 65536) -> AsyncIterator[bytes]:
        check_digest(digest)
        with translated():
            row = await self._pool.fetchrow("select upload, size from blob where digest = $1", digest)
        if row is None:
            raise no_such_blob(digest)
        upload, size = row
        while offset < size:
            content = await read_chunk(self._pool, upload, offset // CHUNK)
            if content is None:
                raise removed(digest)
            for start in range(offset % CHUNK, len(content), chunk):
                yield content[start : start + chunk]
            offset += len(content) - offset % CHUNK

    async def delete_blob(self, digest: str) -> bool:
        check_digest(digest)
        with translated():
            async with self._pool.acquire() as connection, connection.transaction():
                upload = await connection.fetchval(
                    "delete from blob where digest = $1 returning upload", digest
                )
                if upload is None:
                    return False
                await connection.execute("delete from blob_chunk where upload = $1", upload)
                return True

    async def put_blobs(self, contents: Sequence[bytes]) -> list[BlobInfo]:
        at, number = self._clock.now(), self._server.token
        with translated():
            return await blob_batches.keep_all(self._pool, contents, at=at, number=number)

    async def blob_sizes(self, digests: Collection[str]) -> dict[str, int]:
        check_digests(digests)
        with translated():
            return await blob_batches.sizes(self._pool, digests)

    def read_blobs(self, digests: Sequence[str]) -> AsyncIterator[bytes]:
        check_digests(digests)
        return blob_batches.read(self._pool, digests)

    async def touch_blobs(self, digests: Collection[str], *, at: dt.datetime) -> set[str]:
        check_digests(digests)
        with translated():
            return await blob_batches.touch(self._pool, digests, at=at)

    async def blob_stamps(self, *, after: str = "", limit: int) -> list[BlobStamp]:
        with translated():
            return await blob_batches.stamps(self._pool, after=after, limit=limit)

    async def drop_blobs(self, digests: Collection[str], *, before: dt.datetime) -> int:
        check_digests(digests)
        with translated():
            return await blob_batches.drop(self._pool, digests, before=before)


class _Upload:
    """A blob being uploaded, on a connection of its own. Only database failures are translated: exceptions of
    the caller's iterator pass through."""

    def __init__(self, connection: Any, number: int) -> None:
        self._connection = connection
        self._number = number
        self._hash = hashlib.sha256()
        self._places = 0
        self._kept = False
        self.size = 0

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    async def begin(self) -> None:
        with translated():
            await self._connection.execute(f"select pg_advisory_lock({self._number})")

    async def write(self, block: bytes) -> None:
        with translated():
            await self._connection.execute(
                "insert into blob_chunk (upload, place, content) values ($1, $2, $3)",
                self._number,
                self._places,
                block,
            )
        self._hash.update(block)
        self._places += 1
        self.size += len(block)

    async def keep(self, at: dt.datetime) -> None:
        """Make it a blob, or stamp the identical one that exists already."""
        with translated():
            rows = await self._connection.fetch(KEEP, [self.digest], [self.size], [self._number], [at])
        self._kept = rows[0]["upload"] == self._number

    async def end(self) -> None:
        """Release connection and lock. Chunks that cannot be dropped now are swept at the next open."""
        try:
            if not self._kept and not self._connection.is_closed():
                await self._connection.execute(_DROP, self._number)
        except FAILURES as error:
            log.info("blob_removal.failed", upload=self._number, why=str(error))
        finally:
            await close_connection(self._connection)


async def _in_chunks(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of CHUNK, the last one shorter; places follow from offsets."""
    gathered = bytearray()
    async for block in blocks:
        gathered += block
        while len(gathered) >= CHUNK:
            yield bytes(gathered[:CHUNK])
            del gathered[:CHUNK]
    if gathered:
        yield bytes(gathered)
