"""Directories for claims: each is new, all lie on one disk, and none is removed before every claim is done.

ext4 skips inodes that were freed in the last minutes, one by one, at each new file: what one claim deletes,
the next one would pay for, up to twentyfold. So nothing is deleted in between, and the directories are spread
over the disk as ext4 spreads those at its top: each begins where no file was lately.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import pathlib
import shutil
import struct
import tempfile
from collections.abc import Iterator
from typing import Final

DISK: Final = "CORRAL_BENCH_DIR"
ROOT: Final = "BENCHMARK_TREES"
"""The variable by which the processes of one run share a root. Controllers refuse unknown ones named CORRAL_…."""

_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_TOP_DIRECTORY: Final = 0x00020000


def disk() -> pathlib.Path:
    """A real disk, `CORRAL_BENCH_DIR` or else /var/tmp: a memory disk has no flush."""
    return pathlib.Path(os.environ.get(DISK, "/var/tmp"))


def fresh_directory() -> pathlib.Path:
    """An empty directory; it stays until the run is over."""
    return pathlib.Path(tempfile.mkdtemp(prefix="t-", dir=shared_root()))


@functools.cache
def shared_root() -> pathlib.Path:
    """The directory around all fresh ones. A claim that is run by itself makes its own."""
    given = os.environ.get(ROOT)
    if given is not None:
        return pathlib.Path(given)
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    root = stack.enter_context(new_root())
    os.environ[ROOT] = str(root)
    return root


@contextlib.contextmanager
def new_root() -> Iterator[pathlib.Path]:
    """A root for one run, removed with everything in it at the end."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="cb-", dir=disk()))
    try:
        root.chmod(0o711)  # PostgreSQL runs as another user
        _spread(root)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _spread(directory: pathlib.Path) -> None:
    """Have ext4 place new directories in here far from each other; other file systems need no such thing."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flags = struct.pack("l", 0)
        with contextlib.suppress(OSError):
            (present,) = struct.unpack("l", fcntl.ioctl(descriptor, _GET_FLAGS, flags))
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", present | _TOP_DIRECTORY))
    finally:
        os.close(descriptor)
