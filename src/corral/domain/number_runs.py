"""Sets of whole numbers as runs without gaps: the next number that is not in the set is found without a walk."""

from __future__ import annotations

import bisect
from collections.abc import Iterator


class NumberRuns:
    """A set of numbers, as the first and the last number of each run."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __contains__(self, number: int) -> bool:
        at = bisect.bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def next_free(self, number: int) -> int:
        """The lowest number that is not in the set, from this one on."""
        at = bisect.bisect_right(self._firsts, number) - 1
        return self._lasts[at] + 1 if at >= 0 and number <= self._lasts[at] else number

    def free(self, number: int) -> Iterator[int]:
        """All numbers that are not in the set, from this one on; without an end."""
        while True:
            number = self.next_free(number)
            yield number
            number += 1

    def add(self, number: int) -> None:
        """Add a number; one that is in the set stays."""
        if number in self:
            return
        at = bisect.bisect_right(self._firsts, number)
        before = at > 0 and self._lasts[at - 1] == number - 1
        behind = at < len(self._firsts) and self._firsts[at] == number + 1
        if before and behind:
            self._lasts[at - 1] = self._lasts[at]
            del self._firsts[at], self._lasts[at]
        elif before:
            self._lasts[at - 1] = number
        elif behind:
            self._firsts[at] = number
        else:
            self._firsts.insert(at, number)
            self._lasts.insert(at, number)

    def discard(self, number: int) -> None:
        """Remove a number, if it is in the set."""
        if number not in self:
            return
        at = bisect.bisect_right(self._firsts, number) - 1
        first, last = self._firsts[at], self._lasts[at]
        if first == last:
            del self._firsts[at], self._lasts[at]
        elif number == first:
            self._firsts[at] = number + 1
        elif number == last:
            self._lasts[at] = number - 1
        else:
            self._lasts[at] = number - 1
            self._firsts.insert(at + 1, number + 1)
            self._lasts.insert(at + 1, last)
