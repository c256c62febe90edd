"""Tells the controller where a preparation is, when that lasts long enough for anybody to look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_LASTS_SECONDS: Final = 0.25


class StageReports:
    """Of one preparation. `tell` is called with the name of a stage that lasts."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self.current = ""

    def entered(self, stage: str) -> None:
        if stage == self.current:
            return
        self.close()
        self.current = stage
        self._timer = asyncio.get_running_loop().call_later(_LASTS_SECONDS, self._tell, stage)

    def close(self) -> None:
        """It is over, or it failed: nothing more is told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
