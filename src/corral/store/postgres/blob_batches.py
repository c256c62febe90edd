"""Many blobs at once: stored, found, stamped and dropped in a round trip or two.

Every statement that locks several rows of `blob` locks them in the order of their digests, so that two of
them never wait for each other. A row lock also decides between a stamp and a drop: the second one sees what
the first one did, and a drop compares the stamp again once it has the row.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from typing import Any, Final

from corral.errors import Code, Retryable
from corral.store.digests import no_such_blob
from corral.store.port import BlobInfo, BlobStamp
from corral.store.postgres.faults import translated

CHUNK: Final = 256 * 1024
_READ: Final = 1024 * 1024
"""Bytes of content fetched at once."""
_LOOK_UP: Final = 1000
"""Digests in one statement."""

KEEP: Final = """insert into blob (digest, size, upload, stamp)
    select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::timestamptz[]) as fresh (digest)
    order by digest collate "C"
    on conflict (digest) do update set stamp = greatest(blob.stamp, excluded.stamp)
    returning digest, upload"""
_CHUNKS: Final = """insert into blob_chunk (upload, place, content)
    select * from unnest($1::bigint[], $2::int[], $3::bytea[])"""
_TOUCH: Final = """with locked as (
        select digest, stamp from blob where digest = any($1::text[]) order by digest for update),
    stamped as (
        update blob set stamp = $2 from locked where blob.digest = locked.digest and locked.stamp < $2)
    select digest from locked"""
_DROP: Final = """with doomed as (
        select digest from blob where digest = any($1::text[]) and stamp < $2 order by digest for update),
    dropped as (
        delete from blob using doomed where blob.digest = doomed.digest returning blob.upload),
    emptied as (
        delete from blob_chunk using dropped where blob_chunk.upload = dropped.upload)
    select count(*) from dropped"""
_FIND: Final = "select digest, upload, size from blob where digest = any($1::text[])"
_STAMPS: Final = "select digest, size, stamp from blob where digest > $1 order by digest limit $2"
_CONTENTS: Final = """select upload, content from blob_chunk
    where upload = any($1::bigint[]) order by upload, place"""


async def keep_all(
    pool: Any, contents: Sequence[bytes], *, at: dt.datetime, number: Callable[[], int]
) -> list[BlobInfo]:
    """Store all or none; an existing blob is stamped, and its content not sent again."""
    infos = [BlobInfo(digest=hashlib.sha256(each).hexdigest(), size=len(each)) for each in contents]
    fresh = {info.digest: (info, each) for info, each in zip(infos, contents, strict=True)}
    uploads = {digest: number() for digest in fresh}
    async with pool.acquire() as connection, connection.transaction():
        rows = await connection.fetch(
            KEEP,
            list(fresh),
            [info.size for info, _ in fresh.values()],
            list(uploads.values()),
            [at] * len(fresh),
        )
        kept = [digest for digest, upload in rows if uploads[digest] == upload]
        chunks = [(uploads[digest], *chunk) for digest in kept for chunk in _chunks(fresh[digest][1])]
        if chunks:
            await connection.execute(_CHUNKS, *map(list, zip(*chunks, strict=True)))
    return infos


def _chunks(content: bytes) -> Iterable[tuple[int, bytes]]:
    for place, start in enumerate(range(0, len(content), CHUNK)):
        yield place, content[start : start + CHUNK]


async def sizes(pool: Any, digests: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in _some(digests):
        found.update({digest: size for digest, _, size in await pool.fetch(_FIND, some)})
    return found


async def touch(pool: Any, digests: Collection[str], *, at: dt.datetime) -> set[str]:
    """Stamp, never back in time; returns the missing ones."""
    missing = set(digests)
    for some in _some(digests):
        missing -= {digest for (digest,) in await pool.fetch(_TOUCH, some, at)}
    return missing


async def drop(pool: Any, digests: Collection[str], *, before: dt.datetime) -> int:
    return sum([await pool.fetchval(_DROP, some, before) for some in _some(digests)])


async def stamps(pool: Any, *, after: str, limit: int) -> list[BlobStamp]:
    rows = await pool.fetch(_STAMPS, after, limit)
    return [BlobStamp(digest=digest, size=size, at=at) for digest, size, at in rows]


async def read(pool: Any, digests: Sequence[str]) -> AsyncIterator[bytes]:
    """Read one after the other; small ones several at a time. Only the database's exceptions are translated."""
    for start in range(0, len(digests), _LOOK_UP):
        some = digests[start : start + _LOOK_UP]
        with translated():
            rows = await pool.fetch(_FIND, list(set(some)))
        places = {digest: (upload, size) for digest, upload, size in rows}
        for group in _groups(some, places):
            if len(group) == 1 and group[0][1] > _READ:
                async for block in _read_one(pool, *group[0]):
                    yield block
            else:
                yield await _read_group(pool, group)


def _groups(
    digests: Sequence[str], places: dict[str, tuple[int, int]]
) -> Iterable[list[tuple[int, int, str]]]:
    """(upload, size, digest) of consecutive blobs, up to _READ bytes together, or one larger one."""
    group: list[tuple[int, int, str]] = []
    total = 0
    for digest in digests:
        if digest not in places:
            if group:
                yield group
            raise no_such_blob(digest)
        upload, size = places[digest]
        if group and total + size > _READ:
            yield group
            group, total = [], 0
        group.append((upload, size, digest))
        total += size
    if group:
        yield group


async def _read_group(pool: Any, group: Sequence[tuple[int, int, str]]) -> bytes:
    with translated():
        rows = await pool.fetch(_CONTENTS, list({upload for upload, _, _ in group}))
    contents: dict[int, bytes] = {}
    for upload, content in rows:
        contents[upload] = contents.get(upload, b"") + content
    for upload, size, digest in group:
        if len(contents.get(upload, b"")) != size:
            raise removed(digest)
    return b"".join(contents.get(upload, b"") for upload, _, _ in group)


async def _read_one(pool: Any, upload: int, size: int, digest: str) -> AsyncIterator[bytes]:
    for place in range((size + CHUNK - 1) // CHUNK):
        content = await read_chunk(pool, upload, place)
        if content is None:
            raise removed(digest)
        yield content


async def read_chunk(pool: Any, upload: int, place: int) -> bytes | None:
    with translated():
        content: bytes | None = await pool.fetchval(
            "select content from blob_chunk where upload = $1 and place = $2", upload, place
        )
        return content


def removed(digest: str) -> Retryable:
    return Retryable(Code.TRANSFER_INTERRUPTED, f"artifact {digest} was removed while being read")


def _some(digests: Collection[str]) -> Iterable[list[str]]:
    ordered = sorted(set(digests))
    for start in range(0, len(ordered), _LOOK_UP):
        yield ordered[start : start + _LOOK_UP]
