"""What shim and rescue have in common: how they begin, and how they wait."""

from __future__ import annotations

import os
import signal

from corral.runtimes.keeper import linux_calls

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT, signal.SIGTTOU)


def begin(name: bytes, kept: set[int]) -> None:
    """A process of its own: no descriptor of another run. It ignores what the keeper ignores."""
    os.setsid()
    signal.set_wakeup_fd(-1)  # the keeper's: its number will be a file of ours
    linux_calls.set_name(name)
    close_all_but(kept | {0, 1, 2})


def set_signals() -> None:
    """Once, in the keeper: no signal meant for others, and word of children that end. Its forks inherit
    that; to set it anew would cost each of them 300 kB of pages that they share now."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _wake)


def close_all_but(kept: set[int]) -> None:
    low = 0
    for descriptor in sorted(kept - {-1}):
        if low < descriptor:  # an empty range at 0 would mean all of them
            os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def child_signals() -> int:
    """A descriptor that becomes readable when a child of this process ends."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _wake(*_: object) -> None:
    """The signal's number in the wake-up pipe is all we need; without a handler it is not written."""


def empty_pipe(reader: int) -> None:
    try:
        while os.read(reader, 4096):
            pass
    except BlockingIOError:
        return
