"""Failures counted by key, with the delay that follows from their number. Bounded: the keys with the fewest failures, and
among these the oldest, make room for new ones, so that a flood of new keys never displaces one that was tried often.

Pure: times are parameters, of a monotonic clock.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FREE_FAILURES: Final = 5
FIRST_DELAY_SECONDS: Final = 30.0
LONGEST_DELAY_SECONDS: Final = 900.0
FORGOTTEN_SECONDS: Final = 3600.0
"""After the end of the last delay, so long without a failure, all is forgotten."""
IN_FLIGHT_SECONDS: Final = 1.0
"""The wait for one that comes while as many attempts as are left are being checked."""
_TOP: Final = 10
"""From so many failures on the delay does not grow, and keys are equal in the order of removal."""


def delay_after(failures: int, *, free: int = FREE_FAILURES) -> float:
    """The delay that the last of so many failures brings."""
    if failures < free:
        return 0.0
    return min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(failures - free, _TOP))


class _Failures:
    __slots__ = ("count", "last")

    def __init__(self, count: int, last: float) -> None:
        self.count = count
        self.last = last


class FailureCounts(Generic[Key]):
    """Failures and attempts in flight of at most `most` keys."""

    def __init__(self, *, most: int, free: Callable[[Key], int] = lambda _: FREE_FAILURES) -> None:
        self._most = most
        self._free = free
        self._levels: tuple[collections.OrderedDict[Key, _Failures], ...] = tuple(
            collections.OrderedDict() for _ in range(_TOP + 1)
        )
        """By number of failures; in each, in the order of the last failure."""
        self._in_flight: collections.Counter[Key] = collections.Counter()
        """Bounded by those who check, not here."""

    def __iter__(self) -> Iterator[Key]:
        return itertools.chain.from_iterable(self._levels)

    def __len__(self) -> int:
        return sum(map(len, self._levels))

    def delay(self, key: Key, now: float) -> float:
        """Seconds until the delay by failures is over; 0: there is none."""
        failures = self._find(key, now)
        if failures is None:
            return 0.0
        return max(0.0, failures.last + delay_after(failures.count, free=self._free(key)) - now)

    def wait(self, key: Key, now: float) -> float:
        """Seconds until another attempt may begin; 0: now. Attempts in flight count as if they failed, so that nobody
        tries many at the same moment."""
        delay = self.delay(key, now)
        in_flight = self._in_flight[key]
        if not delay and in_flight and self.count(key, now) + in_flight >= self._free(key):
            return IN_FLIGHT_SECONDS
        return delay

    def count(self, key: Key, now: float) -> int:
        failures = self._find(key, now)
        return failures.count if failures else 0

    @contextlib.contextmanager
    def in_flight(self, key: Key) -> Iterator[None]:
        """While an attempt is being checked."""
        self._in_flight[key] += 1
        try:
            yield
        finally:
            self._in_flight[key] -= 1
            if not self._in_flight[key]:
                del self._in_flight[key]

    def add(self, key: Key, now: float) -> None:
        self._drop_forgotten(now)
        failures = self._take(key) or _Failures(0, now)
        failures.count += 1
        failures.last = now
        while len(self) >= self._most:
            level = next(level for level in self._levels if level)
            level.popitem(last=False)
        self._level(failures.count)[key] = failures

    def reduce(self, key: Key, by: int) -> None:
        """Take back so many failures; the delay becomes shorter with them."""
        failures = self._take(key)
        if failures is not None and failures.count > by:
            failures.count -= by
            self._level(failures.count)[key] = failures

    def clear(self, key: Key) -> None:
        self._take(key)

    def _level(self, count: int) -> collections.OrderedDict[Key, _Failures]:
        return self._levels[min(count, _TOP)]

    def _find(self, key: Key, now: float) -> _Failures | None:
        found = next((level[key] for level in self._levels if key in level), None)
        return None if found is None or self._is_forgotten(key, found, now) else found

    def _take(self, key: Key) -> _Failures | None:
        level = next((level for level in self._levels if key in level), None)
        return None if level is None else level.pop(key)

    def _is_forgotten(self, key: Key, failures: _Failures, now: float) -> bool:
        delay = delay_after(failures.count, free=self._free(key))
        return now >= failures.last + delay + FORGOTTEN_SECONDS

    def _drop_forgotten(self, now: float) -> None:
        for level in self._levels:
            while level:
                key, failures = next(iter(level.items()))
                if not self._is_forgotten(key, failures, now):
                    break
                del level[key]
