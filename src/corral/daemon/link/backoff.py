"""How long to wait before the next attempt: doubling, bounded, and spread so that hosts do not march in step."""

from __future__ import annotations

from typing import Final

from corral.system.entropy import Entropy

FIRST_SECONDS: Final = 1.0
_SPREAD: Final = 0.25


class Backoff:
    def __init__(self, *, longest: float, entropy: Entropy) -> None:
        self._longest = longest
        self._entropy = entropy
        self._next = min(FIRST_SECONDS, longest)

    def delay(self) -> float:
        """The pause before the next attempt, up to a quarter more or less than nominal."""
        nominal = self._next
        self._next = min(self._longest, nominal * 2)
        return nominal * (1 + _SPREAD * (2 * self._entropy.fraction() - 1))

    def reset(self) -> None:
        self._next = min(FIRST_SECONDS, self._longest)
