"""A clock whose hands the test moves, both together or the wall's alone."""

from __future__ import annotations

import datetime as dt


class MovedClock:
    def __init__(self) -> None:
        self.wall = dt.datetime.now(dt.UTC)
        self.running = 1000.0

    def move(self, seconds: float) -> None:
        self.wall += dt.timedelta(seconds=seconds)
        self.running += seconds

    def now(self) -> dt.datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.running

    def boottime(self) -> float:
        return self.running
