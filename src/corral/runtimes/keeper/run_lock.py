"""The lock of a run: held while something of it exists, or is coming."""

from __future__ import annotations

import fcntl
import os

from corral.runtimes.keeper.run_files import LOCK


def was_attempted(directory: str) -> bool:
    """Has anybody ever tried to start this run? Nothing can be left of one that nobody did."""
    return os.path.exists(f"{directory}/{LOCK}")  # noqa: PTH110 - as the neighbours name files


def try_lock(directory: str) -> int | None:
    """The lock's descriptor, ours until it and all its copies are closed; None when it is held."""
    descriptor = os.open(f"{directory}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
