"""The rescue: takes the place of a shim that was killed.

It is not the parent of the workload. It gets the exit status from the kernel by a pidfd, or from the keeper,
which inherited the workload, and detects by itself when no process is left.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import NoReturn

from corral.runtimes.keeper import exit_file, forked_process, run_files
from corral.runtimes.keeper.companion_sweep import clear_lost
from corral.runtimes.keeper.console_relay import ConsoleRelay
from corral.runtimes.keeper.oom_kills import oom_kill_counted
from corral.runtimes.keeper.proc_facts import (
    environment_has,
    exit_witness,
    has_ended,
    kernel_file,
    open_process,
    start_time,
)
from corral.runtimes.keeper.run_files import RunRecord, try_lock

LOCK_LOST = 3
"""Exit code of a rescue that came too late: another process supervises the run."""
_WITNESS_SECONDS = 3.0
"""How long after the end the exit status may still be reported."""
_WITNESS_PAUSE = 0.005
_LOOK_FIRST = 0.005
_LOOK_AT_MOST = 0.5


def run_rescue(
    directory: str, *, lock: int, out: int, master: int, process: int, connection: int
) -> NoReturn:
    """The main function of a rescue. `lock` is -1 when it has to be taken first; `out` is the read end of the
    run's FIFO, which need not be that of the directory; `process` is a pidfd of the main process, or -1;
    `connection` is -1 without a requester, otherwise our pid is sent on it by `record` and it is closed."""
    forked_process.begin(b"corral-rescue", {lock, out, master, process, connection})
    if lock < 0 and try_lock(directory) is None:
        os._exit(LOCK_LOST)
    record = run_files.read_record(directory)
    if record is None or run_files.is_empty(directory) or run_files.read_failure(directory) is not None:
        os._exit(0)
    # The workload held the lock until it executed: a failure that `failed` does not hold by now never
    # happened.
    run_files.mark_executed(directory)
    _put_on_record(directory, record)
    if connection >= 0:
        os.close(connection)
    relay = ConsoleRelay(
        directory,
        out=out,
        master=master if record.tty else -1,
        segment_bytes=record.segment_bytes,
        quota_bytes=record.quota_bytes,
        taking_over=True,
    )
    main = process if process >= 0 else open_process(record.pid, record.start)
    relay.note_loss(main_ended=main is None or has_ended(main), terminal_lost=record.tty and master < 0)
    _await_exit(directory, record, relay, main)
    _await_empty(directory, record, relay)
    relay.finish()
    clear_lost(directory, wait=True)
    run_files.mark_empty(directory)
    os._exit(0)


def _put_on_record(directory: str, record: RunRecord) -> None:
    record.rescued = True
    record.shim = os.getpid()
    record.shim_start = start_time(os.getpid()) or 0
    with contextlib.suppress(OSError):  # a full disk: then a daemon finds us by the lock that we hold
        run_files.write_record(directory, record)


def _await_exit(directory: str, record: RunRecord, relay: ConsoleRelay, process: int | None) -> None:
    """Wait until the main process has ended and `exit` records how, or that it is unknown. A pidfd that
    another process held also gives the status of a process that ended before this rescue began; without one,
    its end was not seen."""
    while process is not None:
        if relay.wait((process,)):
            break
    ends = time.monotonic() + _WITNESS_SECONDS
    ended_ns = time.time_ns()
    while exit_file.read_exit(directory) is None:
        status = None if process is None else exit_witness(process, record.pid, record.start)
        if status is not None or time.monotonic() > ends:
            oom = oom_kill_counted(record.oom_file)
            seen = process is not None
            exit_file.write_exit(directory, status, at_ns=ended_ns, who="rescue", oom=oom, seen=seen)
            return
        relay.wait((), _WITNESS_PAUSE)


def _await_empty(directory: str, record: RunRecord, relay: ConsoleRelay) -> None:
    pause = _LOOK_FIRST
    while _has_processes(record):
        clear_lost(directory, wait=False)
        ends = time.monotonic() + pause
        while (left := ends - time.monotonic()) > 0:
            relay.wait((), left)
        pause = min(pause * 2, _LOOK_AT_MOST)


def _has_processes(record: RunRecord) -> bool:
    """Whether processes of the run are left: by its control groups, else by the marks in environments, where a process
    that wiped its environment after its shim was killed is not found."""
    if record.procs:
        return any(_is_populated(path) for path in record.procs)
    return any(environment_has(pid, record.marks) for pid in os.listdir("/proc") if pid.isdecimal())  # noqa: PTH208


def _is_populated(path: str) -> bool:
    """Whether the group has processes: by `cgroup.events`, which counts groups within, or by the list of
    processes (version 1)."""
    events = kernel_file(path.rpartition("/")[0] + "/cgroup.events")
    if events is not None:
        return b"populated 1" in events
    return bool((kernel_file(path) or b"").strip())
