"""Copy of one file to its place, as cheaply as the file system allows.

A clone shares the blocks until one side is written; without clones, the kernel copies. A hard link shares the file
itself: only for files marked read-only, and only when the workload's user can neither write nor change the mode of a
file that stays the daemon's.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import pathlib
from typing import Final

from corral.daemon.prepare.abort import Abort
from corral.system.files import write_all
from corral.system.trees.entries import LINKED_MODE, NEW_FILE

_FICLONE: Final = 0x40049409
_BLOCK: Final = 8 * 1024 * 1024
_NO_CLONES: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS})
_NO_LINKS: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})
_NO_COPY_CALL: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})


def clones_work(source_directory: pathlib.Path, target_directory: pathlib.Path) -> bool:
    """Whether files of the one can be cloned into the other: tested with a file of one block."""
    source, target = source_directory / ".clone-probe", target_directory / ".clone-probe-copy"
    try:
        source.write_bytes(b"\0" * 4096)
        with source.open("rb") as reading, target.open("wb") as writing:
            fcntl.ioctl(writing.fileno(), _FICLONE, reading.fileno())
    except OSError:
        return False
    finally:
        source.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
    return True


@functools.cache
def stripped_by_umask() -> int:
    """The bits that new files of this process never get. Read from procfs, not by `umask(2)`, which would have to
    change it for a moment; no code of ours ever changes it."""
    for line in pathlib.Path("/proc/self/status").read_text(errors="replace").splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o777


class FileCopier:
    """Places files. Shared by threads; its only state is what the file system turned out not to support."""

    def __init__(self, *, clone: bool, link: bool, owner: tuple[int, int] | None = None) -> None:
        self._clone = clone
        self._link = link
        self._owner = owner
        """The owner of new files; None: the daemon."""

    def place(
        self, source: str, target: str, *, mode: int, read_only: bool, abort: Abort, size: int | None = None
    ) -> None:
        """Place the file at `target`, which must not exist. OSError when the disk refuses; Aborted between two blocks.
        `size`, where it is known, saves a read for more."""
        if self._link and read_only and mode == LINKED_MODE and self._linked(source, target):
            return
        reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            writing = os.open(target, NEW_FILE, mode)
            try:
                self._fill(reading, writing, abort, size)
                if self._owner is not None:
                    os.fchown(writing, *self._owner)
                if mode & stripped_by_umask():
                    os.fchmod(writing, mode)
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def write(self, body: bytes, target: str, *, mode: int) -> None:
        """Place a file with this content at `target`, which must not exist. OSError when the disk refuses."""
        writing = os.open(target, NEW_FILE, mode)
        try:
            write_all(writing, body)
            if self._owner is not None:
                os.fchown(writing, *self._owner)
            if mode & stripped_by_umask():
                os.fchmod(writing, mode)
        finally:
            os.close(writing)

    def shares(self, mode: int, *, read_only: bool) -> bool:
        """Whether such a file shares the blocks of its source, as far as is known."""
        return self._clone or (self._link and read_only and mode == LINKED_MODE)

    def _linked(self, source: str, target: str) -> bool:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return False
        return True

    def _fill(self, reading: int, writing: int, abort: Abort, size: int | None) -> None:
        if self._clone:
            try:
                fcntl.ioctl(writing, _FICLONE, reading)
                return
            except OSError as error:
                if error.errno not in _NO_CLONES:
                    raise
                self._clone = False
        copy_content(reading, writing, abort, size)


def copy_content(reading: int, writing: int, abort: Abort, size: int | None = None) -> None:
    """Copy from both current positions to the end, which is `size` bytes away if that is known."""
    left = -1 if size is None else size
    try:
        while left and (copied := os.copy_file_range(reading, writing, _BLOCK)):
            left -= copied
            abort.check()
        return
    except OSError as error:
        if error.errno not in _NO_COPY_CALL:
            raise
    while block := os.read(reading, 1 << 20):
        abort.check()
        view = memoryview(block)
        while view:
            view = view[os.write(writing, view) :]
