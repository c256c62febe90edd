"""Ending everything that descends from this process, which is a subreaper: so that nothing escapes.

Standard library only: forks of the keeper share it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from corral.runtimes.keeper.proc_facts import open_process, parents

_LOOKS = 200
_PAUSE = 0.002


def end_descendants(seconds: float) -> bool:
    """Kill and reap all of them; False when some are left after this time (frozen ones die when they are
    thawed). All are stopped before any is killed: what is stopped does not fork away from us."""
    if not _reap_all():
        return True  # without children a subreaper has no descendants, and nobody need be looked at
    ends = time.monotonic() + seconds
    while True:
        found = _stop_all()
        for pid, start in found:
            _send(pid, start, signal.SIGKILL)
        if not _reap_all():
            return True
        if time.monotonic() > ends:
            return False
        time.sleep(_PAUSE)


def _stop_all() -> set[tuple[int, int]]:
    """A stop is no barrier by itself (a fork under way still completes): until nothing new is seen."""
    known: set[tuple[int, int]] = set()
    for _ in range(_LOOKS):
        fresh = _descendants(os.getpid()) - known
        if not fresh:
            break
        for pid, start in fresh:
            _send(pid, start, signal.SIGSTOP)
        known |= fresh
    return known


def _descendants(root: int) -> set[tuple[int, int]]:
    """By pid and start time; zombies included, for they may have children yet."""
    below: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, start in parents():
        below.setdefault(parent, []).append((pid, start))
    found: set[tuple[int, int]] = set()
    waiting = [root]
    while waiting:
        for pid, start in below.get(waiting.pop(), ()):
            if (pid, start) not in found:
                found.add((pid, start))
                waiting.append(pid)
    return found


def _send(pid: int, start: int, number: int) -> None:
    process = open_process(pid, start)
    if process is None:
        return
    try:
        with contextlib.suppress(OSError):  # it ended, or is no longer ours to end
            signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)


def _reap_all() -> bool:
    """Whether children are left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
