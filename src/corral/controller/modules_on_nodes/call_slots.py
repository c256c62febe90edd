"""Whose turn it is to call a capability: a whole fleet may ask at once, and one node must not ask for all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from corral.modules.capabilities.capability_registry import MOST_UNDER_WAY

OF_ALL_NODES: Final = MOST_UNDER_WAY // 2
"""Calls of one capability at a time; the other half is for modules on the controller."""
OF_ONE_SESSION: Final = 8


class CallSlots:
    """Calls wait in line for their capability, first among those of their own session."""

    def __init__(self) -> None:
        self._lines: dict[object, _Line] = {}

    @contextlib.asynccontextmanager
    async def turn(self, session: object, capability: str) -> AsyncIterator[None]:
        """Waits without end: whoever calls has a deadline."""
        async with (
            self._in_line((session, capability), OF_ONE_SESSION),
            self._in_line(capability, OF_ALL_NODES),
        ):
            yield

    @contextlib.asynccontextmanager
    async def _in_line(self, key: object, places: int) -> AsyncIterator[None]:
        line = self._lines.setdefault(key, _Line(places))
        line.users += 1
        try:
            async with line.places:
                yield
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[key]

    def __len__(self) -> int:
        return len(self._lines)


class _Line:
    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.users = 0
