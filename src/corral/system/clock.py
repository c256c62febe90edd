"""Clocks. Deadlines use `monotonic`, leases `boottime`, records `now`."""

from __future__ import annotations

import datetime as dt
import pathlib
import time
from typing import Protocol


def boot_id() -> str:
    """Changes with every boot of the kernel; values of `boottime` are comparable only within one."""
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Clock(Protocol):
    def now(self) -> dt.datetime:
        """Wall time in UTC, for people and records; it may jump, so no wait depends on it."""

    def monotonic(self) -> float:
        """Seconds that never step back, for deadlines and back-off."""

    def boottime(self) -> float:
        """Like monotonic, but it also counts while the machine is suspended, for leases."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
