"""How often something may be done: a burst at once, and then so much a second."""

from __future__ import annotations

from corral.system.clock import Clock


class Bucket:
    """Full at first."""

    def __init__(self, *, burst: int, per_second: float, clock: Clock) -> None:
        self._burst = float(burst)
        self._per_second = per_second
        self._clock = clock
        self._left = self._burst
        self._since = clock.monotonic()

    def take(self, cost: int = 1) -> bool:
        """Once more, if that is allowed now."""
        now = self._clock.monotonic()
        self._left = min(self._burst, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < cost:
            return False
        self._left -= cost
        return True
