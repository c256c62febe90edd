"""All rings of a term, and the bound on what they hold together."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Final

import structlog

from corral.controller.consoles.ring import ENDED_BYTES, RING_BYTES, ConsoleRing
from corral.domain.ids import Incarnation, InstanceId

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
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._rings)

    def find(self, run: Run) -> ConsoleRing | None:
        return self._rings.get(run)

    def runs(self, id: InstanceId) -> list[Incarnation]:
        """The runs of an instance that have a ring, the oldest first."""
        return sorted(self._runs.get(id, ()))

    def instances(self) -> list[InstanceId]:
        return list(self._runs)

    def writing(self, run: Run, *, begin: int, writer: str = "") -> ConsoleRing | None:
        """The ring of a run that is being written, a new one of this writer that begins there if it has none. None: the
        instance has the rings of later runs already, and this one is read from its node."""
        ring = self._rings.get(run)
        if ring is None:
            if not self._has_room(run):
                return None
            ring = self._rings[run] = ConsoleRing(begin=begin, capacity=self._ring_bytes, writer=writer)
            self._runs.setdefault(run[0], []).append(run[1])
            _log.debug("console.ring_made", instance=run[0], incarnation=run[1], begin=begin)
        self._rings.move_to_end(run)
        return ring

    def _has_room(self, run: Run) -> bool:
        """Whether the run may have a ring; an older one gives its own up for it. The present run always has one, so
        that no number that a node makes up takes it away."""
        held = self.runs(run[0])
        if len(held) < _RUNS_PER_INSTANCE:
            return True
        yielding = [each for each in held if not self._is_live((run[0], each))]
        if not yielding or (run[1] < yielding[0] and not self._is_live(run)):
            return False
        self.drop((run[0], yielding[0]))
        return True

    def grown(self, by: int) -> None:
        """Some ring holds that much more (or less) than before; make room if it is too much."""
        self.bytes += by
        while self.bytes > self._total_bytes and self._rings:
            self._give_way()

    def _give_way(self) -> None:
        """The least recently written ring: gone if its run has ended or it is small already."""
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
        """The instance changed: rings of runs that have ended shrink."""
        for incarnation in self.runs(id):
            if not self._is_live((id, incarnation)):
                self._shrink(self._rings[id, incarnation], min(ENDED_BYTES, self._ring_bytes))

    def drop(self, run: Run) -> None:
        ring = self._rings.pop(run, None)
        if ring is None:
            return
        _log.debug("console.ring_dropped", instance=run[0], incarnation=run[1])
        self.bytes -= ring.memory
        self._runs[run[0]].remove(run[1])
        if not self._runs[run[0]]:
            del self._runs[run[0]]

    def forget(self, id: InstanceId) -> None:
        """The instance is gone: so are its rings."""
        for incarnation in self.runs(id):
            self.drop((id, incarnation))
