"""Receive times of a console's bytes: the reader of the index."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from corral.runtimes.keeper.console_layout import INDEX_RECORD, index_name

_READ_BYTES: Final = 4096
_RECORD: Final = INDEX_RECORD.size


class Stamp(msgspec.Struct, frozen=True):
    """The bytes from this offset on, until the next stamp, were received at this time."""

    offset: int
    timestamp_ms: int


class TimeIndex:
    """The index of one segment. Continuing from the last position costs one read of the file."""

    def __init__(self, directory: str, first: int) -> None:
        self.first = first
        self._path = f"{directory}/{index_name(first)}"
        self._fd = -1
        self._next = 0  # number of the first record that lies behind `_from`
        self._from = -1
        self._current: Stamp | None = None

    def stamps(self, start: int, end: int) -> list[Stamp]:
        """The stamps of [start, end): first the one that holds at its start, then each change."""
        if self._fd < 0 and not self._open():
            return []
        if start < self._from:
            self._next, self._current = 0, None
        if self._current is None:
            self._find(start)
        self._from = start
        found = self._advance(start, end)
        if self._current is not None:
            found.insert(0, Stamp(start, self._current.timestamp_ms))
        return found

    def since(self, timestamp_ms: int) -> int | None:
        """The offset of the first byte received then or later; None: all came before. Without an index it is
        the start of the segment, because any byte may be that recent."""
        if self._fd < 0 and not self._open():
            return self.first
        low, high = 0, os.fstat(self._fd).st_size // _RECORD
        count = high
        while low < high:
            middle = (low + high) // 2
            record = os.pread(self._fd, _RECORD, middle * _RECORD)
            if len(record) == _RECORD and INDEX_RECORD.unpack(record)[1] < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        if low == count:
            return None if count else self.first
        return int(INDEX_RECORD.unpack(os.pread(self._fd, _RECORD, low * _RECORD))[0])

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        return True

    def _advance(self, start: int, end: int) -> list[Stamp]:
        """Go to `start`, and collect the changes before `end`; a record cut off at the end is ignored."""
        found: list[Stamp] = []
        position = self._next
        while True:
            block = os.pread(self._fd, _READ_BYTES, position * _RECORD)
            whole = len(block) - len(block) % _RECORD
            for offset, timestamp_ms in INDEX_RECORD.iter_unpack(block[:whole]):
                if offset >= end:
                    return found
                position += 1
                if offset <= start:
                    self._current = Stamp(offset, timestamp_ms)
                    self._next = position
                elif (
                    found and found[-1].offset == offset
                ):  # a writer died before it wrote the bytes of this record
                    found[-1] = Stamp(offset, timestamp_ms)
                else:
                    found.append(Stamp(offset, timestamp_ms))
            if whole < _READ_BYTES:
                return found

    def _find(self, start: int) -> None:
        """Bisect: records are in order, and there may be many before the one that applies."""
        low, high = 0, os.fstat(self._fd).st_size // _RECORD
        while low < high:
            middle = (low + high) // 2
            record = os.pread(self._fd, _RECORD, middle * _RECORD)
            if len(record) == _RECORD and INDEX_RECORD.unpack(record)[0] <= start:
                low = middle + 1
            else:
                high = middle
        self._next = max(0, low - 1)
