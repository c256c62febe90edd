"""Removal of the files of a workload, whatever they are and while processes may still write to them.

Each directory is opened below the one before and closed to all other users before it is read: from then on no
other process can move, swap or add anything in it, not even with a descriptor from before. Directories may be
nested deeper than descriptors or memory allow: the way back is `..`, checked, and what is too deep moves to
the top.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
import stat
from typing import Final

from corral.system.trees.entries import DIRECTORY, itself, look_at, open_within

_CLOSED: Final = 0o700
_LEVELS: Final = 1_000
"""Depth beyond which directories are moved up."""
_MOVES: Final = 10_000
"""Moves in one pass."""
_NOTED: Final = 10_000
"""Names of directories that are held of one directory at a time."""
_PASSES: Final = 3
_NO_DIRECTORY: Final = frozenset({errno.ENOTDIR, errno.ELOOP})


def remove(path: pathlib.Path) -> str:
    """Like `remove_tree`; returns why something of it is left, or an empty text."""
    try:
        remove_tree(path)
    except OSError as error:
        return f"{error.filename or path}: {error.strerror or error}"
    return ""


def remove_tree(path: pathlib.Path) -> None:
    """Delete it, whatever it is; fine when it is missing. The directory that holds it is the daemon's own.
    Mounts in it stay. OSError of the first entry that could not be removed, after all others were. Blocks;
    interrupted, the next call does the rest."""
    with contextlib.suppress(FileNotFoundError):
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _Removal(parent).run(path.name)
        finally:
            os.close(parent)


class _RemovalLevel:
    """A directory on the way down: its identity, its name, and the subdirectories left to visit."""

    __slots__ = ("gone", "identity", "more", "name", "waiting")

    def __init__(self, name: str, found: os.stat_result) -> None:
        self.name = name
        self.identity = (found.st_dev, found.st_ino)
        self.waiting: list[str] = []
        self.more = False
        """There are directories that were not listed yet."""
        self.gone = 0


class _Removal:
    """The removal of one tree; `run` once. `_here` is the only directory that is open, beside the top."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._here = -1
        self._top = -1
        self._levels: list[_RemovalLevel] = []
        self._moved_up = 0
        self._failed: OSError | None = None

    def run(self, name: str) -> None:
        try:
            self._top = _open_closed(self._parent, name)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY:
                raise
            os.unlink(name, dir_fd=self._parent)
            return
        try:
            for _ in range(_PASSES):
                self._failed, self._moved_up = None, 0
                self._levels = [_RemovalLevel(name, os.fstat(self._top))]
                self._go_to(os.dup(self._top))
                self._empty()
                if self._failed is None:
                    break
        finally:
            self._go_to(-1)
            os.close(self._top)
        self._rmdir(self._parent, name)
        if self._failed is not None:
            raise self._failed

    def _go_to(self, descriptor: int) -> None:
        if self._here >= 0:
            os.close(self._here)
        self._here = descriptor

    def _empty(self) -> None:
        """Remove everything in the top directory; what cannot be removed is recorded and skipped."""
        self._read()
        while True:
            level = self._levels[-1]
            if level.waiting:
                self._enter(level.waiting.pop())
            elif level.more and level.gone:
                self._read()
            elif len(self._levels) > 1:
                self._leave()
            else:
                return

    def _read(self) -> None:
        """Unlink what is no directory, and list those that are."""
        level = self._levels[-1]
        level.more, level.gone = False, 0
        with os.scandir(self._here) as found:
            for entry in found:
                if not entry.is_dir(follow_symlinks=False):
                    self._unlink(entry.name)
                elif len(level.waiting) < _NOTED:
                    level.waiting.append(entry.name)
                else:
                    level.more = True

    def _enter(self, name: str) -> None:
        if len(self._levels) >= _LEVELS and self._move_up(name):
            return
        try:
            below = _open_closed(self._here, name)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in _NO_DIRECTORY:
                self._unlink(name)
            else:
                self._note(name, error)
            return
        self._go_to(below)
        self._levels.append(_RemovalLevel(name, os.fstat(below)))
        self._read()

    def _move_up(self, name: str) -> bool:
        """Move to the top, under a free name. False when it cannot be moved: then the removal goes deeper."""
        self._moved_up += 1
        if self._moved_up > _MOVES:  # another process creates as fast as this one removes
            self._note(name, OSError(errno.ELOOP, "it is nested too deep"))
            return True
        fresh = f".deep-{secrets.token_hex(8)}"
        try:
            _open_to_us(self._here, name)
            os.rename(name, fresh, src_dir_fd=self._here, dst_dir_fd=self._top)
        except OSError:
            return False
        self._levels[0].waiting.append(fresh)
        return True

    def _leave(self) -> None:
        """Go back to the directory above, and remove this one. If it was moved meanwhile, it is not followed:
        the next pass begins at the top."""
        left, above = self._levels.pop(), -1
        try:
            above = os.open("..", DIRECTORY, dir_fd=self._here)
            found = os.fstat(above)
            if (found.st_dev, found.st_ino) != self._levels[-1].identity:
                os.close(above)
                raise OSError(errno.ESTALE, "it was moved while it was removed")
        except OSError as error:
            self._note(left.name, error)
            self._go_to(os.dup(self._top))
            del self._levels[1:]
            return
        self._go_to(above)
        self._rmdir(above, left.name)

    def _rmdir(self, here: int, name: str) -> None:
        try:
            os.rmdir(name, dir_fd=here)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note(name, error)
            return
        if self._levels:
            self._levels[-1].gone += 1

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._here)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note(name, error)

    def _note(self, name: str, error: OSError) -> None:
        if self._failed is None:
            self._failed = OSError(error.errno, error.strerror, name)


def _open_closed(here: int, name: str) -> int:
    """Open a directory that from now on only this process changes. A root daemon takes its ownership: an
    owner could open it again. ENOTDIR or ELOOP for anything else, EXDEV for a mount."""
    try:
        descriptor = open_within(here, name)
    except PermissionError:  # closed even to its owner, and we are not root
        _open_to_us(here, name)
        descriptor = open_within(here, name)
    found = os.fstat(descriptor)
    with contextlib.suppress(OSError):  # some file systems know neither owners nor modes
        if os.geteuid() == 0 and found.st_uid != 0:
            os.fchown(descriptor, 0, 0)
    with contextlib.suppress(OSError):
        if stat.S_IMODE(found.st_mode) != _CLOSED:
            os.fchmod(descriptor, _CLOSED)
    return descriptor


def _open_to_us(here: int, name: str) -> None:
    """Make a directory accessible: one that is closed to its owner can be neither read nor moved."""
    with look_at(here, name, mounted=False) as looked:
        found = os.fstat(looked)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            itself(looked).chmod(_CLOSED)
