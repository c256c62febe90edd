"""A part of a console: bytes with their offsets on the node, their times, and gaps."""

from __future__ import annotations

import bisect
import datetime as dt
import operator
from collections.abc import Sequence
from typing import Final

import msgspec

from corral.wire.v1.instance_pb2 import ConsoleGap

_LONGEST_REASON: Final = 500
_OFFSET: Final = operator.itemgetter(0)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: later times of a peer are invalid."""


class MissingBytes(msgspec.Struct, frozen=True):
    """Bytes that the console had and that are not kept anywhere."""

    from_offset: int
    to_offset: int
    reason: str


def missing_bytes(gap: ConsoleGap) -> MissingBytes:
    """The gap that a node reported. The reason is cut before it is kept."""
    return MissingBytes(gap.from_offset, gap.to_offset, gap.reason[:_LONGEST_REASON])


class Piece(msgspec.Struct, frozen=True):
    """Consecutive bytes, the first of them at `offset`."""

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Times:
    """Times of bytes: each entry applies from its offset up to the next one's."""

    def __init__(self, entries: Sequence[tuple[int, int]]) -> None:
        self._entries = entries
        self._known: dict[int, dt.datetime] = {}

    def at(self, offset: int) -> dt.datetime | None:
        """The time of the byte at this offset; None when unknown."""
        index = bisect.bisect_right(self._entries, offset, key=_OFFSET) - 1
        if index < 0:
            return None
        ms = self._entries[index][1]
        known = self._known.get(ms)
        if known is None:  # many lines share an entry
            known = self._known[ms] = moment(ms)
        return known


class ConsoleSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes found after an offset. Pieces follow one another; a gap lies between those that are not
    adjacent."""

    pieces: tuple[Piece, ...]
    times: Sequence[tuple[int, int]]
    gaps: tuple[MissingBytes, ...]
    first_offset: int
    """The oldest byte that is still available."""
    end_offset: int
    """The end of the console at the time of the read."""
    next_offset: int
    """The offset to continue from."""


EMPTY: Final = ConsoleSpan(pieces=(), times=(), gaps=(), first_offset=0, end_offset=0, next_offset=0)


def moment(ms: int) -> dt.datetime:
    """A node's milliseconds as a valid time."""
    if not 0 <= ms <= _LATEST_MS:
        ms = min(max(0, ms), _LATEST_MS)
    seconds, rest = divmod(ms, 1000)
    return _EPOCH + dt.timedelta(0, seconds, rest * 1000)


def runs(pieces: Sequence[Piece]) -> list[Piece]:
    """The same bytes with adjacent pieces joined: between two of the result bytes are missing."""
    joined: list[tuple[int, list[bytes]]] = []
    end = -1
    for piece in pieces:
        if joined and piece.offset == end:
            joined[-1][1].append(piece.data)
        else:
            joined.append((piece.offset, [piece.data]))
        end = piece.end
    return [Piece(offset, parts[0] if len(parts) == 1 else b"".join(parts)) for offset, parts in joined]


def without_first_byte(span: ConsoleSpan) -> ConsoleSpan:
    """The span from its second byte on; one without any bytes as it is."""
    if not span.pieces:
        return span
    first, *rest = span.pieces
    kept = [Piece(first.offset + 1, first.data[1:])] if len(first.data) > 1 else []
    return msgspec.structs.replace(span, pieces=(*kept, *rest))
