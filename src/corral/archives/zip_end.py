"""The end of a zip archive: how long its directory really is, before Python's reader takes it into memory."""

from __future__ import annotations

import struct
from typing import IO, Final

_END: Final = b"PK\x05\x06"
_END_SIZE: Final = 22
_COMMENT_MAX: Final = 65535
_LOCATOR: Final = b"PK\x06\x07"
_END_64: Final = b"PK\x06\x06"
_RECORD: Final = b"PK\x01\x02"
_RECORD_SIZE: Final = 46


class ZipDamaged(Exception):
    """Its directory cannot be followed; the text says why."""


class ZipDirectoryTooLong(Exception):
    """Its directory has more bytes than allowed."""


class ZipTooManyEntries(Exception):
    """Its directory has more entries than allowed."""


def count_entries(file: IO[bytes], *, most: int, most_bytes: int, sealed: bool = False) -> None:
    """Refuse a directory of more than allowed; how many entries it says it has counts for nothing.
    `sealed`: nothing may follow the archive's last record and its comment."""
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
    """Where the directory begins and how long it is; zip tolerates bytes before the archive itself."""
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
    """The same by the records of large archives, where they are there: Python's reader believes them even
    if the plain record does not point at them."""
    if at < 20 + 56:
        return at, size
    file.seek(at - 20 - 56)
    record = file.read(56 + 20)
    if record[56:60] != _LOCATOR or record[:4] != _END_64:
        return at, size
    return at - 20 - 56, int(struct.unpack("<Q", record[40:48])[0])
