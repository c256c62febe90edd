"""Ending with the parent, however it ended.

The parent holds the write end of a pipe and never writes to it. Whatever kills the parent,
the kernel closes that end, and the child's read end reports the end of the file. (A death
signal would be sent when the parent's *thread* ends, and is lost across a set-uid exec.)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from corral.errors import Code, Rejected


def watch(fd: int, callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback` once, on the running loop, when the other end of the pipe is closed.

    Takes the descriptor over and keeps it from programs started later. Returns the function
    that stops watching and closes it; calling that again does nothing.
    """
    try:
        os.set_inheritable(fd, False)
        os.set_blocking(fd, False)
    except OSError as error:
        raise Rejected(
            Code.INVALID_CONFIG,
            f"--parent-fd {fd} is not an open pipe",
            hint="only 'corral up' uses this flag",
        ) from error
    loop = asyncio.get_running_loop()
    closed = False

    def stop() -> None:
        nonlocal closed
        if not closed:
            closed = True
            loop.remove_reader(fd)
            os.close(fd)

    def readable() -> None:
        try:
            ended = os.read(fd, 512) == b""
        except BlockingIOError:
            return
        except OSError:
            ended = True
        if ended:
            stop()
            callback()

    loop.add_reader(fd, readable)
    return stop
