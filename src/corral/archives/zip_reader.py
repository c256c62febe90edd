"""Reading zip: its directory is counted before Python's reader takes it into memory."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Final

from corral.archives.entries import BLOCK, Entries, Entry, Limits, refuse_kind
from corral.archives.refusals import (
    damaged,
    entry_damaged,
    entry_refused,
    too_large,
    too_many_entries,
    unpacks_too_far,
)
from corral.archives.zip_end import ZipDamaged, ZipDirectoryTooLong, ZipTooManyEntries, count_entries

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


def read_zip(file: IO[bytes], limits: Limits, *, most: int | None = None) -> Entries:
    """Entries in the order of the archive's directory. What they say that they unpack to is compared with `most`
    before the first of them is read: none of them can give more than it says."""
    _count(file, limits)
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGE as error:
        raise damaged(str(error)) from error
    end = file.seek(0, 2)
    with archive:
        _refuse_sizes(sum(info.file_size for info in archive.infolist()), limits, most)
        for info in archive.infolist():
            entry = _entry(info)
            if not 0 <= info.header_offset < end:
                raise entry_damaged(entry.name, "its place is not in the archive")
            yield entry, iter(()) if entry.directory else _content(archive, info, entry.name)


def _refuse_sizes(total: int, limits: Limits, most: int | None) -> None:
    if total > limits.max_bytes:
        raise too_large("the archive unpacks to more than a template may have", f"{limits.max_bytes} bytes")
    if most is not None and total > most:
        raise unpacks_too_far()


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
    try:
        count_entries(file, most=limits.entries, most_bytes=_DIRECTORY_BYTES)
    except ZipDamaged as error:
        raise damaged(str(error)) from error
    except ZipDirectoryTooLong as error:
        raise too_large("the archive's directory is too long", f"{_DIRECTORY_BYTES} bytes") from error
    except ZipTooManyEntries as error:
        raise too_many_entries(limits.max_files) from error
