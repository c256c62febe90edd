"""Where starts wait until the node's modules are as they shall be; not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from corral.system.clock import Clock


class Resting(Protocol):
    """What the gate needs of the engine."""

    @property
    def resting(self) -> bool: ...

    async def rest(self) -> None: ...


class Gate:
    """Knows what is on its way, and since when. From the moment that something began to be, starts wait for no
    longer than `seconds`."""

    def __init__(self, *, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._awaited: dict[tuple[str, str], None] = {}
        self._ends = clock.monotonic()
        self._open = asyncio.Event()
        self._open.set()

    def expect(self, id: str, why: str) -> None:
        """A module is not as it shall be. The first one begins the wait."""
        if not self._awaited:
            self.begin()
        self._awaited[id, why] = None
        self._open.clear()

    def begin(self) -> None:
        """The wait is counted from here: boot, or a new session."""
        self._ends = self._clock.monotonic() + self._seconds

    def met(self, id: str, why: str) -> None:
        """That is over, or as far as it gets by itself."""
        self._awaited.pop((id, why), None)
        if not self._awaited:
            self._open.set()

    async def passed(self, engine: Resting, told: Callable[[str], str]) -> tuple[str, ...]:
        """Waits; what was missing when the time had passed, as `ID: why`. `told` may know more about why.
        Where nothing is under way this returns at once."""
        left = self._ends - self._clock.monotonic()
        if self._open.is_set() and (left <= 0 or engine.resting):
            return ()
        try:
            async with asyncio.timeout(max(left, 0)):
                await self._open.wait()
                await engine.rest()
        except TimeoutError:
            pass
        return tuple(f"{id}: {told(id) or why}" for id, why in sorted(self._awaited))
