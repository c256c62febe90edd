"""Files that `up` leaves in its directory: the record of its process, and the runs of its node.

`up` writes the record and `down` reads it. A process id alone may belong to another process by the time it is read;
the id together with the start time of the process does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
from typing import Final

from corral.errors import Code, Rejected
from corral.runtimes.keeper.proc_facts import boot_id, is_alive
from corral.runtimes.keeper.run_files import EMPTY, read_record
from corral.system.files import atomic_write, check_format

_FILE: Final = "up.pid"
_FORMAT: Final = "corral-up"
_VERSION: Final = 1


def write_record(directory: pathlib.Path) -> None:
    pid = os.getpid()
    document = {"format": _FORMAT, "version": _VERSION, "pid": pid, "started": _start_ticks(pid)}
    atomic_write(directory / _FILE, json.dumps(document).encode() + b"\n")


def remove_record(directory: pathlib.Path) -> None:
    (directory / _FILE).unlink(missing_ok=True)


def find_running(directory: pathlib.Path) -> tuple[int, int] | None:
    """The process id and an open pidfd of the `up` of this directory; None when none runs."""
    path = directory / _FILE
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        document = None
    check_format(document, path=path, name=_FORMAT, version=_VERSION)
    pid, started = document.get("pid"), document.get("started")
    if not isinstance(pid, int) or not isinstance(started, int):
        raise Rejected(
            Code.FORMAT_INVALID, f"{path} is damaged", hint="delete it, or end the process by hand"
        )
    try:
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, ValueError):
        return None
    if _start_ticks(pid) != started:  # after opening: from here on the id cannot change hands
        os.close(pidfd)
        return None
    return pid, pidfd


def _start_ticks(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None when it is gone or only not yet reaped."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *numbers = status.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(numbers[18])


def live_instances(data: pathlib.Path) -> list[str]:
    """Ids of the instances of which a process is left; to be shown, not to be acted upon."""
    boot = boot_id()
    return sorted({run.parent.name for run in data.glob("runs/*/*") if _lives(run, boot)})


def _lives(run: pathlib.Path, boot: str) -> bool:
    if (run / EMPTY).exists():
        return False
    with contextlib.suppress(OSError, ValueError, KeyError):  # damaged, or gone while we looked
        record = read_record(str(run))
        if record is not None and record.boot == boot:
            return is_alive(record.pid, record.start) or is_alive(record.shim, record.shim_start)
    return False


def unfinished_runs(data: pathlib.Path) -> bool:
    """Whether a run has not been seen to its end: it may live, or wait to be started again."""
    return any(not (run / "outcome.json").exists() for run in data.glob("runs/*/*"))


def keeper_lives(data: pathlib.Path) -> bool:
    """Whether a keeper holds its lock, though it may supervise nothing."""
    for path in data.glob("keeper/*.lock"):
        with contextlib.suppress(OSError), path.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False
