"""The reader of zip: its directory is measured before Python's reader loads it into memory, and its entries
are checked."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Final, Self

from corral.archives.entries import BLOCK, ArchiveEntry, special_kind
from corral.archives.limits import ArchiveLimits
from corral.archives.refusals import ArchiveRefusals
from corral.system.threads import check_cancelled

_END: Final = b"PK\x05\x06"
_END_SIZE: Final = 22
_COMMENT_MAX: Final = 65535
_LOCATOR: Final = b"PK\x06\x07"
_END_64: Final = b"PK\x06\x06"
_RECORD: Final = b"PK\x01\x02"
_RECORD_SIZE: Final = 46


class ZipDamaged(Exception):
    """The directory cannot be parsed; the text has the reason."""


class ZipDirectoryTooLong(Exception):
    """Its directory has more bytes than allowed."""


class ZipTooManyEntries(Exception):
    """Its directory has more entries than allowed."""


def count_entries(file: IO[bytes], *, most: int, most_bytes: int, sealed: bool = False) -> None:
    """Refuse a directory of more than allowed; the number of entries that it claims is ignored. `sealed`:
    nothing may follow the archive's last record and its comment."""
    start, size = _directory(file, sealed)
    if size > most_bytes:
        raise ZipDirectoryTooLong
    file.seek(start)
    entries, left = 0, size
    while left >= _RECORD_SIZE:
        record = file.read(_RECORD_SIZE)
        if len(record) < _RECORD_SIZE or record[:4] != _RECORD:
            raise ZipDamaged("its directory is damaged")
        extra = sum(struct.unpack("<3H", record[28:34]))
        file.seek(extra, 1)
        left -= _RECORD_SIZE + extra
        entries += 1
        if entries > most:
            raise ZipTooManyEntries
    if left and sealed:
        raise ZipDamaged("its directory is damaged")


def _directory(file: IO[bytes], sealed: bool) -> tuple[int, int]:
    """Offset and length of the directory; zip tolerates bytes before the archive itself."""
    end = file.seek(0, 2)
    file.seek(max(0, end - _END_SIZE - _COMMENT_MAX))
    tail = file.read(_END_SIZE + _COMMENT_MAX)
    place = tail.rfind(_END)
    if place < 0 or len(tail) - place < _END_SIZE:
        raise ZipDamaged("it was cut: the directory at its end is missing")
    size, comment = struct.unpack("<L4xH", tail[place + 12 : place + 22])
    if sealed and place + _END_SIZE + comment != len(tail):
        raise ZipDamaged("something follows its end")
    at, size = _directory_64(file, end - len(tail) + place, size)
    if size > at:
        raise ZipDamaged("its directory is damaged")
    return at - size, size


def _directory_64(file: IO[bytes], at: int, size: int) -> tuple[int, int]:
    """Offset and length by the zip64 records, where they exist: Python's reader uses them even if the plain
    record does not point at them."""
    if at < 20 + 56:
        return at, size
    file.seek(at - 20 - 56)
    record = file.read(56 + 20)
    if record[56:60] != _LOCATOR or record[:4] != _END_64:
        return at, size
    return at - 20 - 56, int(struct.unpack("<Q", record[40:48])[0])


_FIRST: Final = b"PK\x03\x04"
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNIX: Final = 3
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
)
"""Exceptions of Python's reader for malformed archives."""


class ZipEntry(ArchiveEntry, frozen=True, kw_only=True):
    """An entry with what Python's reader knows of it."""

    info: zipfile.ZipInfo

    @property
    def executable(self) -> bool:
        """Whether its owner may execute it."""
        return bool(self.mode & 0o100)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to unpack; an empty content needs no checksum."""
        return not (self.info.file_size or self.info.compress_size or self.info.CRC)


class ZipReader:
    """An open zip whose directory is within its limits. Raises ARCHIVE_INVALID, ARCHIVE_TOO_LARGE, PATH_REFUSED."""

    def __init__(self, file: IO[bytes], *, limits: ArchiveLimits, refusals: ArchiveRefusals) -> None:
        self._file = file
        self.limits = limits
        self._refusals = refusals
        self._count()
        try:
            self._archive = zipfile.ZipFile(file)
        except _DAMAGE as error:
            raise refusals.damaged(str(error)) from error
        self._size = file.seek(0, 2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    def entries(self) -> Iterator[ZipEntry]:
        """In the order of the directory, each checked when it is requested."""
        for info in self._archive.infolist():
            yield self._entry(info)

    def refuse_sizes(self) -> None:
        """Check the sizes that the entries claim to unpack to: none of them can yield more than it claims."""
        infos = self._archive.infolist()
        total = sum(info.file_size for info in infos)
        packed = sum(info.compress_size for info in infos) if self.limits.sealed else self._size
        if total > self.limits.max_bytes:
            raise self._refusals.too_many_bytes(self.limits)
        most = self.limits.unpacked_most(packed)
        if most is not None and total > most:
            raise self._refusals.unpacks_too_far(unpacked=total, packed=packed)

    def refuse_overlaps(self) -> None:
        """Check that each entry has bytes of its own: bytes read for several names unpack to far more than
        the archive holds."""
        ordered = sorted(self._archive.infolist(), key=lambda info: info.header_offset)
        if not ordered or ordered[0].header_offset != 0:
            raise self._refusals.damaged("something stands before its first entry")
        starts = [*(info.header_offset for info in ordered[1:]), self._archive.start_dir]
        for info, following in zip(ordered, starts, strict=True):
            self._file.seek(info.header_offset)
            header = self._file.read(_LOCAL.size)
            if len(header) < _LOCAL.size or header[:4] != _FIRST:
                raise self._refusals.entry_damaged(info.orig_filename, "it has no header")
            fields = _LOCAL.unpack(header)
            if info.header_offset + _LOCAL.size + fields[-2] + fields[-1] + info.compress_size > following:
                raise self._refusals.entry_damaged(info.orig_filename, "it overlaps another entry")

    def contents(self, entry: ZipEntry) -> Iterator[bytes]:
        """The blocks of a file, never more than it announced; its checksum is checked at the end."""
        read = 0
        try:
            with self._archive.open(entry.info) as content:
                while block := content.read(BLOCK):
                    check_cancelled()
                    read += len(block)
                    yield block
        except _DAMAGE as error:
            raise self._refusals.entry_damaged(entry.name, str(error) or "it was cut") from error
        if read != entry.size:
            why = f"it has {read} bytes, its header says {entry.size}"
            raise self._refusals.entry_damaged(entry.name, why)

    def _count(self) -> None:
        limits, refusals = self.limits, self._refusals
        self._file.seek(0)
        if limits.sealed and self._file.read(len(_FIRST)) != _FIRST:
            raise refusals.damaged("it is not a zip archive")
        most_bytes = limits.max_directory_bytes
        try:
            count_entries(self._file, most=limits.max_entries, most_bytes=most_bytes, sealed=limits.sealed)
        except ZipDamaged as error:
            raise refusals.damaged(str(error)) from error
        except ZipDirectoryTooLong as error:
            raise refusals.too_large(refusals.long_directory, f"{most_bytes} bytes") from error
        except ZipTooManyEntries as error:
            raise refusals.too_many_entries(limits) from error

    def _entry(self, info: zipfile.ZipInfo) -> ZipEntry:
        name, refusals = _name(info), self._refusals
        mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
        if why := special_kind(mode):
            raise refusals.entry_refused(name, why)
        if info.flag_bits & _ENCRYPTED:
            raise refusals.entry_refused(name, "it is encrypted", hint=refusals.encrypted_hint)
        if info.compress_type not in _PACKED:
            why, hint = refusals.unknown_compression, refusals.compression_hint
            raise refusals.entry_refused(name, why, hint=hint)
        if not 0 <= info.header_offset < self._size:
            raise refusals.entry_damaged(name, "its place is not in the archive")
        if name.endswith("/") or stat.S_ISDIR(mode):
            if self.limits.sealed and (info.file_size or not name.endswith("/")):
                why = "it is a directory with content, or without a '/' at its end"
                raise refusals.entry_refused(name, why)
            return ZipEntry(name=name, directory=True, info=info)
        return ZipEntry(name=name, mode=mode & 0o7777 or 0o644, size=info.file_size, info=info)


def _name(info: zipfile.ZipInfo) -> str:
    """The name as it is in the archive (`filename` ends at the first NUL). Packers on Unix write UTF-8
    without the flag; decoded as the old code page, other names hardly ever look like it."""
    name = info.orig_filename
    if info.flag_bits & 0x800 or name.isascii():
        return name
    try:
        return name.encode("cp437").decode()
    except UnicodeError:
        return name
