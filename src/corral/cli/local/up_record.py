"""Which process runs `up` in a directory: written by `up`, read by `down`.

A process id alone may belong to somebody else by the time it is read; with the time the
process was started, it does not.
"""

from __future__ import annotations

import json
import os
import pathlib
from typing import Final

from corral.errors import Code, Rejected
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
