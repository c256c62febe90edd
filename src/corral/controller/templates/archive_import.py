"""What came in, stored: a manifest, its contents, and the hash nodes will know it by."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from corral.controller.templates.tar_writer import archive_size, archive_stream, blobs_of, contents_gone
from corral.controller.templates.unpacking import Batches
from corral.domain.templates import PIECE, Manifest, encode_manifest
from corral.errors import Code, Rejected
from corral.store.port import BlobEngine
from corral.system.clock import Clock
from corral.system.threads import to_end

_TOUCH_STEP: Final = 5000


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """A tree of which everything is in the store, stamped: the record that names it may be committed."""

    manifest: Manifest
    digest: str
    """Of the manifest's blob."""
    hash: str
    archive_size: int
    files: int
    size: int


async def store_contents(blobs: BlobEngine, batches: Batches, *, clock: Clock) -> None:
    """Put what is not there yet, a batch at a time; what is there is stamped and not written again."""
    try:
        while batch := await to_end(batches.next):
            missing = await blobs.touch_blobs(batch.keys(), at=clock.now())
            if missing:
                await blobs.put_blobs([batch[digest] for digest in sorted(missing)])
    finally:
        batches.close()


async def complete(
    blobs: BlobEngine, manifest: Manifest, *, clock: Clock, known: Mapping[str, str] | None = None
) -> Intake:
    """From stored contents to an intake. `known` are hashes by the digests of their manifests: what is
    known needs no hashing again."""
    encoded = await to_end(lambda: encode_manifest(manifest))
    digest = await _put(blobs, encoded)
    hash = (known or {}).get(digest) or await _hash(blobs, manifest)
    size = await to_end(lambda: archive_size(manifest))
    await _stamp(blobs, await to_end(lambda: sorted({digest, *blobs_of(manifest)})), clock=clock)
    return Intake(
        manifest=manifest,
        digest=digest,
        hash=hash,
        archive_size=size,
        files=len(manifest.files),
        size=manifest.size,
    )


async def _put(blobs: BlobEngine, content: bytes) -> str:
    if len(content) <= PIECE:
        return (await blobs.put_blobs([content]))[0].digest
    pieces = (content[start : start + PIECE] for start in range(0, len(content), PIECE))
    return (await blobs.put_blob(_each(pieces))).digest


async def _each(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _hash(blobs: BlobEngine, manifest: Manifest) -> str:
    try:
        return await _hash_archive(blobs, manifest)
    except Rejected as refused:
        if refused.code is Code.NOT_FOUND:
            raise contents_gone() from refused
        raise


async def _hash_archive(blobs: BlobEngine, manifest: Manifest) -> str:
    hash = hashlib.sha256()
    async with contextlib.aclosing(archive_stream(manifest, blobs.read_blobs, digest=hash)) as blocks:
        async for _ in blocks:
            pass
    return hash.hexdigest()


async def _stamp(blobs: BlobEngine, digests: Sequence[str], *, clock: Clock) -> None:
    """Say at the end that all of it is needed: taking it in may have lasted longer than blobs are kept."""
    for start in range(0, len(digests), _TOUCH_STEP):
        if await blobs.touch_blobs(digests[start : start + _TOUCH_STEP], at=clock.now()):
            raise contents_gone()
