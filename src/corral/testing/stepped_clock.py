"""The second adapter of the clock: real time, which a test can set, or let pass."""

from __future__ import annotations

import datetime as dt
import time


class SteppedClock:
    """`step` moves only the wall clock, as an administrator or NTP would; `pass_time` moves all clocks ahead, as time
    does."""

    def __init__(self) -> None:
        self._offset = dt.timedelta()
        self._passed = 0.0

    def step(self, seconds: float) -> None:
        self._offset += dt.timedelta(seconds=seconds)

    def pass_time(self, seconds: float) -> None:
        self._passed += seconds
        self._offset += dt.timedelta(seconds=seconds)

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + self._offset

    def monotonic(self) -> float:
        return time.monotonic() + self._passed

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self._passed
