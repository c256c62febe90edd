"""The newest bytes of each run's console in memory, with the offsets and times of the node, and the bound on their sum."""

from __future__ import annotations

import array
import bisect
import collections
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from corral.controller.consoles.span import ConsoleSpan, MissingBytes, Piece
from corral.domain.ids import Incarnation, InstanceId

RING_BYTES: Final = 256 * 1024
ENDED_BYTES: Final = 64 * 1024
_MERGE_BYTES: Final = 8 * 1024
_MAX_TIMES: Final = 8192
_MAX_GAPS: Final = 256
_TIME_BYTES: Final = 16


class ConsoleRing:
    """Holds the bytes from `begin` to `end`, at least `capacity` of them once that many have arrived.

    Older bytes are on the node. A gap that the node does not explain is never kept inside: the ring then
    starts again behind it, and readers query the node.
    """

    __slots__ = (
        "_gaps",
        "_moments",
        "_pieces",
        "_since",
        "_starts",
        "begin",
        "capacity",
        "end",
        "nonce",
        "oldest",
        "shared",
        "size",
        "writer",
    )

    def __init__(self, *, begin: int, capacity: int = RING_BYTES, writer: str = "") -> None:
        self.nonce = ""
        """The nonce of the run, once its node sent it."""
        self.writer = writer
        """The node that writes it."""
        self.begin = begin
        self.oldest = 0
        """The first byte that the node keeps, as of its last answer."""
        self.end = begin
        self.size = 0
        self.capacity = capacity
        self.shared: dict[object, Any] = {}
        """Messages encoded by readers at the same position; cleared by every change."""
        self._pieces: list[Piece] = []
        self._starts: list[int] = []
        self._since = array.array("Q")  # bytes from this offset on arrived at the time of the same index:
        self._moments = array.array("q")
        self._gaps: list[MissingBytes] = []

    @property
    def memory(self) -> int:
        """The approximate memory use: short lines with pauses have more times than bytes."""
        return self.size + _TIME_BYTES * len(self._since)

    def append(
        self,
        offset: int,
        data: bytes,
        *,
        times: Sequence[tuple[int, int]] = (),
        gaps: Sequence[MissingBytes] = (),
    ) -> None:
        """Append the next bytes. Bytes that are here already are skipped."""
        self._skip(offset, gaps)
        if offset < self.end:
            data = data[self.end - offset :]
            offset = self.end
        if not data:
            return
        for since, moment in times:
            if offset <= since < offset + len(data):
                self._note(since, moment)
        self._add(Piece(offset, data))
        self._trim()
        self.shared.clear()

    def _note(self, since: int, moment: int) -> None:
        """Record a time; times only grow, and a repeated one is stored once."""
        if not self._since or (since > self._since[-1] and moment != self._moments[-1]):
            self._since.append(since)
            self._moments.append(moment)

    def _skip(self, offset: int, gaps: Sequence[MissingBytes]) -> None:
        """Move over missing bytes; drop everything when the node does not explain them."""
        for gap in gaps:
            if gap.from_offset <= self.end < gap.to_offset:
                self._gaps.append(MissingBytes(self.end, gap.to_offset, gap.reason))
                self.end = gap.to_offset
                self.shared.clear()
        del self._gaps[:-_MAX_GAPS]
        if offset > self.end:
            self._pieces.clear()
            self._starts.clear()
            self._gaps.clear()
            del self._since[:], self._moments[:]
            self.size = 0
            self.begin = self.end = offset
            self.shared.clear()

    def _add(self, piece: Piece) -> None:
        last = self._pieces[-1] if self._pieces else None
        if last is not None and last.end == piece.offset and len(last.data) + len(piece.data) <= _MERGE_BYTES:
            self._pieces[-1] = Piece(last.offset, last.data + piece.data)
        else:
            self._pieces.append(piece)
            self._starts.append(piece.offset)
        self.size += len(piece.data)
        self.end = piece.end

    def _trim(self) -> None:
        """Drop the oldest pieces that are not needed to hold `capacity` bytes."""
        surplus = 0
        while (
            surplus < len(self._pieces) - 1 and self.size - len(self._pieces[surplus].data) >= self.capacity
        ):
            self.size -= len(self._pieces[surplus].data)
            surplus += 1
        del self._pieces[:surplus], self._starts[:surplus]
        only = self._pieces[0]
        if len(only.data) > 2 * self.capacity:
            cut = Piece(only.end - self.capacity, only.data[-self.capacity :])
            self.size -= len(only.data) - len(cut.data)
            self._pieces[0], self._starts[0] = cut, cut.offset
            surplus += 1
        if surplus:
            self.begin = self._starts[0]
            self._gaps = [gap for gap in self._gaps if gap.to_offset > self.begin]
        if surplus or len(self._since) > _MAX_TIMES:
            keep = bisect.bisect_right(self._since, self.begin) - 1
            gone = max(keep, len(self._since) - _MAX_TIMES, 0)
            del self._since[:gone], self._moments[:gone]

    def shrink(self, capacity: int) -> None:
        """Reduce the capacity."""
        self.capacity = min(self.capacity, capacity)
        if self._pieces:
            self._trim()
            self.shared.clear()

    def reaches(self, offset: int) -> bool:
        """Whether everything from this offset on is here."""
        return self.begin <= offset <= self.end

    def span(self, after: int, *, max_bytes: int) -> ConsoleSpan:
        """The bytes from an offset the ring reaches, at most `max_bytes`."""
        index = max(0, bisect.bisect_right(self._starts, after) - 1)
        found: list[Piece] = []
        room = max_bytes
        next_offset = after
        while index < len(self._pieces) and room > 0:
            piece = self._pieces[index]
            index += 1
            skipped = max(0, after - piece.offset)
            data = piece.data[skipped : skipped + room]
            if data:
                found.append(Piece(piece.offset + skipped, data))
                room -= len(data)
                next_offset = found[-1].end
        if index == len(self._pieces) and room > 0:
            next_offset = max(after, self.end)
        return ConsoleSpan(
            pieces=tuple(found),
            times=self._times(after, next_offset),
            gaps=tuple(g for g in self._gaps if g.to_offset > after and g.from_offset < next_offset),
            first_offset=min(self.oldest, self.begin),
            end_offset=self.end,
            next_offset=next_offset,
        )

    def _times(self, after: int, before: int) -> list[tuple[int, int]]:
        first = max(0, bisect.bisect_right(self._since, after) - 1)
        last = bisect.bisect_left(self._since, before)
        return list(zip(self._since[first:last], self._moments[first:last], strict=True))

    def since(self, timestamp_ms: int) -> int | None:
        """The offset of the first byte of that time or later; None: possibly before the ring."""
        at = bisect.bisect_left(self._moments, timestamp_ms)
        if self.begin > 0 and (at == 0 or not self._moments):
            return None
        return self._since[at] if at < len(self._since) else self.end

    def newest(self, lines: int, before: int | None = None) -> int:
        """The offset of the last `lines` lines, or of the last ones before an offset, as far as they are here."""
        missing = lines
        stop = self.end if before is None else before
        last = bisect.bisect_left(self._starts, stop) - 1
        for position in range(last, -1, -1):
            piece = self._pieces[position]
            end = min(len(piece.data), stop - piece.offset)
            if position == last and piece.data.endswith(b"\n", 0, end):
                end -= 1  # it ends the last line and begins none
            while (found := piece.data.rfind(b"\n", 0, end)) >= 0:
                missing -= 1
                if not missing:
                    return piece.offset + found + 1
                end = found
        return self.begin

    def open_line(self, longest: int) -> int:
        """The offset of the line that has no end yet; `end` if there is none, or more than `longest` bytes of it."""
        if not self._pieces or self._pieces[-1].end < self.end or self._pieces[-1].data.endswith(b"\n"):
            return self.end
        start = self.newest(1)
        return start if self.end - start <= longest else self.end


_log = structlog.get_logger("corral.controller.consoles")

TOTAL_BYTES: Final = 512 * 1024 * 1024
_RUNS_PER_INSTANCE: Final = 4
_LEAST_BYTES: Final = 16 * 1024

Run = tuple[InstanceId, Incarnation]


class Rings:
    """Rings by run, the least recently written first. Everything dropped here is still on its node."""

    def __init__(
        self,
        *,
        is_live: Callable[[Run], bool],
        ring_bytes: int = RING_BYTES,
        total_bytes: int = TOTAL_BYTES,
    ) -> None:
        self._is_live = is_live
        self._ring_bytes = ring_bytes
        self._total_bytes = total_bytes
        self._rings: collections.OrderedDict[Run, ConsoleRing] = collections.OrderedDict()
        self._runs: dict[InstanceId, list[Incarnation]] = {}
        self._by_writer: dict[str, set[Run]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._rings)

    def find(self, run: Run) -> ConsoleRing | None:
        return self._rings.get(run)

    def runs(self, id: InstanceId) -> list[Incarnation]:
        """The runs of an instance that have a ring, the oldest first."""
        return sorted(self._runs.get(id, ()))

    def written_by(self, writer: str) -> list[tuple[Run, ConsoleRing]]:
        """The rings of a writer, in the order of instances, of each the oldest run first."""
        return [(run, self._rings[run]) for run in sorted(self._by_writer.get(writer, ()))]

    def instances(self) -> list[InstanceId]:
        return list(self._runs)

    def writing(self, run: Run, *, begin: int, writer: str = "") -> ConsoleRing | None:
        """The ring of a run that is being written; a new one of this writer from `begin` if it has none.
        None: the instance has rings of later runs already, and this one is read from its node."""
        ring = self._rings.get(run)
        if ring is None:
            if not self._has_room(run):
                return None
            ring = self._rings[run] = ConsoleRing(begin=begin, capacity=self._ring_bytes, writer=writer)
            self._by_writer.setdefault(writer, set()).add(run)
            self._runs.setdefault(run[0], []).append(run[1])
            _log.debug("console_ring.opened", instance=run[0], incarnation=run[1], begin=begin)
        self._rings.move_to_end(run)
        return ring

    def _has_room(self, run: Run) -> bool:
        """Whether the run may have a ring; an older run's ring is dropped for it. The present run always has
        one, so that an invented number of a node does not displace it."""
        held = self.runs(run[0])
        if len(held) < _RUNS_PER_INSTANCE:
            return True
        yielding = [each for each in held if not self._is_live((run[0], each))]
        if not yielding or (run[1] < yielding[0] and not self._is_live(run)):
            return False
        self.drop((run[0], yielding[0]))
        return True

    def grown(self, by: int) -> None:
        """Count a change of a ring's size; drop or shrink rings when the sum is too large."""
        self.bytes += by
        while self.bytes > self._total_bytes and self._rings:
            self._give_way()

    def _give_way(self) -> None:
        """Drop the least recently written ring if its run has ended or it is small already, else shrink it."""
        run, ring = next(iter(self._rings.items()))
        if not self._is_live(run) or ring.capacity <= _LEAST_BYTES:
            self.drop(run)
            return
        self._rings.move_to_end(run)
        self._shrink(ring, ring.capacity // 2)

    def _shrink(self, ring: ConsoleRing, capacity: int) -> None:
        before = ring.memory
        ring.shrink(capacity)
        self.bytes -= before - ring.memory

    def settle(self, id: InstanceId) -> None:
        """After a change of the instance: shrink rings of ended runs."""
        for incarnation in self.runs(id):
            if not self._is_live((id, incarnation)):
                self._shrink(self._rings[id, incarnation], min(ENDED_BYTES, self._ring_bytes))

    def drop(self, run: Run) -> None:
        ring = self._rings.pop(run, None)
        if ring is None:
            return
        _log.debug("console_ring.removed", instance=run[0], incarnation=run[1])
        self.bytes -= ring.memory
        self._by_writer[ring.writer].discard(run)
        if not self._by_writer[ring.writer]:
            del self._by_writer[ring.writer]
        self._runs[run[0]].remove(run[1])
        if not self._runs[run[0]]:
            del self._runs[run[0]]

    def forget(self, id: InstanceId) -> None:
        """Drop the rings of a removed instance."""
        for incarnation in self.runs(id):
            self.drop((id, incarnation))
