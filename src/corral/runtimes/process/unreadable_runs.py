"""Runs whose record somebody removed or damaged, and its copy, too: what can be known and done without it.

Their processes are found by control group or mark, whether a shim lives by the lock.
"""

from __future__ import annotations

import contextlib
import os
import time

from corral.errors import CorralError
from corral.runtimes.cgroups.port import Cgroups
from corral.runtimes.keeper import exit_file, run_files
from corral.runtimes.keeper.run_lock import try_lock
from corral.runtimes.process.run_lookup import executed, unreadable
from corral.runtimes.process.runtime_mark import read_mark
from corral.sdk.runtime import RunHandle

_NAMED = 10


def refuse_living(directory: str, cgroups: Cgroups) -> None:
    """Of a run without record and shim: FORMAT_INVALID where its processes are found, for it was started."""
    mark = read_mark(directory)
    if mark is None or not mark.run or not run_files.was_executed(directory):
        return
    pids = cgroups.pids(mark.run)
    if pids:
        raise unreadable(directory, f"its record is gone, and its processes {pids[:_NAMED]} live")


def conclude(handle: RunHandle, cgroups: Cgroups) -> None:
    """After a kill: once nothing of such a run is left, its files say so. A shim that lives says it by itself, and
    a run whose record can be read is none of ours."""
    directory = handle.run_directory
    with contextlib.suppress(CorralError):
        if executed(directory) is not None:
            return
    if not run_files.was_executed(directory) or (lock := try_lock(directory)) is None:
        return
    try:
        if not cgroups.pids(handle.run_name):
            exit_file.write_exit(directory, None, at_ns=time.time_ns(), who="daemon", seen=False)
            run_files.say_empty(directory)
    finally:
        os.close(lock)
