"""Reading zip: its directory is counted before Python's reader takes it into memory."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Final

from corral.controller.templates.archive_entries import BLOCK, Entries, Entry, Limits, refuse_kind
from corral.controller.templates.refusals import (
    damaged,
    entry_damaged,
    entry_refused,
    too_large,
    too_many_entries,
)

_END: Final = b"PK\x05\x06"
_END_MAX: Final = 22 + 65535
_LOCATOR: Final = b"PK\x06\x07"
_END_64: Final = b"PK\x06\x06"
_DIRECTORY_RECORD: Final = b"PK\x01\x02"
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DIRECTORY_BYTES: Final = 256 * 1024 * 1024
_UNIX: Final = 3
_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
)
"""What Python's reader raises for archives that are not as they should be."""


def read_zip(file: IO[bytes], limits: Limits) -> Entries:
    """Entries in the order of the archive's directory."""
    _count(file, limits)
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGE as error:
        raise damaged(str(error)) from error
    end = file.seek(0, 2)
    with archive:
        for info in archive.infolist():
            entry = _entry(info)
            if not 0 <= info.header_offset < end:
                raise entry_damaged(entry.name, "its place is not in the archive")
            yield entry, iter(()) if entry.directory else _content(archive, info, entry.name)


def _entry(info: zipfile.ZipInfo) -> Entry:
    name = _name(info)
    mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
    refuse_kind(name, mode)
    if info.flag_bits & 0x1:
        raise entry_refused(name, "it is encrypted", hint="nothing was stored; pack it without a password")
    if info.compress_type not in _PACKED:
        raise entry_refused(
            name, "its compression is not known here", hint="nothing was stored; pack it with deflate"
        )
    if name.endswith("/") or stat.S_ISDIR(mode):
        return Entry(name=name, directory=True)
    return Entry(name=name, mode=mode & 0o7777 or 0o644, size=info.file_size)


def _name(info: zipfile.ZipInfo) -> str:
    """As it is in the archive (`filename` ends at the first NUL). Packers on Unix write UTF-8 without
    saying so; the old code page, in which such a name is taken then, hardly ever looks like it."""
    name = info.orig_filename
    if info.flag_bits & 0x800 or name.isascii():
        return name
    try:
        return name.encode("cp437").decode()
    except UnicodeError:
        return name


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> Iterator[bytes]:
    read = 0
    try:
        with archive.open(info) as content:
            while block := content.read(BLOCK):
                read += len(block)
                yield block
    except _DAMAGE as error:
        raise entry_damaged(name, str(error) or "it was cut") from error
    if read != info.file_size:
        raise entry_damaged(name, f"it has {read} bytes, its header says {info.file_size}")


def _count(file: IO[bytes], limits: Limits) -> None:
    """Refuse a directory of more entries than a tree may have; how many it says it has counts for nothing."""
    start, size = _directory(file)
    if size > _DIRECTORY_BYTES:
        raise too_large("the archive's directory is too long", f"{_DIRECTORY_BYTES} bytes")
    file.seek(start)
    entries, left = 0, size
    while left >= 46:
        record = file.read(46)
        if len(record) < 46 or record[:4] != _DIRECTORY_RECORD:
            raise damaged("its directory is damaged")
        extra = sum(struct.unpack("<3H", record[28:34]))
        file.seek(extra, 1)
        left -= 46 + extra
        entries += 1
        if entries > limits.entries:
            raise too_many_entries(limits.max_files)


def _directory(file: IO[bytes]) -> tuple[int, int]:
    """Where the directory begins and how long it is; zip tolerates bytes before the archive itself."""
    end = file.seek(0, 2)
    file.seek(max(0, end - _END_MAX))
    tail = file.read(_END_MAX)
    place = tail.rfind(_END)
    if place < 0 or len(tail) - place < 22:
        raise damaged("it was cut: the directory at its end is missing")
    size, offset = struct.unpack("<2L", tail[place + 12 : place + 20])
    at = end - len(tail) + place
    if 0xFFFFFFFF in (size, offset) or tail[place + 10 : place + 12] == b"\xff\xff":
        at, size = _directory_64(file, at, size)
    if size > at:
        raise damaged("its directory is damaged")
    return at - size, size


def _directory_64(file: IO[bytes], at: int, size: int) -> tuple[int, int]:
    """The same by the records of large archives, where they are there."""
    if at < 20 + 56:
        return at, size
    file.seek(at - 20 - 56)
    record = file.read(56 + 20)
    if record[56:60] != _LOCATOR or record[:4] != _END_64:
        return at, size
    return at - 20 - 56, int(struct.unpack("<Q", record[40:48])[0])
