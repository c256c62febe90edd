"""The console on disk: a frozen format, shared by the writer in the shim and every reader.

A console is a directory. `<first>.log` are its segments, append-only; the name is the logical offset of the
first byte, so the size of a segment gives its end, and a hole between two segments is a gap. `<first>.idx`
holds when the bytes of that segment were received: records of (offset, unix ms), written before their bytes.
`gaps` is one page, written in full before the first byte is stored: a header and a ring of records of the
bytes that were discarded, and why.

Only the standard library is imported, and little of it: the shim pays for every module in each run. A writer
may be years older than its reader; numbers are little endian, nothing may change its meaning.
"""

from __future__ import annotations

import struct
import zlib

SEGMENT_SUFFIX = ".log"
INDEX_SUFFIX = ".idx"
GAPS_NAME = "gaps"

INDEX_RECORD = struct.Struct("<QQ")
"""Offset, unix ms: bytes from this offset on, until the next record, were received at this time."""
INDEX_INTERVAL = 0.05
"""At most one index record in so many seconds."""

GAPS_BYTES = 4096
GAPS_HEADER = b"corral-console 1\n".ljust(64, b"\0")
GAP_BYTES = 64
GAP_SLOTS = GAPS_BYTES // GAP_BYTES - 1
_GAP = struct.Struct("<QQQQQI")
_GAP_CHECK = struct.Struct("<I")

DISK_FULL = 1
DISK_QUOTA = 2
DISK_ERROR = 3
LOST = 4
"""No process stored them when the run ended. Their number is unknown: such a gap counts one byte, so that
every reader finds it."""
REMOVED = 5
"""They were stored, and the file was removed or truncated from outside."""

_DIGITS = 20


class GapRecord:
    """Bytes that were discarded instead of stored. Open (`ended_ms` 0) while that continues."""

    __slots__ = ("began_ms", "ended_ms", "from_offset", "reason", "sequence", "to_offset")

    def __init__(
        self,
        *,
        sequence: int,
        from_offset: int,
        to_offset: int,
        began_ms: int,
        ended_ms: int = 0,
        reason: int,
    ) -> None:
        self.sequence = sequence
        self.from_offset = from_offset
        self.to_offset = to_offset
        self.began_ms = began_ms
        self.ended_ms = ended_ms
        self.reason = reason

    @property
    def place(self) -> int:
        """The record's position in the file; it replaces the record one full ring before."""
        return GAP_BYTES * (1 + self.sequence % GAP_SLOTS)

    def packed(self) -> bytes:
        body = _GAP.pack(
            self.sequence, self.from_offset, self.to_offset, self.began_ms, self.ended_ms, self.reason
        )
        return (body + _GAP_CHECK.pack(zlib.crc32(body))).ljust(GAP_BYTES, b"\0")


def gap_records(page: bytes) -> list[GapRecord]:
    """The records of a `gaps` file, oldest first; empty, torn or short ones are left out."""
    found = []
    for place in range(GAP_BYTES, len(page) - GAP_BYTES + 1, GAP_BYTES):
        body = page[place : place + _GAP.size]
        (check,) = _GAP_CHECK.unpack_from(page, place + _GAP.size)
        if any(body) and zlib.crc32(body) == check:
            sequence, from_offset, to_offset, began_ms, ended_ms, reason = _GAP.unpack(body)
            found.append(
                GapRecord(
                    sequence=sequence,
                    from_offset=from_offset,
                    to_offset=to_offset,
                    began_ms=began_ms,
                    ended_ms=ended_ms,
                    reason=reason,
                )
            )
    return sorted(found, key=lambda record: record.sequence)


def segment_name(first: int) -> str:
    return f"{first:0{_DIGITS}d}{SEGMENT_SUFFIX}"


def index_name(first: int) -> str:
    return f"{first:0{_DIGITS}d}{INDEX_SUFFIX}"


def first_offsets(names: list[str], suffix: str = SEGMENT_SUFFIX) -> list[int]:
    """The first offsets of the segments among these file names, ascending; other files are ignored."""
    length = _DIGITS + len(suffix)
    return sorted(
        int(name[:_DIGITS])
        for name in names
        if len(name) == length and name.endswith(suffix) and name[:_DIGITS].isdecimal()
    )
