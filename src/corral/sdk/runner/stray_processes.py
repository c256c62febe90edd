"""Stray processes of modules: those of a dead module are killed, orphans of a living one reaped.

Killing: strays became our children because we are their subreaper. All are stopped before any is killed: a
stopped process does not fork. A stop is no barrier by itself (a fork under way still completes), so they are
killed once a scan finds nothing new. One step is one scan, so that a caller with many to end can do other
things between.

Reaping: what the programs of a module leave behind becomes a child of the module's process. Its own children
are the module's to wait for, and their exit status must not be taken away. Orphans are distinguished by their
session. Our process leads a session and so can never be in another one; a child that it makes is born in it,
and can leave it only for a session that has the child's own number. A process in a third session was started
by another process. Orphans that stayed in our session cannot be distinguished, and stay until the end of the
module.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Final

from corral.sdk.runner.proc_table import children, content, descendants, process

_LOOKS: Final = 100
"""Scans that may find something new before all that was found is killed anyway."""


class StraySweep:
    def __init__(self) -> None:
        self._stopped: set[tuple[int, int]] = set()
        self._looks = 0
        self.met: set[tuple[int, int]] = set()
        """Processes seen alive since this was last cleared."""

    def meet(self, strays: set[int]) -> None:
        """Count processes that are killed by other means."""
        self.met |= descendants(strays) if strays else set()

    def step(self, strays: set[int]) -> bool:
        """One scan of these children of ours and their descendants; returns whether to scan again at once."""
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
    """Send a signal to exactly this process: the descriptor is opened first and the start time compared
    then."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return  # gone
    try:
        one = process(pid)
        if one is not None and one.start == start:
            with contextlib.suppress(OSError):  # it has ended, or we lack the permission
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


_SECONDS: Final = 2.0


class OrphanReaper:
    """Scans every other second; without children that takes microseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self) -> None:
        self._loop.call_later(_SECONDS, self._look)

    def _look(self) -> None:
        try:
            reap_orphans()
        finally:
            self.start()


def reap_orphans() -> int:
    """Reap ended orphans; returns how many."""
    own = os.getpid()
    if os.getsid(0) != own:
        return 0  # then nothing can be concluded from sessions
    return sum(_reap(pid, own) for pid in children(own) if _is_ended_orphan(pid, own))


def _reap(pid: int, own: int) -> bool:
    """Reap one. The descriptor is opened before the second look, which then refers to that very process."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _is_ended_orphan(pid, own):
            return False
        return os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return False  # another thread waited for it
    finally:
        os.close(descriptor)


def _is_ended_orphan(pid: int, own: int) -> bool:
    try:
        fields = content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return False
    return len(fields) > 3 and fields[0] == b"Z" and int(fields[3]) not in (0, own, pid)
