"""Slices of work on the loop: what takes long there lets all others have their turn every few milliseconds."""

from __future__ import annotations

import asyncio
from typing import Final

SLICE_SECONDS: Final = 0.005


class Slices:
    """Work that begins now, and asks after each part of it whether it has to pause."""

    def __init__(self, *, seconds: float = SLICE_SECONDS) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._began = self._loop.time()

    async def pause(self) -> None:
        """Let others have their turn, if this slice took its time."""
        if self._loop.time() - self._began >= self._seconds:
            await asyncio.sleep(0)
            self._began = self._loop.time()
