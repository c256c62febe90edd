"""The watch over the event loop: notices when something blocks it, and logs what it was.

A task stamps the time; a thread checks whether the stamp is fresh. If it is not, the thread reads the loop's
stack right then, while the blocking call is still on it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from typing import Final, Self

import structlog

from corral.system.aio.tasks import Tasks

_BEAT_SECONDS: Final = 0.1
_log = structlog.get_logger("corral.system")


class LoopWatch:
    """Use as `async with`. `lag` is the longest delay since it was last read."""

    def __init__(self, *, alarm_seconds: float = 0.5) -> None:
        self._alarm_seconds = alarm_seconds
        self._stamp = time.monotonic()
        self._worst = 0.0
        self._stop = threading.Event()
        self._loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)
        self._tasks = Tasks()

    def lag(self) -> float:
        worst, self._worst = self._worst, 0.0
        return worst

    async def __aenter__(self) -> Self:
        self._loop_thread = threading.get_ident()
        self._tasks.spawn(self._beat(), name="loop-watch/beat")
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await self._tasks.close()
        await asyncio.to_thread(self._thread.join)

    async def _beat(self) -> None:
        while True:
            began = time.monotonic()
            self._stamp = began
            await asyncio.sleep(_BEAT_SECONDS)
            self._worst = max(self._worst, time.monotonic() - began - _BEAT_SECONDS)

    def _watch(self) -> None:
        reported = 0.0
        while not self._stop.wait(_BEAT_SECONDS):
            stamp = self._stamp
            late = time.monotonic() - stamp - _BEAT_SECONDS
            if late < self._alarm_seconds or stamp == reported:
                continue
            reported = stamp
            frame = sys._current_frames().get(self._loop_thread)
            stack = "".join(traceback.format_stack(frame, limit=None)[-6:]) if frame else ""
            _log.warning("loop.blocked", seconds=round(late, 2), stack=stack)
