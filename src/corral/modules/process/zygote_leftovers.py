"""Cleanup after a killed zygote: processes that its modules had started and that outlived it.

A living zygote ends everything itself. When it is killed, perhaps with its host, the module processes die
with it, but their own children go on under init. All of them were started with the mark of their process pool
in their environment, and most stayed in their module's session: they are found by these.
"""

from __future__ import annotations

import os
import pathlib
import time
from typing import Final

from corral.sdk.runner.proc_table import all_processes, content
from corral.sdk.runner.stray_processes import StraySweep

MARK: Final = "CORRAL_MODULE_HOUSE"
_SECONDS: Final = 5.0
_PAUSE: Final = 0.002


def pool_mark(directory: pathlib.Path) -> str:
    """Common prefix of the marks of all zygotes of the process pool in this directory."""
    return f"{directory}#"


def end_leftovers(mark: str, sessions: frozenset[int]) -> int:
    """Kill all processes whose mark has this prefix, and those in these sessions; returns how many. The
    sessions must be of processes that ended just now: their numbers are not reused yet. Blocking."""
    sweep = StraySweep()
    ends = time.monotonic() + _SECONDS
    while (found := _find(mark, sessions)) and time.monotonic() < ends:
        if not sweep.step(found):
            time.sleep(_PAUSE)
    return len(sweep.met)


def _find(mark: str, sessions: frozenset[int]) -> set[int]:
    entry = f"{MARK}={mark}".encode(errors="surrogateescape")
    own = os.getpid()
    return {
        one.pid
        for one in all_processes()
        if one.pid != own and one.alive and (_carries(one.pid, entry) or _in_session(one.pid, sessions))
    }


def _carries(pid: int, entry: bytes) -> bool:
    try:
        return any(one.startswith(entry) for one in content(f"/proc/{pid}/environ").split(b"\0"))
    except OSError:
        return False  # it has ended, or belongs to another user


def _in_session(pid: int, sessions: frozenset[int]) -> bool:
    try:
        return bool(sessions) and os.getsid(pid) in sessions
    except OSError:
        return False
