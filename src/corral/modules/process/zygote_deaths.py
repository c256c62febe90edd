"""Blame for repeated deaths of the zygote: which module kills it.

The killer of a zygote cannot be observed. But it was running: so all modules that ran at a death are suspects, and
only those stay suspects that ran at each of them, however long ago they were started. As long as there are several,
half of them are held back after each death, for longer than the last one took to come: the next death shows which
half it was. No module is blamed while another one was running each time, too; and the last suspect is held back alone
before it is blamed: a death without it clears it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

HOLD_SECONDS: Final = 15.0
"""Shortest time for which starts are held back."""
LONGEST_HOLD_SECONDS: Final = 120.0
"""Longest time for which starts are held back: most held modules are not the cause."""
WINDOW_SECONDS: Final = 600.0
"""Deaths further apart count as unrelated."""
MENDED: Final = 3
"""Number of deaths in a row for which no module is blamed."""


class DeathVerdict(msgspec.Struct, frozen=True):
    """Conclusion from one death about the modules."""

    blamed: str = ""
    """The module that killed the zygote."""
    held: Mapping[str, float] = {}
    """Modules whose next start is delayed, with the extra seconds."""
    suspects: frozenset[str] = frozenset()
    """Modules that were running at each of the repeated deaths."""


NO_VERDICT: Final = DeathVerdict()


class ZygoteDeaths:
    def __init__(self, *, hold: float = HOLD_SECONDS) -> None:
        self._hold = hold
        self._suspects: frozenset[str] = frozenset()
        self._count = 0
        self._tried = False
        """Whether the only suspect was held back, so that a death could have happened without it."""
        self._last = float("-inf")

    def lost(self, started: Mapping[str, float], *, now: float) -> DeathVerdict:
        """Record a death of the zygote; `started` has the start time of each running module, on the clock of `now`."""
        alive = frozenset(started)
        common = self._suspects & alive if now - self._last <= WINDOW_SECONDS else frozenset()
        self._count = self._count + 1 if common else 1
        suspects = self._suspects = common or alive
        self._last = now
        if self._tried and common and self._count > MENDED:
            (blamed,) = suspects
            self._suspects, self._count, self._tried = frozenset(), 0, False
            return DeathVerdict(blamed, suspects=suspects)
        self._tried = len(suspects) == 1 and self._count > 1
        if self._count < 2:
            return NO_VERDICT
        took = now - min(started[id] for id in suspects)
        seconds = min(max(self._hold, took * 1.5), LONGEST_HOLD_SECONDS)
        return DeathVerdict(held=dict.fromkeys(_half(suspects, started), seconds), suspects=suspects)


def _half(suspects: frozenset[str], started: Mapping[str, float]) -> list[str]:
    """The suspects that were started first. If the cause was held back, it is among the latest now, and runs
    without the others next time."""
    ordered = sorted(suspects, key=lambda module: (-started[module], module))
    return ordered[(len(ordered) + 1) // 2 :] or ordered
