"""A disk that refuses, in our words."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator
from typing import Final

import structlog

from corral.errors import Code, Retryable

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_log = structlog.get_logger("corral.daemon.cache")


@contextlib.contextmanager
def disk_work(subject: str) -> Iterator[None]:
    """Writing this may fail for want of room or worse: DISK_FULL or STORE_UNAVAILABLE, both Retryable."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise Retryable(
                Code.DISK_FULL,
                f"there is no room on this node's disk for {subject}",
                hint="make room, or lower cache.quota_bytes; it is tried again",
            ) from error
        raise Retryable(
            Code.STORE_UNAVAILABLE,
            f"{subject} cannot be written to the cache: {error.strerror or error}",
            hint="check the disk and the permissions of the data directory; it is tried again",
        ) from error


def note_use(path: pathlib.Path, now_ms: int) -> None:
    """The modification time of an entry's note is its last use. One that cannot be written is no harm."""
    try:
        os.utime(path, ns=(now_ms * 10**6, now_ms * 10**6))
    except OSError as error:
        _log.debug("cache.use_not_noted", path=str(path), reason=str(error))
