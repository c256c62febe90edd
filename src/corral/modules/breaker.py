"""When a module that answers too late is given up, and what its calls cost meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

OVERRUNS: Final = 3
"""So many in a row, of whatever was called, open the breaker."""


class Breaker:
    """Counts overruns in a row. It opens once; `opened` is told what overran last.

    Calls that were under way together are one silence, not many: an overrun counts only if its call
    began after the last one that counted had ended. So a few impatient callers at once cannot open it."""

    def __init__(self, opened: Callable[[str], None], *, overruns: int = OVERRUNS) -> None:
        self._opened = opened
        self._limit = overruns
        self._row = 0
        self._silent_since = float("-inf")
        self.open = False

    def answered(self) -> None:
        """The module answered in time, with a value or an exception: it lives."""
        self._row = 0

    def overran(self, what: str, *, began: float, ended: float) -> None:
        if began < self._silent_since:
            return
        self._silent_since = ended
        self._row += 1
        if self._row >= self._limit and not self.open:
            self.open = True
            self._opened(what)


class CallCounts(msgspec.Struct, kw_only=True):
    """What the host's calls into a module came to, since the module was first loaded."""

    calls: int = 0
    failures: int = 0
    """Of them, those that did not end with an answer."""
    overruns: int = 0
    """Of the failures, those that ended by their deadline."""
    seconds: float = 0.0
    longest_seconds: float = 0.0

    def took(self, seconds: float) -> None:
        self.calls += 1
        self.seconds += seconds
        self.longest_seconds = max(self.longest_seconds, seconds)
