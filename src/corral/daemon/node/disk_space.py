"""Disk space guard: no preparation may use up the node's reserve."""

from __future__ import annotations

import errno
import pathlib
from typing import Final

from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.files import free_bytes

_MEBI: Final = 1024 * 1024
_FULL_BYTES: Final = _MEBI
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
RETRY_SECONDS: Final = 30.0


def lacks_room(directory: pathlib.Path, reserve_mb: int) -> bool:
    """Whether nothing can be prepared here, however small. Blocks for a moment."""
    try:
        return free_bytes(directory) < reserve_mb * _MEBI
    except OSError:
        return False


def full_disk(directory: pathlib.Path) -> str:
    """A text that this disk is full; empty: it is not, or cannot be read."""
    try:
        free = free_bytes(directory)
    except OSError:
        return ""
    return f"the disk of {directory} is full: {free // 1024} kB are free" if free < _FULL_BYTES else ""


def check_room(
    directory: pathlib.Path, *, reserve_mb: int, needed_mb: int = 0, copied_bytes: int = 0
) -> None:
    """DISK_FULL, with the numbers, unless the reserve stays untouched."""
    free = free_bytes(directory)
    needed = (reserve_mb + needed_mb) * _MEBI + copied_bytes
    if free >= needed:
        return
    copied = f" and {copied_bytes / _MEBI:.0f} MB of files" if copied_bytes else ""
    raise Retryable(
        Code.DISK_FULL,
        f"{directory} has {free // _MEBI} MB free; needed are {needed_mb} MB for the instance{copied}, "
        f"beside a reserve of {reserve_mb} MB",
        hint="make room on the node, or lower disk.reserve_mb or the group's disk_mb",
        retry_after=RETRY_SECONDS,
    )


def as_ours(error: OSError, *, doing: str, otherwise: Code) -> CorralError:
    """An error of the file system, as one of ours."""
    where = f" ({error.filename})" if error.filename else ""
    why = f"{doing} failed{where}: {error.strerror or error}"
    why = why.encode(errors="replace").decode()  # a name may not be UTF-8
    if error.errno in _FULL:
        return Retryable(Code.DISK_FULL, why, hint="make room on the node", retry_after=RETRY_SECONDS)
    if error.errno == errno.ENAMETOOLONG:
        return Rejected(otherwise, why, hint="give the file a shorter name: 255 bytes at most, a path 4,095")
    return Retryable(otherwise, why, hint="check the disk and the permissions of the data directory")
