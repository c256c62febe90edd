"""Virtual time, what is to happen in it, and chance: one generator a name, so that what one thing draws moves no other."""

from __future__ import annotations

import datetime as dt
import heapq
import math
import random
from collections.abc import Callable
from typing import Final

TICKS: Final = 64
"""Moments a second. A sixty-fourth of a second is exact as a float and in microseconds: no wait ends a rounding error too
early, and is then waited for again without time going on."""


class VirtualClock:
    """A `Clock` that stands still until it is set."""

    def __init__(self, start: dt.datetime) -> None:
        self._start = start
        self._now = start
        self.tick = 0

    def now(self) -> dt.datetime:
        return self._now

    def set(self, tick: int) -> None:
        """Let it be so many ticks after the start."""
        self.tick = tick
        self._now = self._start + dt.timedelta(microseconds=tick * (1_000_000 // TICKS))

    def monotonic(self) -> float:
        return self.tick / TICKS

    def boottime(self) -> float:
        return self.tick / TICKS


def ticks(seconds: float) -> int:
    """The moments in so many seconds, rounded up."""
    return math.ceil(seconds * TICKS)


class Agenda:
    """What is to happen, by time; at one time in the order in which it was added."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._added = 0

    def add(self, seconds: float, action: Callable[[], None]) -> None:
        """Have something happen so many seconds from now."""
        self.add_at(self._clock.tick + ticks(seconds), action)

    def add_at(self, tick: int, action: Callable[[], None]) -> None:
        self._added += 1
        heapq.heappush(self._heap, (tick, self._added, action))

    @property
    def next_tick(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> bool:
        """Do what is due now, and what that makes due; whether there was anything."""
        ran = False
        while self._heap and self._heap[0][0] <= self._clock.tick:
            _, _, action = heapq.heappop(self._heap)
            action()
            ran = True
        return ran


class Chance:
    """Generators by name, all from one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of(self, name: str) -> random.Random:
        """A new generator; the same name gives the same numbers."""
        return random.Random(f"{self._seed}/{name}")  # noqa: S311 - a model, and to be repeatable


class SeededEntropy:
    """An `Entropy` that can be repeated."""

    def __init__(self, chance: Chance) -> None:
        self._random = chance.of("ids")

    def secret(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def fraction(self) -> float:
        return self._random.random()
