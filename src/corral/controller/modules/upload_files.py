"""Upload files: files of uploads that are being received. Each has a name, because other code opens it, and a
lock while it is in use.

A process that died leaves its files behind without their locks; the next one removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import secrets
import tempfile
from typing import Final

_PREFIX: Final = "module-"
_SUFFIX: Final = ".part"
_ATTEMPTS: Final = 10


def create_upload(directory: pathlib.Path) -> tuple[int, pathlib.Path]:
    """A new file in the directory, open and locked for as long as it is open. Blocking."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        fd, name = tempfile.mkstemp(dir=directory, prefix=_PREFIX, suffix=_SUFFIX)
        if _locked(fd) and os.fstat(fd).st_nlink:
            return fd, pathlib.Path(name)
        os.close(fd)  # `sweep_uploads` locked or removed the file before it was locked here


def link_upload(file: pathlib.Path) -> pathlib.Path:
    """Another name for an upload that is whole, beside it: it stays until this name is removed as well, or until the next
    `sweep_uploads`. Blocking; OSError."""
    for _ in range(_ATTEMPTS):
        other = file.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
        with contextlib.suppress(FileExistsError):
            os.link(file, other, follow_symlinks=False)
            return other
    raise FileExistsError(file)


def sweep_uploads(directory: pathlib.Path) -> None:
    """Remove the files that a dead process left; those that are being received are locked, and stay. Blocking."""
    if not directory.is_dir():
        return
    for left in directory.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError), left.open("rb") as file:
            if _locked(file.fileno()):
                left.unlink(missing_ok=True)


def _locked(fd: int) -> bool:
    """Take the lock of an open file, for as long as it is open; False when another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
