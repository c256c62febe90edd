"""Pauses between rounds of work that costs the same for little data as for much: short while there is time, longer
under load. The load is the processor time of the rounds themselves."""

from __future__ import annotations

from typing import Final

_WEIGHT: Final = 0.25
_WHOLE: Final = 0.8
"""What begins so much of a pause after the last round is a round of its own: timers are not exact."""


def pause_after(*, cost: float, per_cost: float, shortest: float, longest: float) -> float:
    """The pause that fits rounds of this cost."""
    return min(longest, max(shortest, per_cost * cost))


class Pace:
    """The pause from the beginning of a round to that of the next, by the cost of the last ones, smoothed. Pure: times are
    parameters."""

    def __init__(self, *, per_cost: float, shortest: float, longest: float) -> None:
        """The pause is `per_cost` times the cost of a round: so rounds take that part of a core at most."""
        self._per_cost = per_cost
        self._shortest = shortest
        self._longest = longest
        self._began = 0.0
        self._spent = 0.0
        self._cost = 0.0
        self.pause = shortest

    def ran(self, *, began: float, cost: float) -> None:
        """A round took `cost` seconds of processor time. Those within the same pause count as one: each serves some."""
        self._spent += cost
        if began - self._began < _WHOLE * self.pause:
            return
        self._cost += (self._spent - self._cost) * _WEIGHT
        self._began, self._spent = began, 0.0
        self.pause = pause_after(
            cost=self._cost, per_cost=self._per_cost, shortest=self._shortest, longest=self._longest
        )
