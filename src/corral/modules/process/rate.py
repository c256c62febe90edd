"""How much may be done now, so that over time it is no more than so much a second. Pure."""

from __future__ import annotations


class Allowance:
    """Grows by `rate` a second up to `burst`. It may be overspent by one thing; then one has to wait."""

    def __init__(self, *, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = now

    def spend(self, cost: float) -> None:
        self._left -= cost

    def wait(self, now: float) -> float:
        """Seconds until something may be spent again; 0: now."""
        if self._left >= 0:
            return 0.0
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        return max(0.0, -self._left / self._rate)
