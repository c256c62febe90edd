"""`window`: the process that shows a run, in the run's directory. Standard library only.

Locked by the window, so that there is one; read by the daemon, which trusts only what the kernel confirms
(pid and start time).
"""

from __future__ import annotations

import contextlib
import fcntl
import os

WINDOW = "window"
_BYTES = 128


class WindowRecord:
    """A window's process, and the one that started it (for `screen`: the session itself)."""

    __slots__ = ("parent", "pid", "start")

    def __init__(self, pid: int, start: int, parent: int) -> None:
        self.pid = pid
        self.start = start
        self.parent = parent


def take_window(directory: str, window: WindowRecord) -> bool:
    """Register this process as the window, until it ends; False when another one is."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(f"{directory}/{WINDOW}", flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    line = f"corral-window 1 {window.pid} {window.start} {window.parent}\n"
    os.pwrite(descriptor, line.encode("ascii").ljust(_BYTES, b"\0"), 0)
    return True  # the descriptor, and the lock with it, is held until the process ends


def read_window(directory: str) -> WindowRecord | None:
    """The last window that there was; None when there was none."""
    try:
        descriptor = os.open(f"{directory}/{WINDOW}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fields = os.read(descriptor, _BYTES).partition(b"\n")[0].split()
    finally:
        os.close(descriptor)
    if len(fields) != 5 or fields[:2] != [b"corral-window", b"1"]:
        return None
    return WindowRecord(int(fields[2]), int(fields[3]), int(fields[4]))


def forget_window(directory: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{directory}/{WINDOW}")  # noqa: PTH108 - as its neighbours
