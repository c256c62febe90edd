"""What the keeper holds of a run, in case its shim is killed: the read end of its console FIFO, and the
master of its terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
from typing import Any

from corral.runtimes.process import run_files

_ROWS_AND_COLUMNS = struct.pack("HHHH", 24, 80, 0, 0)
_OF_EARLIER_STARTS = (
    run_files.RECORD,
    run_files.EXIT,
    run_files.FAILED,
    run_files.EMPTY,
    run_files.NOT_EMPTY,
    run_files.INPUT,
    run_files.OUTPUT,
)


class MindedRun:
    """Owns its descriptors until it is released."""

    __slots__ = ("directory", "master", "out")

    def __init__(self, directory: str, out: int, master: int) -> None:
        self.directory = directory
        self.out = out
        self.master = master

    def shared(self) -> MindedRun:
        return MindedRun(self.directory, os.dup(self.out), -1 if self.master < 0 else os.dup(self.master))

    def release(self) -> None:
        for descriptor in (self.out, self.master):
            if descriptor >= 0:
                os.close(descriptor)


def open_run(plan: dict[str, Any]) -> tuple[MindedRun, int]:
    """Fresh FIFOs and, if asked for, a terminal, whose other end is returned, too; the lock says that
    nobody uses older ones."""
    directory = plan["run_directory"]
    run_files.remove(directory, *_OF_EARLIER_STARTS)
    _make_console(directory)
    if not plan["tty"]:
        make_fifo(directory, run_files.OUTPUT, plan)
        return MindedRun(directory, _open_output(directory), -1), -1
    ours = {**plan, "uid": None}
    make_fifo(directory, run_files.OUTPUT, ours)
    make_fifo(directory, run_files.INPUT, ours)
    run = MindedRun(directory, _open_output(directory), -1)
    slave = -1
    try:
        run.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, _ROWS_AND_COLUMNS)
        if plan["uid"] is not None:
            os.fchown(slave, plan["uid"], -1)
    except OSError:
        run.release()
        if slave >= 0:
            os.close(slave)
        raise
    return run, slave


def reopen_run(directory: str) -> MindedRun:
    """A run that another keeper started. What somebody removed of it is made again: better a console
    without bytes than a run that nobody can mind."""
    _make_console(directory)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(f"{directory}/{run_files.OUTPUT}", 0o600)
    return MindedRun(directory, _open_output(directory), -1)


def make_fifo(directory: str, name: str, plan: dict[str, Any]) -> None:
    """New, and the workload's own: it must be able to open /dev/stderr again."""
    path = f"{directory}/{name}"
    os.mkfifo(path, 0o600)
    if plan["uid"] is not None:
        os.chown(path, plan["uid"], plan["gid"])


def _make_console(directory: str) -> None:
    with contextlib.suppress(FileExistsError):  # what was printed before stays
        os.mkdir(f"{directory}/{run_files.CONSOLE}", 0o700)  # noqa: PTH102


def _open_output(directory: str) -> int:
    return os.open(f"{directory}/{run_files.OUTPUT}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
