"""The reader of a console. It works beside a live writer, and beside a writer that died at any instruction:
it returns the bytes that are there, and a gap for those that are not."""

from __future__ import annotations

import bisect
import contextlib
import os
from collections.abc import Iterator
from typing import Final

import msgspec

from corral.runtimes.console.lines import Line, pieces, text_of
from corral.runtimes.console.time_index import Stamp, TimeIndex
from corral.runtimes.keeper import console_layout as layout
from corral.runtimes.keeper.console_writer import GapRing

RETENTION: Final = "retention"
UNKNOWN: Final = "unknown"
REASONS: Final = {
    layout.DISK_FULL: "disk-full",
    layout.DISK_QUOTA: "disk-quota",
    layout.DISK_ERROR: "disk-error",
    layout.REMOVED: "removed",
}
TAIL_BYTES: Final = 256 * 1024
_READ_BYTES: Final = 1 << 20
_LOOK_BYTES: Final = 16 * 1024
_ATTEMPTS: Final = 16


def note_loss(directory: str) -> None:
    """Record a gap at the end of a console: the run ended unseen with its host, or its bytes go elsewhere, so
    something may be missing. Idempotent; for a console without a writer."""
    with ConsoleLog(directory) as log:
        end = log.end_offset
    try:
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        ring = GapRing(opened)
        ring.add_loss(end)
        ring.close()
    finally:
        os.close(opened)


class ConsoleGap(msgspec.Struct, frozen=True):
    """Bytes that are missing: [from_offset, to_offset)."""

    from_offset: int
    to_offset: int
    reason: str


class Block(msgspec.Struct, frozen=True):
    """Consecutive bytes. `gap_before`, when there is one, ends where they begin."""

    offset: int
    data: bytes
    gap_before: ConsoleGap | None = None

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class ConsoleLog:
    """One console. Not for two threads at once; any number may be open. A console whose directory is gone is
    empty. Use as a context manager, or call `release` when done: nothing else is held."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = os.fspath(directory)
        self._firsts: list[int] = []
        self._fd = -1
        self._first = 0
        self._listed_at = 0
        self._index: TimeIndex | None = None
        self._gap_page = b""
        self._gap_records: list[layout.GapRecord] = []

    def __enter__(self) -> ConsoleLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def first_offset(self) -> int:
        """The offset of the oldest byte that is still there; the end of the console when it has none."""
        self._list()
        return self._firsts[0] if self._firsts else self._open_gap_end()

    @property
    def end_offset(self) -> int:
        """The offset of the next byte."""
        self._list()
        stored = self._firsts[-1] + self._size(self._firsts[-1]) if self._firsts else 0
        return max(stored, self._open_gap_end())

    def fingerprint(self) -> tuple[int, ...]:
        """A value that changes when bytes were added or dropped; much cheaper than to read. File times are
        exact only within a few milliseconds, so an equal value does not prove that nothing changed."""
        newest = self._size(self._firsts[-1]) if self._firsts else 0
        try:
            gaps = os.stat(f"{self._directory}/{layout.GAPS_NAME}").st_mtime_ns  # noqa: PTH116 - often
            return os.stat(self._directory).st_mtime_ns, newest, gaps  # noqa: PTH116
        except FileNotFoundError:
            return (newest,)

    def read(self, offset: int, limit: int) -> Block:
        """Bytes from this offset on, out of one segment, so possibly fewer than there are. Missing bytes are
        skipped: the block begins behind its gap. A block without data: there is none yet."""
        if self._fd >= 0 and self._first <= offset:
            data = os.pread(self._fd, limit, offset - self._first)
            if data:
                return Block(offset, data)
        return self._look(offset, limit)

    def read_on(self, offset: int, limit: int) -> Block:
        """Like `read`, for repeated polling: much cheaper when nothing is new. A segment that was begun or
        dropped in the very moment of the last call may not be seen; so call `read` now and then."""
        if self._fd < 0 or self._first > offset:
            return self.read(offset, limit)
        data = os.pread(self._fd, limit, offset - self._first)
        if data or not self._changed():
            return Block(offset, data)
        return self._look(offset, limit)

    def _changed(self) -> bool:
        """Whether files came or went since the last call."""
        try:
            changed_at = os.stat(self._directory).st_mtime_ns  # noqa: PTH116 - often
        except FileNotFoundError:
            return True
        changed, self._listed_at = changed_at != self._listed_at, changed_at
        return changed

    def blocks(self, start: int, end: int) -> Iterator[Block]:
        """All stored blocks of [start, end), in order."""
        while start < end:
            block = self.read(start, min(_READ_BYTES, end - start))
            if not block.data or block.offset >= end:
                return
            yield (
                block
                if block.end <= end
                else Block(block.offset, block.data[: end - block.offset], block.gap_before)
            )
            start = block.end

    def times(self, start: int, end: int) -> list[Stamp]:
        """When the bytes of [start, end) were received: first the time that holds at the start, then each
        change. Cheap when it continues where the last call stopped, within a segment."""
        found: list[Stamp] = []
        at = bisect.bisect_right(self._firsts, start) - 1
        if at < 0 or self._fd < 0:
            self._list()
            at = max(0, bisect.bisect_right(self._firsts, start) - 1)
        while at < len(self._firsts) and self._firsts[at] < end:
            limit = self._firsts[at + 1] if at + 1 < len(self._firsts) else end
            found += self._index_of(self._firsts[at]).stamps(max(start, self._firsts[at]), min(end, limit))
            at += 1
        return found

    def since(self, timestamp_ms: int) -> int:
        """The offset of the first byte received then or later; the end of the console when there is none yet.
        A clock that was set back may have put some of them before it."""
        self._list()
        low, high = 0, len(self._firsts)
        found: int | None = None
        while low < high:  # the first segment that has such bytes
            middle = (low + high) // 2
            begin = self._index_of(self._firsts[middle]).since(timestamp_ms)
            if begin is None:
                low = middle + 1
            else:
                high, found = middle, begin
        return self.end_offset if found is None else found

    def gaps(self, start: int, end: int) -> list[ConsoleGap]:
        """The gaps in [start, end)."""
        self._list()
        found: list[ConsoleGap] = []
        reached = 0
        for first in self._firsts:
            found += self._hole(max(start, reached), min(end, first))
            reached = first + self._size(first)
        return found + self._hole(max(start, reached), min(end, self._open_gap_end()))

    def lines(self, start: int, end: int) -> Iterator[Line]:
        """Lines for display. A line that continues behind a read of 1 MiB is cut there, too."""
        rest, rest_at = b"", start
        for block in self.blocks(start, end):
            if rest and rest_at + len(rest) != block.offset:
                yield from self._shown(rest, rest_at)
                rest = b""
            data, at = rest + block.data, block.offset - len(rest)
            cut = data.rfind(b"\n") + 1
            if not cut and len(data) > _READ_BYTES:
                cut = len(data)
            yield from self._shown(data[:cut], at)
            rest, rest_at = data[cut:], at + cut
        yield from self._shown(rest, rest_at)

    def tail(self, lines: int, max_bytes: int = TAIL_BYTES) -> list[Line]:
        """The last lines, of at most so many bytes; a line that begins before these is left out, unless it is
        the only one."""
        end = self.end_offset
        start = self.line_start(max(self.first_offset, end - max_bytes), end)
        found = list(self.lines(start, end))
        return found[-lines:] if lines else []

    def line_start(self, offset: int, end: int) -> int:
        """The first offset from here on at which a line begins; `offset` itself when there is none."""
        if offset <= self.first_offset:
            return offset
        at = offset - 1
        while at < min(end, offset + _READ_BYTES):
            block = self.read(at, _LOOK_BYTES)
            if block.gap_before is not None:
                return block.offset if block.offset < end else offset
            newline = block.data.find(b"\n")
            if newline >= 0:
                return at + newline + 1 if at + newline + 1 < end else offset
            if not block.data:
                break
            at = block.end
        return offset

    def stored_end(self, offset: int) -> int:
        """The end of the last byte that is stored before this offset; 0 when there is none."""
        self._list()
        for first in reversed(self._firsts):
            if first < offset and (size := self._size(first)):
                return min(offset, first + size)
        return 0

    def release(self) -> None:
        """Close the files; reading again opens them again. An unlinked segment takes disk space until then."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._index is not None:
            self._index.close()
            self._index = None

    def release_old(self) -> None:
        """Close a segment that is not the newest any more: it may have been dropped to make room."""
        self._list()
        if self._firsts and self._first != self._firsts[-1]:
            self.release()

    def _shown(self, data: bytes, offset: int) -> Iterator[Line]:
        stamps = self.times(offset, offset + len(data)) if data else []
        at = -1
        for start, piece in pieces(data, offset):
            while at + 1 < len(stamps) and stamps[at + 1].offset <= start:
                at += 1
            yield Line(
                offset=start, timestamp_ms=stamps[at].timestamp_ms if at >= 0 else 0, text=text_of(piece)
            )

    def _look(self, offset: int, limit: int) -> Block:
        """Find the segment that holds this offset. The writer may drop it meanwhile, so a bounded number of
        tries."""
        for _ in range(_ATTEMPTS):
            self._list()
            try:
                return self._look_once(offset, limit)
            except FileNotFoundError:
                self.release()
        return Block(offset, b"")

    def _look_once(self, offset: int, limit: int) -> Block:
        at = bisect.bisect_right(self._firsts, offset) - 1
        if at >= 0:
            self._open(self._firsts[at])
            data = os.pread(self._fd, limit, offset - self._first)
            if data:
                return Block(offset, data)
        if at + 1 == len(self._firsts):  # behind the newest: an open gap, or simply the end
            return self._behind(offset)
        # The next segment existed before the end of this one was read: this one is complete.
        following = self._firsts[at + 1]
        self._open(following)
        return Block(following, os.pread(self._fd, limit, 0), self._gap(offset, following))

    def _behind(self, offset: int) -> Block:
        """The position behind the last byte; a gap that begins further on has bytes before it that just came."""
        for record in self._noted():
            if record.from_offset <= offset < record.to_offset:
                gap = ConsoleGap(offset, record.to_offset, REASONS.get(record.reason, UNKNOWN))
                return Block(record.to_offset, b"", gap)
        return Block(offset, b"")

    def _open(self, first: int) -> None:
        # An empty segment may have been dropped and begun again under its name.
        if self._fd >= 0 and self._first == first and os.fstat(self._fd).st_nlink:
            return
        fd = os.open(f"{self._directory}/{layout.segment_name(first)}", os.O_RDONLY | os.O_CLOEXEC)
        self.release()
        self._fd, self._first = fd, first

    def _index_of(self, first: int) -> TimeIndex:
        if self._index is None or self._index.first != first:
            if self._index is not None:
                self._index.close()
            self._index = TimeIndex(self._directory, first)
        return self._index

    def _list(self) -> None:
        try:
            self._firsts = layout.first_offsets(os.listdir(self._directory))  # noqa: PTH208 - names alone
        except (FileNotFoundError, NotADirectoryError):
            self._firsts = []

    def _size(self, first: int) -> int:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(f"{self._directory}/{layout.segment_name(first)}").st_size  # noqa: PTH116
        return 0

    def _hole(self, start: int, end: int) -> list[ConsoleGap]:
        return [self._gap(start, end)] if start < end else []

    def _gap(self, start: int, end: int) -> ConsoleGap:
        return ConsoleGap(start, end, self._reason(start, end))

    def _reason(self, start: int, end: int) -> str:
        for record in self._noted():
            if record.from_offset < end and record.to_offset > start:
                return REASONS.get(record.reason, UNKNOWN)
        return RETENTION if not self._firsts or start < self._firsts[0] else UNKNOWN

    def _open_gap_end(self) -> int:
        """The end of the newest gap. Bytes may be stored behind it by now; none lie within."""
        noted = self._noted()
        return noted[-1].to_offset if noted else 0

    def _noted(self) -> list[layout.GapRecord]:
        try:
            fd = os.open(f"{self._directory}/{layout.GAPS_NAME}", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return []
        try:
            page = os.pread(fd, layout.GAPS_BYTES, 0)
        finally:
            os.close(fd)
        if page != self._gap_page:
            self._gap_page, self._gap_records = page, layout.gap_records(page)
        return self._gap_records
