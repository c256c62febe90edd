"""The template library: uploads spooled to disk, trees in and out of the store's blobs, in constant memory.

Nothing here changes a template. An import returns an `ImportedTree`: contents, manifest and hash, stored and
stamped; `template_changes` makes a version of it. An import that is never committed is collected like any
other content that no record names.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from typing import IO, Final, TypeVar

from corral.archives.archive_reader import archive_kind
from corral.archives.refusals import TEMPLATE_REFUSALS
from corral.controller.templates.archive_import import (
    ArchiveUnpacking,
    ImportedTree,
    SingleFile,
    complete,
    store_contents,
)
from corral.controller.templates.tar_writer import archive_stream
from corral.controller.templates.tree_builder import TreeLimits, find_file, overlay, put_file, remove_path
from corral.controller.templates.zip_writer import zip_stream
from corral.domain.file_paths import check_path
from corral.domain.template_diff import TemplateDiff, diff_versions
from corral.domain.templates import TemplateFile, TemplateManifest, TemplateVersion, decode_manifest
from corral.errors import Code, Retryable, unknown_choice
from corral.store.port import BlobEngine
from corral.system.clock import Clock
from corral.system.controller_config import TemplatesSection
from corral.system.threads import to_end

T = TypeVar("T")

_HOP: Final = 1024 * 1024


@contextlib.asynccontextmanager
async def spooled(
    source: AsyncIterator[bytes],
    *,
    directory: pathlib.Path,
    limit: int,
    check: Callable[[bytes], object] = bool,
) -> AsyncIterator[IO[bytes]]:
    """Spool the stream to disk, at most a MiB in memory. ARCHIVE_TOO_LARGE as soon as it is; DISK_FULL.
    `check` gets its first MiB and may refuse the rest."""
    undo = contextlib.ExitStack()
    try:
        # Opened on a thread, and closed also when the caller was cancelled meanwhile.
        file = await _on_disk(directory, lambda: undo.enter_context(_open(directory)))
        gathered = bytearray()
        unseen = True
        size = 0
        async for chunk in source:
            size += len(chunk)
            if size > limit:
                raise TEMPLATE_REFUSALS.too_large(
                    "the upload is larger than any template may be", f"{limit} bytes"
                )
            gathered += chunk
            if len(gathered) >= _HOP:
                if unseen:
                    check(bytes(gathered))
                    unseen = False
                await _on_disk(directory, functools.partial(_write, file, bytes(gathered)))
                gathered.clear()
        if unseen:
            check(bytes(gathered))
        await _on_disk(directory, functools.partial(_write, file, bytes(gathered)))
        yield file
    finally:
        await to_end(undo.close)  # freeing gigabytes takes long


def _open(directory: pathlib.Path) -> IO[bytes]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=directory, prefix="upload-", buffering=0)


def _write(file: IO[bytes], block: bytes) -> None:
    """Write all of it: a nearly full disk accepts a part without an error."""
    rest = memoryview(block)
    while rest:
        rest = rest[file.write(rest) :]


async def _on_disk(directory: pathlib.Path, work: Callable[[], T]) -> T:
    try:
        return await to_end(work)
    except OSError as error:
        raise Retryable(
            Code.DISK_FULL,
            f"the upload cannot be kept in {directory}: {error.strerror or error}",
            hint="make room on the controller's disk and send it again",
            retry_after=30.0,
        ) from error


FORMATS: Final = ("tar.gz", "zip")
_REMEMBERED_FILES: Final = 100_000
"""The number of files whose manifests stay in memory."""
_REMEMBERED_HASHES: Final = 1000
"""The number of recent trees whose hashes stay in memory: a change that is retried, or undone, is not hashed
again."""


class TemplateLibrary:
    """`directory` holds uploads until they are unpacked, in unnamed files; created when needed."""

    def __init__(
        self, blobs: BlobEngine, *, config: TemplatesSection, directory: pathlib.Path, clock: Clock
    ) -> None:
        self._blobs = blobs
        self._clock = clock
        self._directory = directory
        self._limits = TreeLimits(max_bytes=config.max_bytes, max_files=config.max_files)
        self._remembered: OrderedDict[str, TemplateManifest] = OrderedDict()
        self._hashes: OrderedDict[str, str] = OrderedDict()

    # in

    async def intake_archive(
        self, source: AsyncIterator[bytes], *, known: Iterable[TemplateVersion] = (), any_ratio: bool = False
    ) -> ImportedTree:
        """Import a tar.gz, tar or zip, recognised by its content. `known` versions are not hashed again.
        `any_ratio` is for archives made by a daemon: a world may be mostly empty, and compresses accordingly.

        Raises ARCHIVE_INVALID, ARCHIVE_TOO_LARGE and PATH_REFUSED; then no version can be made of it.
        """
        async with spooled(
            source,
            directory=self._directory,
            limit=self._limits.stream_bytes,
            check=functools.partial(archive_kind, refusals=TEMPLATE_REFUSALS),
        ) as file:
            unpacking = ArchiveUnpacking(file, self._limits, any_ratio=any_ratio)
            await store_contents(self._blobs, unpacking, clock=self._clock)
        manifest = await to_end(unpacking.manifest)
        return await self._complete(manifest, known)

    async def with_file(
        self, manifest: TemplateManifest, path: str, content: AsyncIterator[bytes], *, mode: int = 0o644
    ) -> ImportedTree:
        """The tree with this file, new or replacing one. PATH_REFUSED, ARCHIVE_TOO_LARGE."""
        check_path(path, field="path")
        async with spooled(content, directory=self._directory, limit=self._limits.max_bytes) as file:
            single = SingleFile(file, path=path, mode=mode)
            await store_contents(self._blobs, single, clock=self._clock)
        assert single.file is not None
        changed = single.file
        return await self._complete(await to_end(lambda: put_file(manifest, changed, self._limits)))

    async def without_file(self, manifest: TemplateManifest, path: str) -> ImportedTree:
        """The tree without this file or empty directory; NOT_FOUND."""
        return await self._complete(await to_end(lambda: remove_path(manifest, path)))

    async def overlaid(self, base: TemplateManifest, upper: TemplateManifest) -> ImportedTree:
        """The tree of both, `upper`'s files replacing `base`'s. PATH_REFUSED, ARCHIVE_TOO_LARGE."""
        return await self._complete(await to_end(lambda: overlay(base, upper, self._limits)))

    # out

    async def tree_of(self, version: TemplateVersion) -> TemplateManifest:
        return await self.manifest(version.manifest)

    async def manifest(self, digest: str) -> TemplateManifest:
        """The manifest by the digest of its blob; NOT_FOUND."""
        found = self._remembered.get(digest)
        if found is None:
            parts = [part async for part in self._blobs.read_blobs([digest])]
            found = await to_end(lambda: decode_manifest(b"".join(parts)))
            self._remember(digest, found)
        else:
            self._remembered.move_to_end(digest)
        return found

    async def open_file(
        self, version: TemplateVersion, path: str
    ) -> tuple[TemplateFile, AsyncIterator[bytes]]:
        """A file and its bytes; NOT_FOUND is raised by this call, not by the iterator of the bytes."""
        file = find_file(await self.tree_of(version), path)
        return file, self.read_file(file)

    def read_file(self, file: TemplateFile) -> AsyncIterator[bytes]:
        return self._blobs.read_blobs(file.blobs)

    async def archive(self, version: TemplateVersion) -> AsyncIterator[bytes]:
        """The deterministic tar.gz: `archive_size` bytes, whose SHA-256 is the version's hash."""
        manifest = await self.tree_of(version)
        async with contextlib.aclosing(archive_stream(manifest, self._blobs.read_blobs)) as blocks:
            async for block in blocks:
                yield block

    async def export(self, version: TemplateVersion, format: str) -> AsyncIterator[bytes]:
        """A download for operators: the same tar.gz, or a compressed zip."""
        pack = {"tar.gz": archive_stream, "zip": zip_stream}[check_format(format)]
        manifest = await self.tree_of(version)
        async with contextlib.aclosing(pack(manifest, self._blobs.read_blobs)) as blocks:
            async for block in blocks:
                yield block

    async def diff(self, before: TemplateVersion, after: TemplateVersion) -> TemplateDiff:
        old, new = await self.tree_of(before), await self.tree_of(after)
        return await to_end(lambda: diff_versions(old, new, before.settings, after.settings))

    async def _complete(
        self, manifest: TemplateManifest, known: Iterable[TemplateVersion] = ()
    ) -> ImportedTree:
        hashes = {**self._hashes, **{version.manifest: version.hash for version in known}}
        intake = await complete(self._blobs, manifest, clock=self._clock, known=hashes)
        self._remember(intake.digest, manifest)
        self._hashes[intake.digest] = intake.hash
        while len(self._hashes) > _REMEMBERED_HASHES:
            self._hashes.popitem(last=False)
        return intake

    def _remember(self, digest: str, manifest: TemplateManifest) -> None:
        self._remembered[digest] = manifest
        self._remembered.move_to_end(digest)
        files = sum(len(each.files) + 1 for each in self._remembered.values())
        while files > _REMEMBERED_FILES:
            _, oldest = self._remembered.popitem(last=False)
            files -= len(oldest.files) + 1


def check_format(format: str) -> str:
    """The format of an export; an unknown one is refused with the known ones."""
    if format not in FORMATS:
        raise unknown_choice("format", format[:80], FORMATS, code=Code.INVALID_FIELD, field="format")
    return format
