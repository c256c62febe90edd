"""Lookup of a run: its state from its lock, its files and its processes.

The lock is tried first: held, a process of the run exists or is being started; free, the files are final,
except for a workload that lost its shim. For a run whose record and its copy were removed or damaged the
processes are found by control group or mark, and whether a shim lives by the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from corral.errors import Code, CorralError, Rejected, Retryable
from corral.runtimes.cgroups.port import Cgroups
from corral.runtimes.keeper import exit_file, run_files
from corral.runtimes.keeper.exit_file import StoredExit
from corral.runtimes.keeper.proc_facts import start_time
from corral.runtimes.keeper.run_files import RunRecord, TooNew, try_lock
from corral.runtimes.process.workload_context import read_mark
from corral.sdk.runtime import RunExit, RunHandle
from corral.system.aio.backoff import Backoff

_START_SECONDS: Final = 60.0
_WITHOUT_RECORD_SECONDS: Final = 0.5
_FIRST_PAUSE: Final = 0.001
_LAST_PAUSE: Final = 0.05
_DELETED: Final = " (deleted)"


class RecordedRun(msgspec.Struct, frozen=True):
    record: RunRecord
    supervised: bool
    """A shim or rescue holds the lock."""
    new: bool = False
    """Its shim has reported the start a moment ago: its files are those that the shim made."""


async def find_run(directory: str) -> RecordedRun | None:
    """None: its program was never executed, and never will be. Waits for a start in progress; its shim gives
    up by itself when the daemon that ordered it is gone."""
    began = asyncio.get_running_loop().time()
    backoff = Backoff(first=_FIRST_PAUSE, longest=_LAST_PAUSE)
    while True:
        settled, found = look(directory)
        if settled:
            return found
        waited = asyncio.get_running_loop().time() - began
        if waited > _WITHOUT_RECORD_SECONDS and run_files.was_executed(directory):
            raise unreadable(directory, "its record is gone, and something of it holds its lock")
        if waited > _START_SECONDS:
            raise Retryable(
                Code.SPAWN_FAILED,
                f"a start of the run in {directory} has been under way for more than {_START_SECONDS:g} s",
                hint="see `lsof` on its lock for the process that holds it",
            )
        await asyncio.sleep(backoff.delay())


def look(directory: str) -> tuple[bool, RecordedRun | None]:
    """Whether the state of the run is final, and the state."""
    try:
        lock = try_lock(directory)
    except FileNotFoundError:
        return True, None  # not even its directory exists
    try:
        record = executed(directory)
        if lock is not None:
            return True, None if record is None else RecordedRun(record, False)
        if record is None or run_files.undecided(directory):
            return False, None
        return True, RecordedRun(record, True)
    finally:
        if lock is not None:
            os.close(lock)


def executed(directory: str) -> RunRecord | None:
    """The record of a run whose program was executed; None when it was not, or not yet."""
    try:
        record = run_files.read_record(directory)
        return None if run_files.read_failure(directory) is not None else record
    except TooNew as error:
        raise Rejected(
            Code.FORMAT_TOO_NEW,
            f"the run in {directory} was started by a newer Corral: {error}",
            hint="run the version that started it, or a newer one",
        ) from error
    except (ValueError, KeyError) as error:
        raise unreadable(directory, str(error)) from error


def unreadable(directory: str, why: str) -> Rejected:
    return Rejected(
        Code.FORMAT_INVALID,
        f"the files of the run in {directory} are damaged: {why}",
        hint="stop or kill the instance: its processes are found by their control group or their mark;"
        " or end them by hand and move the directory away",
    )


def stored_elsewhere(directory: str, record: RunRecord) -> bool:
    """Whether the output of the run goes to another directory: an older copy of this one was put in its place
    while the run lived. Found by the shim's open console files; without a shim by the main process's open
    FIFO."""
    held = list(_open_files(record.shim, record.shim_start, run_files.CONSOLE, stat.S_ISDIR))
    if held:
        return not _has(directory, run_files.CONSOLE, held[0])
    fifos = _open_files(record.pid, record.start, run_files.OUTPUT, stat.S_ISFIFO)
    return any(not _has(directory, run_files.OUTPUT, fifo) for fifo in fifos)


def console_source(directory: str, record: RunRecord) -> int:
    """The read end of the FIFO into which the run prints: that which its shim reads, wherever it is by now,
    otherwise that of its directory. Raises OSError when there is none."""
    for fifo in _open_files(record.shim, record.shim_start, run_files.OUTPUT, stat.S_ISFIFO):
        if not _has(directory, run_files.OUTPUT, fifo):
            with contextlib.suppress(OSError):
                return _open_to_read(fifo)
    return open_fifo(directory)


def open_fifo(directory: str) -> int:
    """The read end of the FIFO of this directory."""
    return _open_to_read(f"{directory}/{run_files.OUTPUT}")


def _open_to_read(fifo: str) -> int:
    return os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _open_files(pid: int, start: int, name: str, kind: Callable[[int], bool]) -> Iterator[str]:
    """Files of this kind that a process has open under this name, as /proc paths; empty when the process is
    gone, or may not be inspected."""
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names alone
            path = f"/proc/{pid}/fd/{number}"
            opened = os.readlink(path).removesuffix(_DELETED)  # noqa: PTH115
            named = opened.rpartition("/")[2] == name
            if named and kind(os.stat(path).st_mode) and start_time(pid) == start:  # noqa: PTH116
                yield path


def _has(directory: str, name: str, file: str) -> bool:
    """Whether this is the file of that name here. True as well when it is closed by now."""
    try:
        held = os.stat(file)  # noqa: PTH116
    except OSError:
        return True
    try:
        return os.path.samestat(held, os.stat(f"{directory}/{name}"))  # noqa: PTH116
    except FileNotFoundError:
        return False


_NAMED = 10


def refuse_living(directory: str, cgroups: Cgroups) -> None:
    """Refuse a run without record and shim with FORMAT_INVALID where its processes are found, for it was
    started, whatever its files say: they may be an older copy."""
    mark = read_mark(directory)
    if mark is None or not mark.run:
        return
    pids = cgroups.pids(mark.run)
    if pids:
        raise unreadable(directory, f"they have no record, and its processes {pids[:_NAMED]} live")


def conclude(handle: RunHandle, cgroups: Cgroups) -> None:
    """After a kill: once no process of such a run is left, write that to its files. A living shim does it by
    itself, and a run whose record can be read is not handled here."""
    directory = handle.run_directory
    with contextlib.suppress(CorralError):
        if executed(directory) is not None:
            return
    if not run_files.was_executed(directory) or (lock := try_lock(directory)) is None:
        return
    try:
        if not cgroups.pids(handle.run_name):
            exit_file.write_exit(directory, None, at_ns=time.time_ns(), who="daemon", seen=False)
            run_files.mark_empty(directory)
    finally:
        os.close(lock)


RUNTIME = "process"


def exit_of(ending: StoredExit, *, oom: bool = False) -> RunExit:
    """The exit as the API has it; `oom` is the control group's count beside the file."""
    at_ms = ending.at_ns // 1_000_000
    if ending.status is None:
        return RunExit(
            known=False,
            ended_at_ms=at_ms,
            seen=ending.seen,
            reason="shim and keeper were both killed, and the kernel does not tell"
            if ending.seen
            else "daemon, keeper and shim had all been killed",
        )
    if not os.WIFSIGNALED(ending.status):
        return RunExit(known=True, code=os.WEXITSTATUS(ending.status), ended_at_ms=at_ms)
    number = os.WTERMSIG(ending.status)
    return RunExit(
        known=True,
        signal=number,
        core_dumped=os.WCOREDUMP(ending.status),
        ended_at_ms=at_ms,
        oom_killed=number == signal.SIGKILL and (oom or ending.oom),
    )


def lost_with_the_host() -> RunExit:
    return RunExit(known=False, host_rebooted=True, reason="the machine was restarted while it ran")


def handle_of(record: RunRecord, directory: str, *, runtime: str = RUNTIME) -> RunHandle:
    return RunHandle(
        runtime=runtime,
        run_name=record.run,
        run_directory=directory,
        pid=record.pid,
        started_at_ms=record.started_ns // 1_000_000,
        started_after_boot_ms=record.started_boot_ns // 1_000_000,
        state={
            "start": record.start,
            "boot": record.boot,
            "shim": record.shim,
            "shim_start": record.shim_start,
        },
    )
