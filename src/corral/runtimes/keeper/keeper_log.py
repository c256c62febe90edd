"""What keeper, shims and rescues have to say: a line each, into the keeper's log."""

from __future__ import annotations

import os
import time
from typing import NoReturn

LOG_BYTES = 1 << 20
"""A log that has grown to this begins again."""
_LOG = 2
_FAILED = 70


def log(text: str) -> None:
    """One line; a full disk is no reason to fail."""
    try:
        if os.fstat(_LOG).st_size > LOG_BYTES:
            os.ftruncate(_LOG, 0)
        os.write(_LOG, f"{time.time():.3f} {os.getpid()} {text}\n".encode(errors="replace"))
    except OSError:
        return


def told(error: BaseException | None) -> str:
    """What happened and where, without importing `traceback` in a forked process."""
    places = []
    step = error.__traceback__ if error is not None else None
    while step is not None:
        places.append(f"{step.tb_frame.f_code.co_name}:{step.tb_lineno}")
        step = step.tb_next
    where = f" at {' > '.join(places)}" if places else ""
    return f"{type(error).__name__}: {error}{where}"


def fork() -> int:
    """-1 when the kernel refuses; the caller's closed connection tells the other side."""
    try:
        return os.fork()
    except OSError as error:
        log(f"fork: {error}")
        return -1


class Fatal:
    """Ends a forked process, whatever happens in it: it must never return into the keeper's loop."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> NoReturn:
        try:
            log(told(error))
        finally:
            os._exit(_FAILED)
