"""Archive of a whole template version, a tar.gz: unpacked into contents, without trusting anything in it.

Nothing is ever unpacked to the path that an archive names. Each file goes into a partial file of ours and is named by
its digest; the names in the archive go into a manifest, after they were checked. A manifest from outside is accepted
only when its digest is right and everything in it is valid.
"""

from __future__ import annotations

import hashlib
import io
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from corral.archives.archive_reader import ArchiveKind, read_archive
from corral.archives.entries import ArchiveEntry
from corral.archives.limits import ArchiveLimits
from corral.archives.paths import checked_path
from corral.archives.refusals import cached_template_refusals
from corral.daemon.cache.sealed_files import disk_work, is_digest
from corral.domain.file_paths import check_path
from corral.domain.templates import MODES, PIECE, TemplateFile, TemplateManifest, decode_manifest
from corral.errors import Code, Rejected

MAX_MANIFEST: Final = 256 * 1024 * 1024
"""The manifest of some hundred thousand files with long names; no more than this is read into memory."""


def read_manifest(data: bytes, *, digest: str, name: str) -> TemplateManifest:
    """Decode and check; ARTIFACT_DIGEST_MISMATCH, ARCHIVE_INVALID or PATH_REFUSED."""
    if hashlib.sha256(data).hexdigest() != digest:
        raise Rejected(
            Code.ARTIFACT_DIGEST_MISMATCH,
            f"the list of files of template '{name}' is not the one that was announced",
            hint="it was thrown away; try again",
        )
    try:
        manifest = decode_manifest(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _invalid(name, f"its list of files cannot be read: {error}") from None
    return check_manifest(manifest, name=name)


def check_manifest(manifest: TemplateManifest, *, name: str) -> TemplateManifest:
    """Paths that stay within the tree, none twice, no file that is also a directory, and sizes that agree with each
    other."""
    seen: set[str] = set()
    above: set[str] = set()
    for path in (*manifest.directories, *(file.path for file in manifest.files)):
        check_path(path, field=f"template '{name}'")
        if path in seen:
            raise _invalid(name, f"'{path}' is in it twice")
        seen.add(path)
        cut = path.rfind("/")
        while cut > 0 and path[:cut] not in above:
            above.add(path[:cut])
            cut = path.rfind("/", 0, cut)
    for file in manifest.files:
        if file.path in above:
            raise _invalid(name, f"'{file.path}' is a file and a directory")
        _check_file(file, name=name)
    return manifest


def _check_file(file: TemplateFile, *, name: str) -> None:
    if file.mode not in MODES:
        raise _invalid(name, f"'{file.path}' has mode {file.mode:o}")
    pieces = -(-file.size // PIECE) if file.size > PIECE else 0
    if file.size < 0 or len(file.pieces) != pieces:
        raise _invalid(name, f"'{file.path}' has {file.size} bytes in {len(file.pieces)} pieces")
    if not all(is_digest(digest) for digest in (file.digest, *file.pieces)):
        raise _invalid(name, f"'{file.path}' has no digest")


def _invalid(name: str, why: str) -> Rejected:
    return Rejected(
        Code.ARCHIVE_INVALID,
        f"template '{name}' cannot be used: {why}",
        hint="upload it to the controller again",
    )


MAX_FILES: Final = 100_000
_HEADERS: Final = 4096 * MAX_FILES
"""So many bytes of an archive may be headers."""
_KINDS: Final = frozenset({ArchiveKind.TAR_GZ})

Keep = Callable[[pathlib.Path, str], None]
"""Takes a finished file with its digest."""


class ArchiveUnpack:
    """Unpacks one archive into the cache. Blocks; belongs into a worker thread."""

    def __init__(self, *, name: str, parts: pathlib.Path, keep: Keep, limit: int) -> None:
        self._name = name
        self._refusals = cached_template_refusals(name)
        self._part = parts / f"unpacking-{os.getpid()}-{id(self)}.part"
        self._keep = keep
        self._limit = limit
        self._size = 0
        self._files: list[TemplateFile] = []
        self._directories: set[str] = set()

    def run(self, archive: bytes) -> TemplateManifest:
        """Unpack; ARCHIVE_INVALID, ARCHIVE_TOO_LARGE or PATH_REFUSED, naming the entry."""
        limits = ArchiveLimits(
            max_bytes=self._limit,
            max_entries=2 * MAX_FILES + 1,
            max_stream_bytes=self._limit + _HEADERS,
            any_ratio=True,  # the quota of the cache is the limit
        )
        entries = read_archive(io.BytesIO(archive), limits=limits, refusals=self._refusals, kinds=_KINDS)
        try:
            with disk_work(f"template '{self._name}'"):
                for entry, blocks in entries:
                    self._take(entry, blocks)
        finally:
            self._part.unlink(missing_ok=True)
        filled = {parent for file in self._files for parent in _parents(file.path)}
        filled |= {parent for path in self._directories for parent in _parents(path)}
        manifest = TemplateManifest(
            files=tuple(sorted(self._files, key=lambda file: file.path)),
            directories=tuple(sorted(self._directories - filled)),
        )
        return check_manifest(manifest, name=self._name)

    def _take(self, entry: ArchiveEntry, blocks: Iterator[bytes]) -> None:
        path = entry.name.removeprefix("./").rstrip("/")
        if entry.directory and path in ("", "."):
            return
        checked_path(path, name=entry.name, refusals=self._refusals)
        if entry.directory:
            self._directories.add(path)
            return
        if len(self._files) >= MAX_FILES:
            raise self._refusals.too_large(self._refusals.many_entries, f"{MAX_FILES} files")
        self._size += entry.size
        if self._size > self._limit:
            raise self._refusals.too_large(self._refusals.many_bytes, f"{self._limit} bytes")
        self._files.append(self._store(path, entry.mode, blocks))

    def _store(self, path: str, mode: int, blocks: Iterator[bytes]) -> TemplateFile:
        whole, pieces, size = hashlib.sha256(), _Pieces(), 0
        with self._part.open("wb") as part:
            for block in blocks:
                part.write(block)
                whole.update(block)
                pieces.update(block)
                size += len(block)
        digest = whole.hexdigest()
        self._keep(self._part, digest)
        return TemplateFile(
            path=path,
            mode=_mode(mode),
            size=size,
            digest=digest,
            pieces=pieces.finish() if size > PIECE else (),
        )


class _Pieces:
    """The digests of a large content's pieces; blocks never cross a piece's end."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._hasher = hashlib.sha256()
        self._filled = 0

    def update(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            room = min(len(view), PIECE - self._filled)
            self._hasher.update(view[:room])
            self._filled += room
            view = view[room:]
            if self._filled == PIECE:
                self._end_piece()

    def _end_piece(self) -> None:
        self._done.append(self._hasher.hexdigest())
        self._hasher, self._filled = hashlib.sha256(), 0

    def finish(self) -> tuple[str, ...]:
        if self._filled:
            self._end_piece()
        return tuple(self._done)


def _mode(mode: int) -> int:
    """The stored part of a mode: executable or not, read-only or not."""
    return (0o555 if mode & 0o111 else 0o444) | (0o200 if mode & 0o222 else 0)


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
