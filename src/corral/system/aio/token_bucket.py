"""Token buckets: a rate limit with a burst."""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_KEPT: Final = 10_000


class TokenBucket:
    """Full at first; grows by `per_second` up to `burst`. Times are of `monotonic`."""

    __slots__ = ("_burst", "_left", "_monotonic", "_per_second", "_since")

    def __init__(self, *, burst: float, per_second: float, monotonic: Callable[[], float]) -> None:
        self._burst = float(burst)
        self._per_second = per_second
        self._monotonic = monotonic
        self._left = self._burst
        self._since = monotonic()

    def take(self, cost: float = 1) -> bool:
        """Take so much if it is there; otherwise nothing."""
        self._fill()
        if self._left < cost:
            return False
        self._left -= cost
        return True

    def spend(self, cost: float) -> None:
        """Take so much also if less is there: then `wait` is the time during which nothing may be spent."""
        self._fill()
        self._left -= cost

    def wait(self) -> float:
        """Seconds until something may be spent again; 0: now."""
        self._fill()
        return max(0.0, -self._left / self._per_second)

    def _fill(self) -> None:
        now = self._monotonic()
        self._left = min(self._burst, self._left + (now - self._since) * self._per_second)
        self._since = now


class TokenBuckets(Generic[K]):
    """A bucket for each key. Those of the most recent keys are kept; a dropped key begins with a full one."""

    def __init__(
        self, *, burst: float, per_second: float, monotonic: Callable[[], float], kept: int = _KEPT
    ) -> None:
        self._burst = burst
        self._per_second = per_second
        self._monotonic = monotonic
        self._kept = kept
        self._buckets: collections.OrderedDict[K, TokenBucket] = collections.OrderedDict()

    def take(self, key: K, cost: float = 1) -> bool:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(
                burst=self._burst, per_second=self._per_second, monotonic=self._monotonic
            )
            if len(self._buckets) > self._kept:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket.take(cost)
