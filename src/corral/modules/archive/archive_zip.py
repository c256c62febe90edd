"""A module's archive as a zip: its limits, and its files, checked as a whole before a single byte is unpacked."""

from __future__ import annotations

from typing import IO, Final

from corral.archives.limits import ArchiveLimits
from corral.archives.paths import DistinctPaths
from corral.archives.refusals import MODULE_REFUSALS
from corral.archives.zip_reader import ZipEntry, ZipReader

ENTRIES_MAX: Final = 50_000
UNPACKED_FACTOR: Final = 4
"""An archive may unpack to this many times the largest archive."""
NAME_MAX: Final = 1024
DEPTH_MAX: Final = 64


def open_zip(file: IO[bytes], *, max_bytes: int) -> ZipReader:
    """The archive, once it is known that its directory is not too long to be read; none has more than `max_bytes`."""
    return ZipReader(file, limits=_limits(max_bytes), refusals=MODULE_REFUSALS)


def checked_files(archive: ZipReader) -> list[ZipEntry]:
    """Its files, in the order of the directory. Their names are the paths of a plain tree: none leads out of it, no
    two are one on another file system. Raises ARCHIVE_INVALID, ARCHIVE_TOO_LARGE, PATH_REFUSED."""
    paths = DistinctPaths(limits=archive.limits, refusals=MODULE_REFUSALS)
    files: list[ZipEntry] = []
    for entry in archive.entries():
        paths.add(entry.name)
        if not entry.directory:
            files.append(entry)
    archive.refuse_sizes()
    archive.refuse_overlaps()
    return files


def _limits(max_bytes: int) -> ArchiveLimits:
    return ArchiveLimits(
        max_bytes=UNPACKED_FACTOR * max_bytes,
        max_entries=ENTRIES_MAX,
        max_name_bytes=NAME_MAX,
        max_depth=DEPTH_MAX,
        sealed=True,
    )
