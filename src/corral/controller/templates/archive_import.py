"""Uploaded archives: unpacked into batches of contents and a manifest, stored, and hashed with the hash that
nodes use.

ArchiveUnpacking blocks: run it on threads, step by step.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from typing import IO, Final

import msgspec

from corral.archives.archive_reader import read_archive
from corral.archives.entries import ArchiveEntry, blocks_of
from corral.archives.refusals import TEMPLATE_REFUSALS
from corral.controller.templates.tar_writer import archive_size, archive_stream, blobs_of, contents_gone
from corral.controller.templates.tree_builder import TreeBuilder, TreeLimits
from corral.domain.templates import PIECE, TemplateFile, TemplateManifest, encode_manifest, kept_mode
from corral.errors import Code, Rejected
from corral.store.port import BlobEngine
from corral.system.clock import Clock
from corral.system.threads import check_cancelled, to_end

BATCH_BYTES: Final = 4 * 1024 * 1024
BATCH_BLOBS: Final = 2000

Batch = dict[str, bytes]
"""Contents by their digests: at most about BATCH_BYTES and a piece."""
Blobs = Iterator[tuple[str, bytes]]


class Batches:
    """Contents in batches; an iterator with short steps for its caller."""

    def __init__(self, blobs: Generator[tuple[str, bytes], None, None]) -> None:
        self._blobs = blobs

    def next(self) -> Batch:
        """The next batch; empty at the end. Repeated contents are not added, but their bytes are bounded as well,
        so that a step is short."""
        batch: Batch = {}
        size = read = 0
        for number, (digest, content) in enumerate(self._blobs, 1):
            read += len(content)
            if digest not in batch:
                batch[digest] = content
                size += len(content)
            if size >= BATCH_BYTES or read >= 4 * BATCH_BYTES or number >= BATCH_BLOBS:
                break
        return batch

    def close(self) -> None:
        self._blobs.close()


class ArchiveUnpacking(Batches):
    """An archive, recognised by its first bytes: tar.gz, tar or zip. The tree is complete after the last
    batch. With `any_ratio` its compression ratio is not limited, only its unpacked size."""

    def __init__(self, file: IO[bytes], limits: TreeLimits, *, any_ratio: bool = False) -> None:
        self._entries = read_archive(
            file,
            limits=limits.archive(any_ratio=any_ratio),
            refusals=TEMPLATE_REFUSALS,
            check=check_cancelled,
        )
        self._tree = TreeBuilder(limits)
        super().__init__(self._unpack())

    def manifest(self) -> TemplateManifest:
        return self._tree.manifest()

    def _unpack(self) -> Generator[tuple[str, bytes], None, None]:
        for entry, blocks in self._entries:
            if entry.directory:
                self._tree.add_directory(entry.name)
            else:
                yield from self._take(entry, blocks)

    def _take(self, entry: ArchiveEntry, blocks: Iterator[bytes]) -> Blobs:
        path = self._tree.claim(entry.name, size=entry.size)
        file = yield from split(path, entry.mode, self._within_limit(entry, blocks))
        self._tree.fill(file)

    def _within_limit(self, entry: ArchiveEntry, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Enforce the size limit on the content: the size in a header is untrusted."""
        size = 0
        for block in blocks:
            size += len(block)
            self._tree.check_size(entry.name, size)
            yield block


class SingleFile(Batches):
    """One file from a spooled body."""

    def __init__(self, file: IO[bytes], *, path: str, mode: int) -> None:
        file.seek(0)
        self.file: TemplateFile | None = None
        super().__init__(self._read(path, mode, blocks_of(file.read)))

    def _read(
        self, path: str, mode: int, blocks: Iterable[bytes]
    ) -> Generator[tuple[str, bytes], None, None]:
        self.file = yield from split(path, mode, blocks)


def split(path: str, mode: int, blocks: Iterable[bytes]) -> Generator[tuple[str, bytes], None, TemplateFile]:
    """Yield the blobs that the content is stored as; return the file."""
    whole = hashlib.sha256()
    gathered = bytearray()
    pieces: list[str] = []
    size = 0
    for block in blocks:
        whole.update(block)
        size += len(block)
        gathered += block
        while len(gathered) > PIECE:
            piece = bytes(gathered[:PIECE])
            del gathered[:PIECE]
            pieces.append(hashlib.sha256(piece).hexdigest())
            yield pieces[-1], piece
    last = bytes(gathered)
    digest = whole.hexdigest()
    if pieces:
        pieces.append(hashlib.sha256(last).hexdigest())
    yield (pieces[-1] if pieces else digest), last
    return TemplateFile(path=path, mode=kept_mode(mode), size=size, digest=digest, pieces=tuple(pieces))


_TOUCH_STEP: Final = 5000


class ImportedTree(msgspec.Struct, frozen=True, kw_only=True):
    """A tree whose contents are all in the store and stamped: the record that names it may be committed."""

    manifest: TemplateManifest
    digest: str
    """The digest of the manifest's blob."""
    hash: str
    archive_size: int
    files: int
    size: int


async def store_contents(blobs: BlobEngine, batches: Batches, *, clock: Clock) -> None:
    """Store missing contents, a batch at a time; present ones are stamped and not written again."""
    try:
        while batch := await to_end(batches.next):
            missing = await blobs.touch_blobs(batch.keys(), at=clock.now())
            if missing:
                await blobs.put_blobs([batch[digest] for digest in sorted(missing)])
    finally:
        batches.close()


async def complete(
    blobs: BlobEngine, manifest: TemplateManifest, *, clock: Clock, known: Mapping[str, str] | None = None
) -> ImportedTree:
    """The imported tree of stored contents. `known` are hashes by the digests of their manifests: these are
    not hashed again."""
    encoded = await to_end(lambda: encode_manifest(manifest))
    digest = await _put(blobs, encoded)
    hash = (known or {}).get(digest) or await _hash(blobs, manifest)
    size = await to_end(lambda: archive_size(manifest))
    await _stamp(blobs, await to_end(lambda: sorted({digest, *blobs_of(manifest)})), clock=clock)
    return ImportedTree(
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


async def _hash(blobs: BlobEngine, manifest: TemplateManifest) -> str:
    try:
        return await _hash_archive(blobs, manifest)
    except Rejected as refused:
        if refused.code is Code.NOT_FOUND:
            raise contents_gone() from refused
        raise


async def _hash_archive(blobs: BlobEngine, manifest: TemplateManifest) -> str:
    hash = hashlib.sha256()
    async with contextlib.aclosing(archive_stream(manifest, blobs.read_blobs, digest=hash)) as blocks:
        async for _ in blocks:
            pass
    return hash.hexdigest()


async def _stamp(blobs: BlobEngine, digests: Sequence[str], *, clock: Clock) -> None:
    """Stamp all of it at the end: the import may have lasted longer than unstamped blobs are kept."""
    for start in range(0, len(digests), _TOUCH_STEP):
        if await blobs.touch_blobs(digests[start : start + _TOUCH_STEP], at=clock.now()):
            raise contents_gone()
