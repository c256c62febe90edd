"""Feed of one console to the controller: what was sent, what was acknowledged, what comes next; and the credit of bytes
in flight: a floor, and more by bandwidth × delay."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from typing import Final, NamedTuple

import msgspec

from corral.runtimes.console.lines import DISPLAY_BYTES, Line, pieces, text_of
from corral.runtimes.console.log import ConsoleLog
from corral.wire.v1.instance_pb2 import ConsoleBatch, ConsolePosition

FLOOR_BYTES: Final = 256 * 1024
CEILING_BYTES: Final = 4 * 1024 * 1024
_MEMORY_SECONDS: Final = 5.0
_HEADROOM: Final = 2.0
"""The bytes in flight are twice the capacity of the line: so the line never runs empty, a faster line is detected, and
a slow one is not filled further."""
_SHORTEST: Final = 1e-4


class Departure(msgspec.Struct, frozen=True):
    """State at the time some bytes were sent."""

    size: int
    at: float
    delivered: int


class SendCredit:
    """Counts the bytes in flight and adapts to each acknowledgement. Pure: the time is a parameter."""

    def __init__(self) -> None:
        self.limit = FLOOR_BYTES
        self.under_way = 0
        self._delivered = 0
        self._rates = [0.0, 0.0]  # the best of this span of time, and of the previous one
        self._delay = float("inf")
        """The shortest ever: later ones include the queue that our own sending makes, and would raise the credit
        further. A line that became longer gets less than it could take, but never less than the floor."""
        self._span_began = 0.0

    @property
    def left(self) -> int:
        return max(0, self.limit - self.under_way)

    def departed(self, size: int, now: float) -> Departure:
        self.under_way += size
        return Departure(size, now, self._delivered)

    def arrived(self, departures: list[Departure], now: float) -> None:
        """Blocks were acknowledged together. The one sent last has the most information about the line."""
        for departure in departures:
            self.under_way -= departure.size
            self._delivered += departure.size
        self._turn(now)
        departure = max(departures, key=_left_at)
        delay = max(_SHORTEST, now - departure.at)
        self._rates[0] = max(self._rates[0], (self._delivered - departure.delivered) / delay)
        self._delay = min(self._delay, delay)
        line_holds = max(self._rates) * self._delay
        self.limit = int(min(CEILING_BYTES, max(FLOOR_BYTES, _HEADROOM * line_holds)))

    def lost(self, departures: list[Departure]) -> None:
        """Blocks will not be acknowledged any more: their console was removed."""
        self.under_way -= sum(departure.size for departure in departures)

    def _turn(self, now: float) -> None:
        """Drop old rates: lines change."""
        if now - self._span_began >= _MEMORY_SECONDS:
            self._span_began = now
            self._rates = [0.0, self._rates[0]]


def _left_at(departure: Departure) -> float:
    return departure.at


BLOCK_BYTES: Final = 64 * 1024
BEGIN_BEFORE_END: Final = 256 * 1024
"""A console unknown to the controller is sent from so many bytes before its end."""
_OVERHEAD: Final = 80


class ConsoleKey(NamedTuple):
    instance_id: str
    incarnation: int


class ConsoleSource:
    """The state of one console. Offsets never step back within a connection."""

    def __init__(self, key: ConsoleKey, directory: str, *, ended: bool = False, nonce: str = "") -> None:
        self.key = key
        self.nonce = nonce
        """The nonce of its run; empty: not known."""
        self.directory = directory
        self.ended = ended
        self.watched = False
        self.sent = -1
        """Where the next block begins; -1 until a connection has set the beginning."""
        self.acknowledged = 0
        self._settled = False
        self._fingerprint: tuple[int, ...] = ()
        self.grew_at = 0.0
        self.looked_at = -math.inf
        """When it was last found to have nothing new."""
        self._log = ConsoleLog(directory)
        self._under_way: deque[tuple[int, Departure]] = deque()

    @property
    def settled(self) -> bool:
        """Ended, and the controller has all of it."""
        if self.ended and not self._settled and self.acknowledged >= self.sent >= 0:
            with contextlib.suppress(OSError):
                self._settled = self.sent >= self._log.end_offset
        return self._settled

    def begin(self, position: ConsolePosition | None) -> None:
        """A new connection: continue at the controller's position, or a little before the end."""
        self._under_way.clear()
        self.sent = -1  # until it is known: bytes sent by the last connection may never have arrived
        end = self._log.end_offset
        if position is not None and position.offset <= end and self._is_of(position):
            self.sent = position.offset
            self.watched = position.watched
        else:
            before = max(self._log.first_offset, end - BEGIN_BEFORE_END)
            self.sent = self._log.line_start(before, end)
            self.watched = position is not None and position.watched
        self.acknowledged = self.sent
        self._settled = False

    def _is_of(self, position: ConsolePosition) -> bool:
        """Whether the position is of this run, and not of another that had its number."""
        return not self.nonce or position.nonce in ("", self.nonce)

    def add_block(self, batch: ConsoleBatch, limit: int, *, thorough: bool = False) -> int:
        """Put the next block into the batch, cut at the last line break where there is one; returns its number of
        bytes, 0 when there is nothing. Only a `thorough` check finds it reliably."""
        block = self._log.read(self.sent, limit) if thorough else self._log.read_on(self.sent, limit)
        if not block.data and block.gap_before is None:
            return 0
        cut = block.data.rfind(b"\n") + 1 or len(block.data)
        data = block.data if cut == len(block.data) else block.data[:cut]
        stamps = self._log.times(block.offset, block.offset + cut)  # may fail: nothing has departed then
        message = batch.blocks.add(
            instance_id=self.key.instance_id,
            incarnation=self.key.incarnation,
            offset=block.offset,
            data=data,
            nonce=self.nonce,
        )
        self.sent = block.offset + cut
        for stamp in stamps:
            message.times.add(offset=stamp.offset, timestamp_ms=stamp.timestamp_ms)
        if (gap := block.gap_before) is not None:
            message.gaps.add(from_offset=gap.from_offset, to_offset=gap.to_offset, reason=gap.reason)
        return cut + _OVERHEAD

    def departed(self, departure: Departure) -> None:
        self._under_way.append((self.sent, departure))

    def arrived(self, offset: int) -> list[Departure]:
        """The controller has everything before `offset`; more than was sent is not possible."""
        self.acknowledged = max(self.acknowledged, min(offset, self.sent))
        found = []
        while self._under_way and self._under_way[0][0] <= offset:
            found.append(self._under_way.popleft()[1])
        return found

    def forget_under_way(self) -> list[Departure]:
        gone = [departure for _, departure in self._under_way]
        self._under_way.clear()
        return gone

    def next_lines(self, limit: int, *, max_lines: int, partial: bool) -> list[Line]:
        """Lines for a controller that takes them one by one; an unfinished one only with `partial`."""
        block = self._log.read(self.sent, limit)
        following = self._log.read(block.end, limit)  # the rest of a line may be in the next segment
        data = block.data + following.data if following.offset == block.end else block.data
        partial = partial or following.gap_before is not None
        self.sent = block.offset
        found: list[Line] = []
        for offset, piece in itertools.islice(pieces(data, block.offset), max_lines):
            if not partial and not piece.endswith(b"\n") and len(piece) < DISPLAY_BYTES:
                break
            stamps = self._log.times(offset, offset + 1)
            received = stamps[0].timestamp_ms if stamps else 0
            found.append(Line(offset=offset, timestamp_ms=received, text=text_of(piece)))
            self.sent = self.acknowledged = offset + len(piece)  # this controller acknowledges nothing
        return found

    def note_quiet(self) -> None:
        self._fingerprint = self._log.fingerprint()

    def note_unreadable(self) -> None:
        """Log it; whatever was wrong, the read is retried."""
        self._fingerprint = ()
        self.looked_at = -math.inf
        self.release()

    def changed_since_quiet(self) -> bool:
        with contextlib.suppress(OSError):
            return self._fingerprint != self._log.fingerprint()
        return True

    def release(self) -> None:
        self._log.release()

    def release_old(self) -> None:
        with contextlib.suppress(OSError):
            self._log.release_old()
