"""Commands written into the input of a run: whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import termios
from typing import Final

from corral.errors import Code, Rejected, Retryable
from corral.runtimes.keeper.run_files import INPUT

MAX_COMMAND_BYTES: Final = 4095
"""With its newline a write of this size is atomic in a pipe."""


class InputNotRead(Retryable):
    """The workload does not read; `unread_bytes` wait before this line, of which nothing was sent."""

    def __init__(self, run: str, unread_bytes: int) -> None:
        super().__init__(
            Code.INPUT_NOT_READ,
            f"run {run} does not read its input: {unread_bytes} bytes wait there",
            hint="the program is busy, stuck, or takes no commands",
        )
        self.unread_bytes = unread_bytes


def write_command(run_directory: str, run: str, line: str) -> None:
    """Never waits. The FIFO takes all of it, or nothing was sent."""
    data = line.encode("utf-8", "surrogateescape")
    if len(data) > MAX_COMMAND_BYTES or b"\n" in data or b"\r" in data or b"\0" in data:
        raise Rejected(
            Code.INVALID_FIELD,
            f"a command is one line of at most {MAX_COMMAND_BYTES} bytes, this one has {len(data)}",
            hint="send several commands",
            field="command",
        )
    try:
        descriptor = os.open(f"{run_directory}/{INPUT}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            raise _closed(run) from error
        raise
    try:
        os.write(descriptor, data + b"\n")
    except BlockingIOError:
        unread = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0]
        raise InputNotRead(run, unread) from None
    except BrokenPipeError:
        raise _closed(run) from None
    finally:
        os.close(descriptor)


def _closed(run: str) -> Rejected:
    return Rejected(
        Code.INPUT_CLOSED,
        f"run {run} has no input: it has ended, closed it, or was started with `stdin: none`",
    )
