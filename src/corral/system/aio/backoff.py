"""Backoff: the pause before the next attempt, doubling, bounded, and spread so that hosts do not retry in
step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the command line imports this: few modules
    from corral.system.entropy import Entropy

_SPREAD: Final = 0.25
_MOST_DOUBLINGS: Final = 64


def doubled(first: float, times: int, *, longest: float = math.inf) -> float:
    """`first` doubled so many times, but at most `longest`; a negative count is 0."""
    return min(longest, first * 2.0 ** min(max(times, 0), _MOST_DOUBLINGS))


def spread(seconds: float, fraction: float) -> float:
    """Up to a quarter more or less, as `fraction` in [0, 1) decides."""
    return seconds * (1 + _SPREAD * (2 * fraction - 1))


class Backoff:
    """The pauses between the attempts at one thing: `first`, then twice as long each time, up to `longest`. With
    `entropy` each is spread by a quarter."""

    def __init__(self, *, longest: float, first: float = 1.0, entropy: Entropy | None = None) -> None:
        self._first = first
        self._longest = longest
        self._entropy = entropy
        self._attempts = 0

    def delay(self) -> float:
        """The pause before the next attempt; the one after it is longer."""
        nominal = doubled(self._first, self._attempts, longest=self._longest)
        self._attempts += 1
        return nominal if self._entropy is None else spread(nominal, self._entropy.fraction())

    def reset(self) -> None:
        """An attempt has succeeded: the next pause is the first again."""
        self._attempts = 0
