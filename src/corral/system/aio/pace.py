"""Pauses between rounds of work that costs the same for little data as for much: short while there is time, longer
under load.

Two signs of load are known without asking anybody: the processor time of a round, and how late it begins. The first grows
with the work, the second with everything else that wants the same loop or the same processors.
"""

from __future__ import annotations

from typing import Final

_PER_LATENESS: Final = 4.0
_PUNCTUAL_SECONDS: Final = 0.002
"""Timers of the loop count in milliseconds: what is less late than this says nothing."""
_WEIGHT: Final = 0.25


def pause_after(*, cost: float, late: float, per_cost: float, shortest: float, longest: float) -> float:
    """The pause that fits rounds of this cost which begin so late."""
    wanted = per_cost * cost + _PER_LATENESS * max(0.0, late - _PUNCTUAL_SECONDS)
    return min(longest, max(shortest, wanted))


class Pace:
    """The pause from the beginning of a round to that of the next, by the load of the last ones, smoothed. Pure: times are
    parameters."""

    def __init__(self, *, per_cost: float, shortest: float, longest: float) -> None:
        """The pause is `per_cost` times the cost of a round: rounds take that part of a core, until `longest` is not
        enough for it."""
        self._per_cost = per_cost
        self._shortest = shortest
        self._longest = longest
        self._began = 0.0
        self._spent = 0.0
        self._cost = 0.0
        self._late = 0.0
        self.pause = shortest

    def ran(self, *, due: float, began: float, cost: float) -> None:
        """A round took `cost` seconds of processor time. Those within the same pause count as one: each serves some."""
        self._spent += cost
        if began - self._began < self.pause:
            return
        self._cost += (self._spent - self._cost) * _WEIGHT
        self._late += (began - due - self._late) * _WEIGHT
        self._began, self._spent = began, 0.0
        self.pause = pause_after(
            cost=self._cost,
            late=self._late,
            per_cost=self._per_cost,
            shortest=self._shortest,
            longest=self._longest,
        )
