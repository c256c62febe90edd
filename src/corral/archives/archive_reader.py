"""The reader of an archive of any known kind, recognised by its first bytes: tar.gz, tar or zip."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import IO, Final

from corral.archives.entries import Entries, MeteredStream, Readable
from corral.archives.gzip_reader import GzipReader
from corral.archives.limits import ArchiveLimits
from corral.archives.refusals import ArchiveRefusals
from corral.archives.tar_reader import read_tar
from corral.archives.zip_reader import ZipReader

_MAGIC: Final = 263
"""Bytes of an archive by which its kind is recognised."""


class ArchiveKind(enum.Enum):
    TAR_GZ = "tar.gz"
    ZIP = "zip"
    TAR = "tar"


def archive_kind(start: bytes, refusals: ArchiveRefusals) -> ArchiveKind:
    """The kind of an archive, by its first bytes; ARCHIVE_INVALID."""
    if start.startswith(b"\x1f\x8b"):
        return ArchiveKind.TAR_GZ
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return ArchiveKind.ZIP
    if start[257:262] == b"ustar":
        return ArchiveKind.TAR
    raise refusals.damaged("it is neither tar.gz nor zip" if start else "it is empty")


def read_archive(
    file: IO[bytes],
    *,
    limits: ArchiveLimits,
    refusals: ArchiveRefusals,
    kinds: frozenset[ArchiveKind] = frozenset(ArchiveKind),
    check: Callable[[], None] = lambda: None,
) -> Entries:
    """Its entries. Raises ARCHIVE_INVALID, ARCHIVE_TOO_LARGE, PATH_REFUSED, and what `check` raises to break off: it is called
    every few blocks, also where no entry comes. Blocking."""
    packed = file.seek(0, 2)
    file.seek(0)
    kind = archive_kind(file.read(_MAGIC), refusals)
    file.seek(0)
    if kind not in kinds:
        raise refusals.damaged(f"it is a {kind.value}")
    if kind is ArchiveKind.ZIP:
        entries = _read_zip(file, limits, refusals)
    else:
        compressed = kind is ArchiveKind.TAR_GZ
        stream: Readable = GzipReader(file, check) if compressed else file
        size = packed if compressed else None
        entries = read_tar(MeteredStream(stream, limits=limits, refusals=refusals, packed=size), refusals)
    for number, entry in enumerate(entries, 1):
        if number > limits.max_entries:
            raise refusals.too_many_entries(limits)
        yield entry


def _read_zip(file: IO[bytes], limits: ArchiveLimits, refusals: ArchiveRefusals) -> Entries:
    with ZipReader(file, limits=limits, refusals=refusals) as archive:
        archive.refuse_sizes()
        for entry in archive.entries():
            yield entry, iter(()) if entry.directory else archive.contents(entry)
