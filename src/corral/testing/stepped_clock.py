"""The second adapter of the clock: real time, with a wall clock that a test can step."""

from __future__ import annotations

import datetime as dt
import time


class SteppedClock:
    """`step` moves only the wall clock, as an administrator or NTP would."""

    def __init__(self) -> None:
        self._offset = dt.timedelta()

    def step(self, seconds: float) -> None:
        self._offset += dt.timedelta(seconds=seconds)

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + self._offset

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
