"""The directory of a module's archive, checked as a whole before a single byte is unpacked.

What is behind `checked_entries` is a plain tree of files: no path leads out of it, no two are one on another
file system, no two entries share bytes of the archive, and its size is known.
"""

from __future__ import annotations

import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable
from typing import IO, Final, NamedTuple

from corral.archives.limits import RATIO_MAX, unpacked_most
from corral.domain.file_paths import check_path
from corral.errors import Rejected
from corral.modules.archive_refusals import damaged, entry_damaged, entry_refused, shown, too_large
from corral.modules.zip_ending import count_entries

ENTRIES_MAX: Final = 50_000
UNPACKED_FACTOR: Final = 4
"""An archive may unpack to this many times the largest archive."""
NAME_MAX: Final = 1024
DEPTH_MAX: Final = 64
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNIX: Final = 3
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
)
"""What Python's reader raises for archives that are not as they should be."""


class ZipEntry(NamedTuple):
    """A file, by a path that is safe to make beneath an empty directory."""

    path: str
    info: zipfile.ZipInfo
    executable: bool


def open_zip(file: IO[bytes]) -> zipfile.ZipFile:
    """The archive, once it is known that its directory is not too long to be read."""
    file.seek(0)
    if file.read(4) != b"PK\x03\x04":
        raise damaged("it is not a zip archive")
    count_entries(file, ENTRIES_MAX)
    try:
        return zipfile.ZipFile(file)
    except DAMAGE as error:
        raise damaged(str(error)) from error


def checked_entries(archive: zipfile.ZipFile, file: IO[bytes], *, max_bytes: int) -> list[ZipEntry]:
    """Its files, in the order of the directory. Raises ARCHIVE_INVALID, ARCHIVE_TOO_LARGE, PATH_REFUSED."""
    infos = archive.infolist()
    entries = [entry for info in infos if (entry := _entry(info)) is not None]
    tree = _Tree()
    for info in infos:
        tree.add(_named(info))
    _refuse_sizes(infos, max_bytes)
    _refuse_overlaps(infos, file, archive.start_dir)
    return entries


def is_empty(info: zipfile.ZipInfo) -> bool:
    """Whether there is nothing to unpack, which is all that its checksum could say."""
    return not (info.file_size or info.compress_size or info.CRC)


def _entry(info: zipfile.ZipInfo) -> ZipEntry | None:
    name = _named(info)
    mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
    _refuse_kind(name, mode)
    if info.flag_bits & _ENCRYPTED:
        raise entry_refused(name, "it is encrypted")
    if info.compress_type not in _PACKED:
        raise entry_refused(name, "its compression is not known here; use deflate")
    path = _path(name)
    if name.endswith("/") or stat.S_ISDIR(mode):
        if info.file_size or not name.endswith("/"):
            raise entry_refused(name, "it is a directory with content, or without a '/' at its end")
        return None
    return ZipEntry(path=path, info=info, executable=bool(mode & 0o100))


def _named(info: zipfile.ZipInfo) -> str:
    """As it is in the archive: `filename` ends at the first NUL."""
    name = info.orig_filename
    if info.flag_bits & 0x800 or name.isascii():
        return name
    try:
        return name.encode("cp437").decode()  # packers on Unix write UTF-8 without saying so
    except UnicodeError:
        return name


def _path(name: str) -> str:
    path = name.removesuffix("/")
    try:
        check_path(path)
    except Rejected as refused:
        raise entry_refused(name, refused.message.rpartition(" is refused: ")[2]) from None
    if len(path.encode()) > NAME_MAX:
        raise entry_refused(name, f"its name is longer than {NAME_MAX} bytes")
    if path.count("/") >= DEPTH_MAX:
        raise entry_refused(name, f"it lies more than {DEPTH_MAX} levels deep")
    return path


def _refuse_kind(name: str, mode: int) -> None:
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    kinds |= {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    if kind := kinds.get(stat.S_IFMT(mode)):
        raise entry_refused(name, f"it is {kind}")


class _Tree:
    """Paths that are taken, by how a file system sees them that does not tell letters apart."""

    def __init__(self) -> None:
        self._taken: dict[str, tuple[str, bool]] = {}
        self._named: set[str] = set()
        self._directories: set[str] = set()

    def add(self, name: str) -> None:
        path = name.removesuffix("/")
        if path in self._named:
            raise entry_refused(name, "it is in the archive twice")
        self._named.add(path)
        self._claim(name, path, directory=name.endswith("/"))
        while "/" in path:
            path = path.rpartition("/")[0]
            if self._claim(name, path, directory=True):
                break  # then those above it are known, too

    def _claim(self, name: str, path: str, *, directory: bool) -> bool:
        """Take a path; says whether it was taken before, as the same thing."""
        folded = unicodedata.normalize("NFC", path).casefold()
        known = self._taken.setdefault(folded, (path, directory))
        if known[0] != path:
            raise entry_refused(name, f"some file systems take it for {shown(known[0])}")
        if known[1] != directory:
            raise entry_refused(name, f"{shown(path)} is both a file and a directory")
        if path in self._directories:
            return True
        if directory:
            self._directories.add(path)
        return False


def _refuse_sizes(infos: Iterable[zipfile.ZipInfo], max_bytes: int) -> None:
    total = packed = 0
    for info in infos:
        total += info.file_size
        packed += info.compress_size
    limit = UNPACKED_FACTOR * max_bytes
    if total > limit:
        raise too_large("the module's archive unpacks to too much", f"{limit} bytes")
    if total > unpacked_most(packed):
        raise too_large(
            f"the module's archive unpacks to {total // max(packed, 1)} times its size", f"{RATIO_MAX} times"
        )


def _refuse_overlaps(infos: Iterable[zipfile.ZipInfo], file: IO[bytes], end: int) -> None:
    """Each entry has bytes of its own: one that is read for several names unpacks to far more than it is."""
    ordered = sorted(infos, key=lambda info: info.header_offset)
    if not ordered or ordered[0].header_offset != 0:
        raise damaged("something stands before its first entry")
    starts = [*(info.header_offset for info in ordered[1:]), end]
    for info, following in zip(ordered, starts, strict=True):
        file.seek(info.header_offset)
        header = file.read(_LOCAL.size)
        if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
            raise entry_damaged(info.orig_filename, "it has no header")
        fields = _LOCAL.unpack(header)
        if info.header_offset + _LOCAL.size + fields[-2] + fields[-1] + info.compress_size > following:
            raise entry_damaged(info.orig_filename, "it overlaps another entry")
