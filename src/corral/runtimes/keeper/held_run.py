"""A run as the keeper holds it, in case its shim is killed: the read end of the console FIFO, the master of
the terminal, and a pidfd of the main process of a run that another keeper started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import termios
from typing import Any

from corral.runtimes.keeper import run_files
from corral.runtimes.keeper.keeper_protocol import CONSOLE, PROCESS, TERMINAL, RequestConnection

_ROWS_AND_COLUMNS = struct.pack("HHHH", 24, 80, 0, 0)
_OF_EARLIER_STARTS = (
    run_files.RECORD_COPY,
    run_files.RECORD,
    run_files.EXIT,
    run_files.FAILED,
    run_files.EMPTY,
    run_files.NOT_EMPTY,
    run_files.INPUT,
    run_files.OUTPUT,
)


class HeldRun:
    """Owns its descriptors until it is released; -1 for what it lacks."""

    __slots__ = ("directory", "master", "out", "process")

    def __init__(self, directory: str, out: int, master: int, process: int = -1) -> None:
        self.directory = directory
        self.out = out
        self.master = master
        self.process = process

    def shared(self) -> HeldRun:
        copies = [-1 if descriptor < 0 else os.dup(descriptor) for descriptor in (self.master, self.process)]
        return HeldRun(self.directory, os.dup(self.out), *copies)

    def learn(self, caller: RequestConnection) -> None:
        """Take the descriptors that are missing here from a request about this run."""
        if self.master < 0:
            self.master = caller.take(TERMINAL)
        if self.process < 0:
            self.process = caller.take(PROCESS)

    def release(self) -> None:
        for descriptor in (self.out, self.master, self.process):
            if descriptor >= 0:
                os.close(descriptor)


def open_run(plan: dict[str, Any]) -> tuple[HeldRun, int]:
    """Make new FIFOs and, if requested, a terminal, whose other end is returned, too; the held lock proves
    that no process uses older ones."""
    directory = plan["run_directory"]
    run_files.remove(directory, *_OF_EARLIER_STARTS)
    _make_console(directory)
    if not plan["tty"]:
        make_fifo(directory, run_files.OUTPUT, plan)
        return HeldRun(directory, _open_output(directory), -1), -1
    ours = {**plan, "uid": None}
    make_fifo(directory, run_files.OUTPUT, ours)
    make_fifo(directory, run_files.INPUT, ours)
    run = HeldRun(directory, _open_output(directory), -1)
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


def taken_over(directory: str, caller: RequestConnection) -> HeldRun:
    """A run that another keeper started, with the descriptors of the request. A FIFO that was removed is made
    again: a console without bytes is better than a run that cannot be supervised."""
    _make_console(directory)
    with contextlib.suppress(FileExistsError):
        os.mkfifo(f"{directory}/{run_files.OUTPUT}", 0o600)
    out = caller.take(CONSOLE)
    run = HeldRun(directory, out if out >= 0 else _open_output(directory), -1)
    run.learn(caller)
    return run


def make_fifo(directory: str, name: str, plan: dict[str, Any]) -> None:
    """Make a new FIFO owned by the workload's user, which must be able to open /dev/stderr again."""
    path = f"{directory}/{name}"
    os.mkfifo(path, 0o600)
    if plan["uid"] is not None:
        os.chown(path, plan["uid"], plan["gid"])


def _make_console(directory: str) -> None:
    with contextlib.suppress(FileExistsError):  # what was printed before stays
        os.mkdir(f"{directory}/{run_files.CONSOLE}", 0o700)  # noqa: PTH102


def _open_output(directory: str) -> int:
    return os.open(f"{directory}/{run_files.OUTPUT}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
