"""Code that the keeper and each of its forks share: signals, name, open descriptors, and the keeper's log."""

from __future__ import annotations

import os
import signal
import time
from typing import NoReturn

from corral.runtimes.keeper import linux_calls

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT, signal.SIGTTOU)


def begin(name: bytes, kept: set[int]) -> None:
    """Make a fork a process of its own, without descriptors of other runs. It ignores the signals that the
    keeper ignores."""
    os.setsid()
    signal.set_wakeup_fd(-1)  # the keeper's: its number will be a file of ours
    linux_calls.set_name(name)
    close_all_but(kept | {0, 1, 2})


def set_signals() -> None:
    """Set the signals once, in the keeper: ignore those meant for others, and wake on SIGCHLD. Its forks
    inherit that; to set it anew would cost each of them 300 kB of pages that they share now."""
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
    """An empty handler: the signal's number in the wake-up pipe is all that is needed, and without a handler
    it is not written."""


def empty_pipe(reader: int) -> None:
    try:
        while os.read(reader, 4096):
            pass
    except BlockingIOError:
        return


LOG_BYTES = 1 << 20
"""The log is truncated when it has grown to this."""
_LOG = 2
_FAILED = 70


def log(text: str) -> None:
    """Write one line; a full disk is no reason to fail."""
    try:
        if os.fstat(_LOG).st_size > LOG_BYTES:
            os.ftruncate(_LOG, 0)
        os.write(_LOG, f"{time.time():.3f} {os.getpid()} {text}\n".encode(errors="replace"))
    except OSError:
        return


def error_text(error: BaseException | None) -> str:
    """An exception and where it happened, without importing `traceback` in a forked process."""
    places = []
    step = error.__traceback__ if error is not None else None
    while step is not None:
        places.append(f"{step.tb_frame.f_code.co_name}:{step.tb_lineno}")
        step = step.tb_next
    where = f" at {' > '.join(places)}" if places else ""
    return f"{type(error).__name__}: {error}{where}"


def fork() -> int:
    """-1 when the kernel refuses; the requester learns it from the closed connection."""
    try:
        return os.fork()
    except OSError as error:
        log(f"fork: {error}")
        return -1


class Fatal:
    """Ends a forked process whatever happens in it: it must never return into the keeper's loop."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> NoReturn:
        try:
            log(error_text(error))
        finally:
            os._exit(_FAILED)
