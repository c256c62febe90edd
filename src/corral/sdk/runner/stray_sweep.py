"""Ending what a dead module left: processes that became ours because we are their subreaper.

All are stopped before any is killed: what is stopped does not fork on. A stop is no barrier by itself (a
fork under way still completes), so they are killed once a look finds nothing new. One step is one look,
so that whoever has many to end can do other things between.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Final

from corral.sdk.runner.proc_table import descendants, process

_LOOKS: Final = 100
"""So often something new may be seen before all that was seen is killed anyway."""


class StraySweep:
    def __init__(self) -> None:
        self._stopped: set[tuple[int, int]] = set()
        self._looks = 0
        self.met: set[tuple[int, int]] = set()
        """Whoever was seen alive since this was cleared last."""

    def meet(self, strays: set[int]) -> None:
        """Count those who are about to be killed otherwise."""
        self.met |= descendants(strays) if strays else set()

    def step(self, strays: set[int]) -> bool:
        """One look at these children of ours and what is below them; whether to look again at once."""
        found = descendants(strays)
        self.met |= found
        fresh = found - self._stopped
        self._looks += 1
        if fresh and self._looks < _LOOKS:
            self._stopped |= fresh
            send_all(fresh, signal.SIGSTOP)
            return True
        send_all(found, signal.SIGKILL)
        self._stopped.clear()
        self._looks = 0
        return False


def send_all(processes: set[tuple[int, int]], number: signal.Signals) -> None:
    for pid, start in processes:
        send(pid, start, number)


def send(pid: int, start: int, number: signal.Signals) -> None:
    """To just this process: the descriptor is opened first and the start time compared then."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return  # gone
    try:
        one = process(pid)
        if one is not None and one.start == start:
            with contextlib.suppress(OSError):  # it ended, or is not ours to end
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)
