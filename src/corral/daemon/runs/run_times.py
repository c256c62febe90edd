"""Times of a run: start, exit and uptime, by clocks that are never set, where that is possible."""

from __future__ import annotations

import math
import os
import pathlib
from typing import Final

from corral.sdk.runtime import RunExit, RunHandle
from corral.system.clock import Clock

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_START_FIELD: Final = 19  # of what follows the name; field 22 of the whole line
_CLOCK_MARGIN_MS: Final = 1000


class RunTimes:
    """Times of one run. They are of `Clock.boottime`, unless their names end in `ms`: those are of the wall clock."""

    def __init__(self, clock: Clock, *, began_at: float | None = None) -> None:
        self._clock = clock
        self.began_at = began_at
        """Start of its preparation; None: before that, or under an earlier daemon."""
        self.started_at: float | None = None
        """Execution of its program; None: there is none yet, or it exited before this daemon started."""
        self._ended_at = 0.0

    def begin(self) -> None:
        self.began_at = self._clock.boottime()

    def start(self, handle: RunHandle, *, now_ms: int) -> float:
        """The run has a process; returns when its program was executed."""
        now = self._clock.boottime()
        if handle.started_after_boot_ms:
            self.started_at = min(handle.started_after_boot_ms / 1000, now)
        else:
            self.started_at = _started_by_wall(handle, now, now_ms=now_ms)
        return self.started_at

    def end(self, ended_at_ms: int, *, now_ms: int) -> None:
        self._ended_at = self._clock.boottime() - max(0, now_ms - ended_at_ms) / 1000

    @property
    def uptime_ms(self) -> int:
        if self.started_at is None:
            return 0
        return max(0, round((self._clock.boottime() - self.started_at) * 1000))

    @property
    def ended_seconds(self) -> float:
        """How long ago it ended."""
        return self._clock.boottime() - self._ended_at

    def alive_in(self, seconds: float) -> float:
        """How many seconds are left until it has lived that long."""
        assert self.started_at is not None, "it has a process"
        return self.started_at + seconds - self._clock.boottime()

    def start_deadline(self, now: float, seconds: float) -> float:
        """Deadline for its execution, with so many seconds for that; never, when it was executed."""
        if self.started_at is not None:
            return math.inf
        return (self.began_at if self.began_at is not None else now) + seconds

    def age(self, began_ms: int, *, now_ms: int) -> float:
        """How many seconds ago its program was executed; `began_ms` where that is not known better."""
        if self.started_at is not None:
            return self._clock.boottime() - self.started_at
        return max(0.0, (now_ms - began_ms) / 1000)

    def lived_ms(self, exit: RunExit, *, started_at_ms: int, last_output_ms: int) -> int:
        """Uptime from the times of start and exit; where a clock was set in between, from one that is never set. For
        an unseen exit only what is certain: until its last output."""
        if not exit.seen:
            return max(0, last_output_ms - started_at_ms) if started_at_ms else 0
        by_wall = exit.ended_at_ms - started_at_ms
        if not exit.ended_at_ms or not started_at_ms:
            return self.uptime_ms
        if self.started_at is None:  # it exited before this daemon started
            return max(0, by_wall)
        return by_wall if 0 <= by_wall <= self.uptime_ms + _CLOCK_MARGIN_MS else self.uptime_ms


def _started_by_wall(handle: RunHandle, now: float, *, now_ms: int) -> float:
    """For a runtime, or a keeper of an earlier version, that tells only the wall clock. That may have been set: the start
    of the process is the earliest moment, and the better one when it has been set back."""
    ago = (now_ms - handle.started_at_ms) / 1000 if handle.started_at_ms else 0.0
    forked = process_started(handle.pid)
    if forked is None:  # it has ended
        return now - max(0.0, ago)
    return max(forked, now - ago) if ago >= 0 else forked


def process_started(pid: int) -> float | None:
    """Seconds from the boot to its start, as `Clock.boottime` counts; None when there is no such process."""
    try:
        line = pathlib.Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(line.rpartition(b")")[2].split()[_START_FIELD]) / _TICKS
