"""Players of the model: how many want to play at a time, and on which instances they are."""

from __future__ import annotations

import bisect
import functools
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from corral.domain.ids import instance_number
from corral.simulation.scenario import LoadModel, Seating

_SMALLEST: Final = 1e-9


class LoadCurve:
    """How many players want to be on the instances of a group, over time."""

    def __init__(self, model: LoadModel, chance: random.Random) -> None:
        self._model = model
        self._chance = chance
        self._times = [at for at, _ in model.points]

    def demand(self, at: float) -> int:
        """The number at a time, in seconds since the start; with noise another at each call."""
        value = self._value(self._within(at))
        if self._model.noise and value:
            value *= 1 + self._model.noise * self._chance.uniform(-1, 1)
        return max(0, int(value + 0.5))

    def next_change(self, at: float) -> float | None:
        """The next time at which the number may be another; None: it stays."""
        here = self._within(at)
        points, repeat = self._model.points, self._model.repeat_seconds
        index = bisect.bisect_right(self._times, here)
        steps = self._model.step_seconds
        next_step = (int(at) // steps + 1) * steps
        if index == len(points):  # after the last point
            stays = None if not repeat else at - here + repeat
            if self._model.noise and points[-1][1]:
                return next_step if stays is None else min(next_step, stays)
            return stays
        next_point = at - here + points[index][0]
        before = points[index - 1][1] if index else points[0][1]
        flat = abs(before - points[index][1]) < _SMALLEST and not (self._model.noise and before)
        return next_point if flat else min(next_step, next_point)

    def _within(self, at: float) -> float:
        """The time within the points, which may repeat."""
        return at % self._model.repeat_seconds if self._model.repeat_seconds else at

    def _value(self, at: float) -> float:
        points = self._model.points
        index = bisect.bisect_right(self._times, at)
        if index == 0:
            return points[0][1]
        if index == len(points):
            return points[-1][1]
        (begins, low), (ends, high) = points[index - 1], points[index]
        return low + (high - low) * (at - begins) / (ends - begins)


class GroupPlayers:
    """The players of one group: on its instances, and those who found no place."""

    def __init__(self, *, capacity: int, seating: Seating) -> None:
        """`capacity`: places on an instance."""
        self.capacity = capacity
        self._packs = seating is Seating.PACK
        self.demand = 0
        self.seats: dict[str, int] = {}
        """By instance, those with players only."""
        self.seated = 0
        self.refused = 0
        """Those who wanted to play and found no place, each once."""
        self.cut = 0
        """Those whose instance ended while they were on it."""
        self.waiting = 0
        """Those who have no place now."""

    def drop(self, instance: str) -> None:
        """An instance has ended, whoever was on it."""
        lost = self.seats.pop(instance, 0)
        self.seated -= lost
        self.cut += lost

    def settle(self, accepting: Iterable[str], leaving: Callable[[str], bool]) -> list[str]:
        """Have players join and leave, so that as many play as want to and have a place; the instances whose number
        changed. `accepting`: those that take players; `leaving`: it takes no more of them, so they leave it first."""
        more = self.demand - self.seated
        changed: Mapping[str, int] = {}
        if more > 0:
            changed = self._join(more, {id: self.seats.get(id, 0) for id in accepting})
        elif more < 0:
            changed = self._leave(-more, leaving)
        for id, count in changed.items():
            self.seated += count - self.seats.get(id, 0)
            if count:
                self.seats[id] = count
            else:
                del self.seats[id]
        left = self.demand - self.seated
        self.refused += max(0, left - self.waiting)
        self.waiting = left
        return list(changed)

    def _join(self, count: int, rooms: dict[str, int]) -> dict[str, int]:
        if self._packs:
            changed: dict[str, int] = {}
            for id in sorted(rooms, key=lambda each: (-rooms[each], _order(each))):
                taken = min(count, self.capacity - rooms[id])
                if taken > 0:
                    changed[id] = rooms[id] + taken
                    count -= taken
            return changed
        count = min(count, sum(self.capacity - have for have in rooms.values()))
        level = _highest(self.capacity, lambda to: sum(max(0, to - have) for have in rooms.values()) <= count)
        changed = {id: level for id, have in rooms.items() if have < level}
        count -= sum(level - rooms[id] for id in changed)
        lowest = sorted((id for id, have in rooms.items() if have <= level), key=_order)
        return changed | dict.fromkeys(lowest[:count], level + 1)

    def _leave(self, count: int, leaving: Callable[[str], bool]) -> dict[str, int]:
        """Instances that take no more players become empty first; then the emptiest, or the fullest."""
        changed: dict[str, int] = {}
        parting = sorted(filter(leaving, self.seats), key=lambda each: (self.seats[each], _order(each)))
        others = sorted(set(self.seats).difference(parting), key=self._leaving_order)
        for id in parting + (others if self._packs else []):
            gone = min(count, self.seats[id])
            if gone:
                changed[id] = self.seats[id] - gone
                count -= gone
        return changed if self._packs or not count else changed | self._lowered(count, others)

    def _leaving_order(self, id: str) -> tuple[int, int, str]:
        """The emptiest first, and of equals the youngest."""
        return self.seats[id], -_order(id)[0], id

    def _lowered(self, count: int, ids: list[str]) -> dict[str, int]:
        """So many leave the fullest."""
        have = {id: self.seats[id] for id in ids}
        stay = sum(have.values()) - count
        level = _highest(self.capacity, lambda to: sum(min(to, each) for each in have.values()) <= stay)
        lowered = {id: level for id in sorted(have, key=_order) if have[id] > level}
        extra = stay - sum(min(level, each) for each in have.values())
        for id in list(lowered)[:extra]:
            lowered[id] += 1
        return {id: left for id, left in lowered.items() if left != have[id]}


@functools.lru_cache(maxsize=100_000)
def _order(id: str) -> tuple[int, str]:
    return instance_number(id)[1], id


def _highest(most: int, holds: Callable[[int], bool]) -> int:
    """The highest number up to `most` for which it holds; it holds for 0, and for all below one for which it does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
