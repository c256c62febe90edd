"""When a process that died is started again, and when that is no use any more."""

from __future__ import annotations

from typing import Final

from corral.system.aio.backoff import doubled

QUICK_SECONDS: Final = 20.0
"""One that lived longer than this had worked: its death starts a new count."""
MOST_QUICK_DEATHS: Final = 5
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 10.0


class Restarts:
    """Counts the quick deaths of one process."""

    def __init__(self) -> None:
        self._quick = 0

    def died(self, *, after_seconds: float) -> float | None:
        """How long to wait before the next start; None when it is time to give up."""
        self._quick = 1 if after_seconds >= QUICK_SECONDS else self._quick + 1
        if self._quick > MOST_QUICK_DEATHS:
            return None
        return doubled(FIRST_DELAY, self._quick - 1, longest=LONGEST_DELAY)
