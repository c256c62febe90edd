"""The files of a console as they are written: segments with their index, and the ring of gaps.

The newest segment is written, the oldest is dropped first. Gaps need no disk space once their page is
written, and recording one never fails: a gap that cannot be recorded is still visible as a hole between two
segments.
"""

from __future__ import annotations

import contextlib
import os
import time

from corral.runtimes.keeper.console_layout import (
    GAPS_BYTES,
    GAPS_HEADER,
    GAPS_NAME,
    INDEX_INTERVAL,
    INDEX_RECORD,
    INDEX_SUFFIX,
    LOST,
    GapRecord,
    first_offsets,
    gap_records,
    index_name,
    segment_name,
)

MAX_SEGMENTS = 1024
SMALLEST_SEGMENT = 4096
_INDEX_SHARE = 16
"""The index takes at most this part of a segment, and of the quota on top of it."""


class Segments:
    """`newest` is the descriptor that takes the next `room` bytes, -1 when there is none."""

    def __init__(self, directory_fd: int, *, segment_bytes: int, quota_bytes: int) -> None:
        self._directory = directory_fd
        self._quota = quota_bytes
        limit = min(segment_bytes, quota_bytes // 4) if quota_bytes else segment_bytes
        self.segment_bytes = max(SMALLEST_SEGMENT, limit)
        self.newest = self._index = -1
        self.room = self._first = self._index_end = self._inode = 0
        self._name = segment_name(0)
        self._older: list[tuple[int, int]] = []  # first offset and size, without the newest
        self._stamped_at = 0.0

    def resume(self) -> int:
        """Take over the files of the last writer; returns where its bytes end."""
        names = os.listdir(self._directory)  # noqa: PTH208 - a descriptor has no path
        firsts = first_offsets(names)
        for first in set(first_offsets(names, INDEX_SUFFIX)).difference(firsts):
            self._unlink(index_name(first))
        self._older = [(first, self._disk_bytes(first)) for first in firsts[:-1]]
        if not firsts:
            return 0
        self._first = firsts[-1]
        return self._first + self._size(segment_name(self._first))

    def reopen(self) -> None:
        """Continue in the newest segment; if that fails, `room` stays 0 and the next byte needs another
        segment."""
        with contextlib.suppress(OSError):
            self._open(self._first)

    def needs_rotation(self, end: int) -> bool:
        return self.room <= 0 or (self._index_end * _INDEX_SHARE >= self.segment_bytes and end > self._first)

    def rotate(self, end: int) -> None:
        """Begin the segment at this offset; the oldest are dropped to stay within the quota."""
        newest = self._first
        size = self._disk_bytes(newest) if newest < end else 0
        allowed = self._quota + self._quota // _INDEX_SHARE
        while self._older and (
            len(self._older) >= MAX_SEGMENTS
            or (self._quota and size + self.segment_bytes + sum(s for _, s in self._older) > allowed)
        ):
            self.drop_oldest()
        self.close()
        self._open(end)
        if size:  # only now: the newest segment is never dropped
            self._older.append((newest, size))

    def stamp(self, end: int) -> None:
        """Record the time of the next byte. A failure is ignored: the bytes matter more than their time."""
        now = time.monotonic()
        if self._index < 0 or now - self._stamped_at < INDEX_INTERVAL:
            return
        record = INDEX_RECORD.pack(end, time.time_ns() // 1_000_000)
        with contextlib.suppress(OSError):
            if os.pwrite(self._index, record, self._index_end) == INDEX_RECORD.size:  # else: no room for all
                self._index_end += INDEX_RECORD.size
                self._stamped_at = now

    def missing_from(self, end: int) -> int | None:
        """From which offset on bytes of the newest segment are gone, because its file was removed, moved or
        truncated from outside; None when all are there up to `end`."""
        if self.newest < 0:
            return None
        try:
            found = os.stat(self._name, dir_fd=self._directory)
        except FileNotFoundError:
            return self._first
        except OSError:
            return None
        if found.st_ino != self._inode:
            return self._first
        return self._first + found.st_size if found.st_size < end - self._first else None

    def drop_oldest(self) -> bool:
        """Drop the oldest segment; False when there is none but the newest."""
        if not self._older:
            return False
        first, _ = self._older.pop(0)
        self._forget(first)
        return True

    def abandon(self) -> None:
        """Stop writing to the newest segment; an empty one is removed."""
        self.close()
        if not self._size(segment_name(self._first)):
            self._forget(self._first)

    def close(self) -> None:
        for fd in (self.newest, self._index):
            if fd >= 0:
                os.close(fd)
        self.newest = self._index = -1
        self.room = 0

    def _open(self, first: int) -> None:
        # Not O_APPEND: splice refuses that.
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        self.newest = os.open(segment_name(first), flags, 0o600, dir_fd=self._directory)
        self.room = self.segment_bytes - os.lseek(self.newest, 0, os.SEEK_END)
        self._inode = os.fstat(self.newest).st_ino
        self._first, self._name = first, segment_name(first)
        self._index_end = 0
        self._stamped_at = 0.0
        with contextlib.suppress(OSError):
            self._index = os.open(index_name(first), flags, 0o600, dir_fd=self._directory)
            whole = os.fstat(self._index).st_size // INDEX_RECORD.size
            self._index_end = whole * INDEX_RECORD.size

    def _forget(self, first: int) -> None:
        self._unlink(segment_name(first))
        self._unlink(index_name(first))

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(
            OSError
        ):  # gone already, or it cannot be removed: neither changes anything here
            os.unlink(name, dir_fd=self._directory)

    def _disk_bytes(self, first: int) -> int:
        return self._size(segment_name(first)) + self._size(index_name(first))

    def _size(self, name: str) -> int:
        with contextlib.suppress(OSError):
            return os.stat(name, dir_fd=self._directory).st_size
        return 0


class GapRing:
    """Records discarded bytes. At most one gap is open, the newest."""

    __slots__ = ("_directory", "_fd", "_next", "_open", "newest_end", "newest_reason")

    def __init__(self, directory_fd: int) -> None:
        self._directory = directory_fd
        self._fd = _page(directory_fd)
        records = gap_records(_content(self._fd))
        newest = records[-1] if records else None
        self._next = newest.sequence + 1 if newest else 1
        self._open = newest if newest and not newest.ended_ms else None
        self.newest_end = newest.to_offset if newest else 0
        """The end of the newest gap when this was made, open or not."""
        self.newest_reason = newest.reason if newest else 0

    @property
    def open_until(self) -> int | None:
        """The end of the open gap; None when there is none."""
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
        """Record a gap that is over."""
        self.begin(from_offset, reason)
        self.grow(to_offset)
        self.end()

    def add_loss(self, end_offset: int) -> int:
        """Record that bytes behind this end of the console are unknown; returns the new end. Idempotent."""
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
        """Whether the file was removed, so that no reader can see what is written to it."""
        with contextlib.suppress(OSError):
            return self._fd < 0 or os.fstat(self._fd).st_nlink == 0
        return False

    def _write(self, record: GapRecord) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, record.packed(), record.place)


def _page(directory_fd: int) -> int:
    """The file with its whole page written; -1 when the disk refuses even that."""
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
