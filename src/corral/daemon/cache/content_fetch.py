"""Fetch of missing contents by digest: small ones many at a time, large ones piece by piece."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Final

from corral.daemon.cache.contents import CacheContents
from corral.daemon.cache.partial_files import LargeFile, SmallFiles, part_of
from corral.daemon.cache.sealed_files import disk_work
from corral.daemon.link.data_channel import DataChannel
from corral.domain.templates import PIECE, TemplateFile, TemplateManifest
from corral.errors import CorralError
from corral.system.threads import to_end

BUNDLE_BYTES: Final = 8 * 1024 * 1024
BUNDLE_DIGESTS: Final = 1000
PIECES: Final = 16
"""Pieces of a large file in one request."""
WORTH_CONTINUING: Final = 256 * 1024
"""A shorter partial file is deleted: the file is fetched with the others of a bundle."""
_BATCH: Final = 512 * 1024
"""Bytes written at a time, by a worker thread."""

Count = Callable[[int], None]
"""Receives numbers of bytes: those transferred, or those stored as contents."""


class PieceSources:
    """Pieces of large files that exist already: in other versions of the same template."""

    def __init__(self, stores: CacheContents) -> None:
        self._stores = stores
        self._places: dict[str, tuple[pathlib.Path, int]] = {}

    def learn(self, manifest: TemplateManifest) -> None:
        for file in manifest.files:
            for index, piece in enumerate(file.pieces):
                self._places.setdefault(piece, (self._stores.contents.path(file.digest), index * PIECE))

    def __contains__(self, piece: str) -> bool:
        return piece in self._places

    def place(self, piece: str) -> tuple[pathlib.Path, int]:
        return self._places[piece]

    def forget(self, piece: str) -> None:
        self._places.pop(piece, None)


class ContentFetch:
    """Fetches contents into the cache over one data channel. Partial files of an interrupted fetch are resumed by the
    next; memory is bounded whatever the sizes."""

    def __init__(
        self,
        channel: DataChannel,
        *,
        stores: CacheContents,
        sources: PieceSources,
        progress: Count,
        arrived: Count,
    ) -> None:
        self._channel = channel
        self._stores = stores
        self._sources = sources
        self._progress = progress
        self._arrived = arrived

    async def run(self, files: Sequence[TemplateFile], *, name: str) -> None:
        with disk_work(f"template '{name}'"):
            await to_end(self._make_empty, [file for file in files if not file.size])
            small = [file for file in files if file.size and not file.pieces]
            for bundle in await to_end(lambda: list(self._bundles(small))):
                await self._fetch_small(bundle)
            for file in files:
                if file.pieces:
                    await self._fetch_large(file)

    def _make_empty(self, files: Iterable[TemplateFile]) -> None:
        for file in files:
            if file.digest == hashlib.sha256().hexdigest():
                part = part_of(self._stores.parts, file.digest)
                part.write_bytes(b"")
                self._stores.contents.admit(part, file.digest)

    def _bundles(self, files: Iterable[TemplateFile]) -> Iterator[list[TemplateFile]]:
        """The bundles. A file with a large partial file of an earlier attempt is fetched by itself, from where it
        stopped."""
        bundle: list[TemplateFile] = []
        size = 0
        for file in files:
            part = part_of(self._stores.parts, file.digest)
            if part.exists():
                if part.stat().st_size >= WORTH_CONTINUING:
                    yield [file]
                    continue
                part.unlink()
            if bundle and (size + file.size > BUNDLE_BYTES or len(bundle) == BUNDLE_DIGESTS):
                yield bundle
                bundle, size = [], 0
            bundle.append(file)
            size += file.size
        if bundle:
            yield bundle

    async def _fetch_small(self, files: Sequence[TemplateFile]) -> None:
        arriving = SmallFiles(files, parts=self._stores.parts, contents=self._stores.contents)
        try:
            offset = await to_end(arriving.begin)
            await self._pour([file.digest for file in files], offset, arriving.take)
            arriving.end()
        finally:
            await to_end(arriving.close)
            self._arrived(arriving.stored)

    async def _fetch_large(self, file: TemplateFile) -> None:
        arriving = LargeFile(file, parts=self._stores.parts, contents=self._stores.contents)
        try:
            await to_end(arriving.begin)
            while not arriving.complete:
                expected = file.pieces[arriving.piece]
                if arriving.within or expected not in self._sources:
                    await self._pour(
                        self._run_of_pieces(file, arriving.piece), arriving.within, arriving.take
                    )
                elif not await to_end(arriving.copy, *self._sources.place(expected)):
                    self._sources.forget(expected)
            await to_end(arriving.finish)
            self._arrived(file.size)
        finally:
            await to_end(arriving.close)

    def _run_of_pieces(self, file: TemplateFile, first: int) -> list[str]:
        """The required piece, and those after it that have to be fetched as well."""
        run = [file.pieces[first]]
        for piece in file.pieces[first + 1 : first + PIECES]:
            if piece in self._sources:
                break
            run.append(piece)
        return run

    async def _pour(self, digests: Sequence[str], offset: int, take: Callable[[bytes], None]) -> None:
        """Hand over the received bytes, in batches; those received before the connection broke are handed over as
        well."""
        waiting = bytearray()
        async with contextlib.aclosing(self._channel.bundle(digests, offset=offset)) as chunks:
            try:
                await self._collect(chunks, waiting, take)
            except CorralError:
                await to_end(take, bytes(waiting))
                raise
        await to_end(take, bytes(waiting))

    async def _collect(
        self, chunks: AsyncGenerator[bytes, None], waiting: bytearray, take: Callable[[bytes], None]
    ) -> None:
        async for chunk in chunks:
            waiting += chunk
            self._progress(len(chunk))
            if len(waiting) >= _BATCH:
                batch = bytes(waiting)
                waiting.clear()
                await to_end(take, batch)
