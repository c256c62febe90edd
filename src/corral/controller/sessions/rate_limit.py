"""A token bucket per caller, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from corral.system.clock import Clock

_MAX_CALLERS: Final = 10_000


class RateLimit:
    """At most `per_minute` calls a minute from one caller; `burst` of them at once, else all."""

    def __init__(self, *, per_minute: int, clock: Clock, burst: int | None = None) -> None:
        self._capacity = float(per_minute if burst is None else burst)
        self._per_second = per_minute / 60
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, caller: str) -> bool:
        now = self._clock.monotonic()
        level, since = self._buckets.pop(caller, (self._capacity, now))
        level = min(self._capacity, level + (now - since) * self._per_second)
        allowed = level >= 1
        self._buckets[caller] = (level - 1 if allowed else level, now)
        while len(self._buckets) > _MAX_CALLERS:
            self._buckets.popitem(last=False)
        return allowed
