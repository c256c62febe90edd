"""Circuit breaker of a module that answers too late, and counters of its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

OVERRUNS: Final = 3
"""Overruns in a row of the same hook, route, task, subscription or capability that open the breaker."""
_MOST_NAMES: Final = 1000
"""Most names counted; beyond that the oldest count is forgotten."""


class _Circuit:
    """Overruns in a row of one call target."""

    __slots__ = ("overruns", "silent_since")

    def __init__(self) -> None:
        self.overruns = 0
        self.silent_since = float("-inf")


class Breaker:
    """Counts overruns in a row for each call target: answers of other targets meanwhile do not reset it. It opens once;
    `opened` is called with the name of the call.

    Concurrent calls count as one overrun, not many: an overrun counts only if its call began after the last
    one that counted had ended. So a few callers with short deadlines cannot open it at once.
    """

    def __init__(self, opened: Callable[[str], None], *, overruns: int = OVERRUNS) -> None:
        self._opened = opened
        self._limit = overruns
        self._rows: dict[str, _Circuit] = {}
        self.open = False

    def answered(self, target: str) -> None:
        """The module answered this in time, with a value or an exception."""
        self._rows.pop(target, None)

    def overran(self, target: str, *, what: str, began: float, ended: float) -> None:
        row = self._rows.get(target)
        if row is None:
            if len(self._rows) >= _MOST_NAMES:
                del self._rows[next(iter(self._rows))]
            row = self._rows[target] = _Circuit()
        if began < row.silent_since:
            return
        row.silent_since = ended
        row.overruns += 1
        if row.overruns >= self._limit and not self.open:
            self.open = True
            self._opened(what)


class CallCounts(msgspec.Struct, kw_only=True):
    """Counters of the host's calls into a module, since the module was first loaded."""

    calls: int = 0
    failures: int = 0
    """Calls that did not end with an answer."""
    overruns: int = 0
    """Failures that ended by their deadline."""
    seconds: float = 0.0
    longest_seconds: float = 0.0

    def took(self, seconds: float) -> None:
        self.calls += 1
        self.seconds += seconds
        self.longest_seconds = max(self.longest_seconds, seconds)
