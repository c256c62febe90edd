"""The end of a zip archive: how long its directory really is, before Python's reader takes it into memory."""

from __future__ import annotations

import struct
from typing import IO, Final

from corral.modules.archive_refusals import damaged, too_large

_END: Final = b"PK\x05\x06"
_END_SIZE: Final = 22
_COMMENT_MAX: Final = 65535
_LOCATOR: Final = b"PK\x06\x07"
_END_64: Final = b"PK\x06\x06"
_RECORD: Final = b"PK\x01\x02"
_RECORD_SIZE: Final = 46
_DIRECTORY_BYTES: Final = 64 * 1024 * 1024


def count_entries(file: IO[bytes], most: int) -> None:
    """Refuse a directory of more entries than allowed; how many it says it has counts for nothing."""
    start, size = _directory(file)
    if size > _DIRECTORY_BYTES:
        raise too_large("the directory of the module's archive is too long", f"{_DIRECTORY_BYTES} bytes")
    file.seek(start)
    entries, left = 0, size
    while left >= _RECORD_SIZE:
        record = file.read(_RECORD_SIZE)
        if len(record) < _RECORD_SIZE or record[:4] != _RECORD:
            raise damaged("its directory is damaged")
        extra = sum(struct.unpack("<3H", record[28:34]))
        file.seek(extra, 1)
        left -= _RECORD_SIZE + extra
        entries += 1
        if entries > most:
            raise too_large("the module's archive has too many entries", f"{most} entries")
    if left:
        raise damaged("its directory is damaged")


def _directory(file: IO[bytes]) -> tuple[int, int]:
    """Where the directory begins and how long it is. The archive ends where its last record says."""
    end = file.seek(0, 2)
    file.seek(max(0, end - _END_SIZE - _COMMENT_MAX))
    tail = file.read(_END_SIZE + _COMMENT_MAX)
    place = tail.rfind(_END)
    if place < 0 or len(tail) - place < _END_SIZE:
        raise damaged("it was cut: the directory at its end is missing")
    size, comment = struct.unpack("<L4xH", tail[place + 12 : place + 22])
    if place + _END_SIZE + comment != len(tail):
        raise damaged("something follows its end")
    at, size = _directory_64(file, end - len(tail) + place, size)
    if size > at:
        raise damaged("its directory is damaged")
    return at - size, size


def _directory_64(file: IO[bytes], at: int, size: int) -> tuple[int, int]:
    """The same by the records of large archives, where they are there: Python's reader believes them even if
    the plain record does not point at them."""
    if at < 20 + 56:
        return at, size
    file.seek(at - 20 - 56)
    record = file.read(56 + 20)
    if record[56:60] != _LOCATOR or record[:4] != _END_64:
        return at, size
    return at - 20 - 56, int(struct.unpack("<Q", record[40:48])[0])
