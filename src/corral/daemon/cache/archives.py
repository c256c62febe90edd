"""A whole version in one tar.gz: taken apart into contents, with nothing believed that it says.

Nothing is ever unpacked to the place an archive names. Each file goes into a part of ours and gets its
name by its digest; the names in the archive end up in a manifest, after they were checked.
"""

from __future__ import annotations

import hashlib
import io
import os
import pathlib
import tarfile
import zlib
from collections.abc import Callable
from typing import Any, Final

from corral.daemon.cache.disk import disk_work
from corral.daemon.cache.manifests import check_manifest
from corral.domain.file_paths import check_path
from corral.domain.templates import PIECE, Manifest, TemplateFile
from corral.errors import Code, Rejected

MAX_FILES: Final = 100_000
_MAX_EXTRA_HEADER: Final = 64 * 1024
_BLOCK: Final = 1024 * 1024

Keep = Callable[[pathlib.Path, str], None]
"""Takes a finished file with its digest."""


class _Header(tarfile.TarInfo):
    """Long names and the like are read into memory as a whole: not more of them than a name can be."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> _Header:
        header = super().frombuf(buf, encoding, errors)
        extra = header.type not in (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE)
        if extra and header.size > _MAX_EXTRA_HEADER:
            raise tarfile.HeaderError(f"an extra header of {header.size} bytes")
        return header


class Unpacking:
    """One archive on its way into the cache. Blocks; belongs into a worker thread."""

    def __init__(self, *, name: str, parts: pathlib.Path, keep: Keep, limit: int) -> None:
        self._name = name
        self._part = parts / f"unpacking-{os.getpid()}-{id(self)}.part"
        self._keep = keep
        self._limit = limit
        self._size = 0

    def run(self, archive: bytes) -> Manifest:
        """Unpack; ARCHIVE_INVALID, ARCHIVE_TOO_LARGE or PATH_REFUSED, naming the entry."""
        files: list[TemplateFile] = []
        directories: set[str] = set()
        try:
            with (
                disk_work(f"template '{self._name}'"),
                tarfile.open(fileobj=io.BytesIO(archive), mode="r|gz", tarinfo=_Header) as tar,
            ):
                for entry in tar:
                    self._take(tar, entry, files, directories)
        except (tarfile.TarError, zlib.error, EOFError, UnicodeError) as error:
            raise self._refused(Code.ARCHIVE_INVALID, f"its archive cannot be read: {error}") from None
        finally:
            self._part.unlink(missing_ok=True)
        filled = {parent for file in files for parent in _parents(file.path)}
        filled |= {parent for path in directories for parent in _parents(path)}
        manifest = Manifest(
            files=tuple(sorted(files, key=lambda file: file.path)),
            directories=tuple(sorted(directories - filled)),
        )
        return check_manifest(manifest, name=self._name)

    def _take(
        self, tar: tarfile.TarFile, entry: tarfile.TarInfo, files: list[TemplateFile], directories: set[str]
    ) -> None:
        path = entry.name.removeprefix("./").rstrip("/")
        if entry.isdir():
            if path not in ("", "."):
                directories.add(check_path(path, field=f"template '{self._name}'"))
            return
        check_path(path, field=f"template '{self._name}'")
        if not entry.isreg():
            raise self._refused(Code.PATH_REFUSED, f"'{path}' is neither a file nor a directory")
        if len(files) >= MAX_FILES:
            raise self._refused(Code.ARCHIVE_TOO_LARGE, f"it has more than {MAX_FILES} files")
        self._size += entry.size
        if self._size > self._limit:
            raise self._refused(Code.ARCHIVE_TOO_LARGE, f"unpacked it has more than {self._limit} bytes")
        source = tar.extractfile(entry)
        assert source is not None
        files.append(self._store(source, path, entry))

    def _store(self, source: Any, path: str, entry: tarfile.TarInfo) -> TemplateFile:
        whole, pieces, size = hashlib.sha256(), _Pieces(), 0
        with self._part.open("wb") as part:
            while block := source.read(_BLOCK):
                part.write(block)
                whole.update(block)
                pieces.update(block)
                size += len(block)
        if size != entry.size:
            raise tarfile.ReadError(f"'{path}' is cut short")
        digest = whole.hexdigest()
        self._keep(self._part, digest)
        return TemplateFile(
            path=path,
            mode=_mode(entry.mode),
            size=size,
            digest=digest,
            pieces=pieces.finish() if size > PIECE else (),
        )

    def _refused(self, code: Code, why: str) -> Rejected:
        return Rejected(
            code, f"template '{self._name}' cannot be used: {why}", hint="upload it to the controller again"
        )


class _Pieces:
    """The digests of a long content's pieces; blocks never cross a piece's end."""

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
    """What is kept of it: executable or not, read-only or not."""
    return (0o555 if mode & 0o111 else 0o444) | (0o200 if mode & 0o222 else 0)


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
