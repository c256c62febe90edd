"""The cleanup after a companion whose minder was killed: kills every process that carries the companion's
mark.

The companion itself dies with its minder. The processes that it had started are found by the mark in the
environment; a process that wiped its own is not found, and ends with the run's group.

Standard library only: forks of the keeper share it.
"""

from __future__ import annotations

import os
import signal
import time
from typing import NoReturn

from corral.runtimes.keeper import companion_files, exit_file, forked_process
from corral.runtimes.keeper.forked_process import log
from corral.runtimes.keeper.proc_facts import boot_id, environment_has, open_process, start_time

MARK = "CORRAL_BESIDE"
_PAUSE = 0.005
_SECONDS = 5.0


def run_sweep(place: str) -> NoReturn:
    """The main function of a fork of the keeper that cleans up after a minder that was killed."""
    forked_process.begin(b"corral-sweep", set())
    lock = companion_files.try_lock(place)
    if lock is not None:
        clear_up(place)
    os._exit(0)


def clear_lost(run_directory: str, *, wait: bool) -> None:
    """Clean up after lost minders of a run whose main process has ended; called by the process that
    supervises the run, because no other may be left. Companions that have a minder end by themselves; `wait`:
    until they have, for a minder may be dying at this moment."""
    for name in companion_files.names_in(run_directory):
        place = companion_files.place_of(run_directory, name)
        try:
            if wait:
                wake_minder(place)
            lock = companion_files.take_lock(place) if wait else companion_files.try_lock(place)
            if lock is not None:
                try:
                    clear_up(place)
                finally:
                    os.close(lock)
        except (OSError, ValueError) as error:
            log(f"{place}: {error}")


def wake_minder(place: str) -> None:
    """Send SIGCONT to a minder: if it was stopped, a wait for its end would last for ever."""
    try:
        record = companion_files.read_record(place)
    except ValueError:
        return
    if record is None or record.boot != boot_id():
        return
    process = open_process(record.minder, record.minder_start)
    if process is None:
        return
    try:
        signal.pidfd_send_signal(process, signal.SIGCONT)
    except OSError:
        pass  # it has just ended
    finally:
        os.close(process)


def clear_up(place: str) -> bool:
    """With the lock held: kill whatever is left of a companion that lost its minder, and record that its exit
    status is unknown. False when a process survives. Idempotent."""
    try:
        record = companion_files.read_record(place)
    except ValueError:
        return True  # no record: it cannot be identified, and it died with its minder
    if record is None or exit_file.read_exit(place) is not None:
        return True
    companion_files.mark_lost(place)
    gone = record.boot != boot_id() or _kill_marked(f"{MARK}={record.mark}")
    if gone:
        exit_file.write_exit(place, None, at_ns=time.time_ns(), who="sweep")
    return gone


def _kill_marked(mark: str) -> bool:
    ends = time.monotonic() + _SECONDS
    while found := _marked(mark):
        if time.monotonic() > ends:
            return False
        for pid, start in found:
            process = open_process(pid, start)
            if process is not None:
                try:
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                except OSError:
                    pass  # it has just ended
                finally:
                    os.close(process)
        time.sleep(_PAUSE)
    return True


def _marked(mark: str) -> list[tuple[int, int]]:
    """Marked processes by pid and start time, which was the same before and after the environment was read."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - no pathlib in the keeper
        if name.isdecimal():
            start = start_time(int(name))
            if start is not None and environment_has(name, (mark,)) and start_time(int(name)) == start:
                found.append((int(name), start))
    return found
