"""The gate where starts of instances wait until the node's modules are as desired, for a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from corral.system.clock import Clock


class RestingEngine(Protocol):
    """The methods that the gate needs of the engine."""

    @property
    def resting(self) -> bool: ...

    async def rest(self) -> None: ...


class StartGate:
    """Holds what starts wait for, and since when. Each item is waited for `seconds` from the moment it was
    added, and no start waits longer than that in all, whatever is added meanwhile."""

    def __init__(self, *, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._awaited: dict[tuple[str, str], float] = {}
        """Module and reason, with the end of the wait."""
        self._ends = clock.monotonic()
        self._news = asyncio.Event()

    def expect(self, id: str, why: str) -> None:
        """A module is not as desired: starts wait for it, and an order restarts that wait."""
        if not self._awaited:
            self.begin()
        self._awaited[id, why] = self._clock.monotonic() + self._seconds
        self._notify()

    def begin(self) -> None:
        """Restart the wait for items that no order added: at boot, or in a new session."""
        self._ends = self._clock.monotonic() + self._seconds

    def met(self, id: str, why: str) -> None:
        """The module is as desired, or as far as it gets by itself."""
        if self._awaited.pop((id, why), None) is not None:
            self._notify()

    async def passed(self, engine: RestingEngine, describe: Callable[[str], str]) -> tuple[str, ...]:
        """Wait; returns what was missing after the timeout, as `ID: why`. `describe` may know more about why.
        Returns at once when nothing is under way."""
        latest = self._clock.monotonic() + self._seconds
        while self._awaited or not engine.resting:
            left = min(latest, max(self._awaited.values(), default=self._ends)) - self._clock.monotonic()
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    await (self._news.wait() if self._awaited else engine.rest())
            except TimeoutError:
                break
        return self.awaited(describe)

    def awaited(self, describe: Callable[[str], str]) -> tuple[str, ...]:
        """Modules that are awaited now, in the form of `passed`."""
        return tuple(dict.fromkeys(f"{id}: {describe(id) or why}" for id, why in sorted(self._awaited)))

    def _notify(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
