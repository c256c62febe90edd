"""Whose doing it is when the zygote is lost again and again.

Nobody sees who killed it. But a module that does it does so some time after its own start, and all others are
started again with it. So whoever was started shortly before a loss is a suspect, and only those stay suspects who
were started shortly before each of them. As long as there are several, half of them are held back after each loss:
the next one tells which half it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

PROBATION_SECONDS: Final = 10.0
"""A loss so soon after its start makes a module a suspect."""
WINDOW_SECONDS: Final = 600.0
"""Losses further apart have nothing to do with one another."""
MENDED: Final = 3
"""So many losses are held against nobody."""


class Verdict(msgspec.Struct, frozen=True):
    """What a loss says about the modules."""

    blamed: str = ""
    """The module whose doing it is."""
    held: Mapping[str, float] = {}
    """Modules whose next start has to wait, and for how many seconds more than that of the others."""


NOBODY: Final = Verdict()


class ZygoteLosses:
    def __init__(self, *, probation: float = PROBATION_SECONDS) -> None:
        self._probation = probation
        self._suspects: frozenset[str] = frozenset()
        self._count = 0
        self._last = float("-inf")

    def lost(self, started: Mapping[str, float], *, now: float) -> Verdict:
        """The zygote is lost; `started` says when each module was last started, on the same clock as `now`."""
        recent = frozenset(id for id, at in started.items() if now - at <= self._probation)
        if not recent:
            return NOBODY
        common = self._suspects & recent if now - self._last <= WINDOW_SECONDS else frozenset()
        self._count = self._count + 1 if common else 1
        self._suspects = common or recent
        self._last = now
        if len(self._suspects) == 1 and self._count > MENDED:
            (blamed,) = self._suspects
            self._suspects, self._count = frozenset(), 0
            return Verdict(blamed)
        return Verdict(held=dict.fromkeys(self._half(), self._probation * 1.5))

    def _half(self) -> list[str]:
        """Another one each time: who waits for what somebody held back provides starts together with that."""
        if self._count < 2 or len(self._suspects) < 2:
            return []
        ordered = sorted(self._suspects)
        middle = len(ordered) // 2
        return ordered[:middle] if self._count % 2 else ordered[middle:]
