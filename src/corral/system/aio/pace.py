"""Pauses between rounds of work that costs the same for little data as for much: short while there is time, longer
under load.

Two signs of load are known without asking anybody: how long a round takes, and how late it begins. The first grows with
the work, the second with everything else that wants the same loop or the same processors.
"""

from __future__ import annotations

from typing import Final

_PER_COST: Final = 4.0
"""A round is followed by a pause of so many times its length: rounds take at most a fifth of a core."""
_PER_LATENESS: Final = 4.0
_PUNCTUAL_SECONDS: Final = 0.002
"""Timers of the loop count in milliseconds: what is less late than this says nothing."""
_WEIGHT: Final = 0.25


def pause_after(*, cost: float, late: float, shortest: float, longest: float) -> float:
    """The pause that fits rounds of this length which begin so late."""
    wanted = _PER_COST * cost + _PER_LATENESS * max(0.0, late - _PUNCTUAL_SECONDS)
    return min(longest, max(shortest, wanted))


class Pace:
    """The load of one kind of rounds, smoothed: one slow round changes little. Pure: times are parameters."""

    def __init__(self) -> None:
        self._cost = 0.0
        self._late = 0.0

    def ran(self, *, cost: float, late: float) -> None:
        """A round took `cost` seconds and began `late` seconds after it was due."""
        self._cost += (cost - self._cost) * _WEIGHT
        self._late += (late - self._late) * _WEIGHT

    def pause(self, shortest: float, longest: float) -> float:
        """The pause from the beginning of a round to that of the next."""
        return pause_after(cost=self._cost, late=self._late, shortest=shortest, longest=longest)
