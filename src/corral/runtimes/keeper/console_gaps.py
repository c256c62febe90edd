"""The writer's side of the `gaps` file. Nothing here needs space on the disk once the page is written,
and nothing here fails: a gap that cannot be noted is still visible as a hole between two segments."""

from __future__ import annotations

import contextlib
import os
import time

from corral.runtimes.keeper.console_layout import (
    GAPS_BYTES,
    GAPS_HEADER,
    GAPS_NAME,
    LOST,
    GapRecord,
    gap_records,
)


class GapRing:
    """Notes what is discarded. At most one gap is open, the newest."""

    __slots__ = ("_directory", "_fd", "_next", "_open", "newest_end", "newest_reason")

    def __init__(self, directory_fd: int) -> None:
        self._directory = directory_fd
        self._fd = _page(directory_fd)
        records = gap_records(_content(self._fd))
        newest = records[-1] if records else None
        self._next = newest.sequence + 1 if newest else 1
        self._open = newest if newest and not newest.ended_ms else None
        self.newest_end = newest.to_offset if newest else 0
        """Up to where the newest gap reached when this was made, open or not."""
        self.newest_reason = newest.reason if newest else 0

    @property
    def open_until(self) -> int | None:
        """Up to where the open gap reaches; None when there is none."""
        return self._open.to_offset if self._open else None

    def begin(self, offset: int, reason: int) -> None:
        if self._is_removed():
            self.close()
            self._fd = _page(self._directory)
        self._open = GapRecord(
            sequence=self._next, from_offset=offset, to_offset=offset, began_ms=_now(), reason=reason
        )
        self._next += 1
        self._write(self._open)

    def add(self, from_offset: int, to_offset: int, reason: int) -> None:
        """Note a gap that is over."""
        self.begin(from_offset, reason)
        self.grow(to_offset)
        self.end()

    def add_loss(self, end_offset: int) -> int:
        """Nobody knows what came behind this end of the console; where it ends now. Idempotent."""
        if self.newest_reason == LOST and self.newest_end == end_offset:
            return end_offset
        self.add(end_offset, end_offset + 1, LOST)
        return end_offset + 1

    def grow(self, to_offset: int) -> None:
        if self._open is not None:
            self._open.to_offset = to_offset
            self._write(self._open)

    def end(self) -> None:
        if self._open is not None:
            self._open.ended_ms = _now()
            self._write(self._open)
            self._open = None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _is_removed(self) -> bool:
        """Somebody has, and what we write nobody reads."""
        with contextlib.suppress(OSError):
            return self._fd < 0 or os.fstat(self._fd).st_nlink == 0
        return False

    def _write(self, record: GapRecord) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, record.packed(), record.place)


def _page(directory_fd: int) -> int:
    """The file, all of its page written; -1 when the disk refuses even that."""
    try:
        fd = os.open(GAPS_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory_fd)
    except OSError:
        return -1
    with contextlib.suppress(OSError):  # what could be written is used
        size = os.fstat(fd).st_size
        if size < GAPS_BYTES:
            page = GAPS_HEADER.ljust(GAPS_BYTES, b"\0")
            os.pwrite(fd, page[size:], size)
    return fd


def _content(fd: int) -> bytes:
    try:
        return os.pread(fd, GAPS_BYTES, 0)
    except OSError:
        return b""


def _now() -> int:
    return time.time_ns() // 1_000_000
