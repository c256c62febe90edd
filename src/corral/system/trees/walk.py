"""A walk through a tree that others may change meanwhile: each directory is opened below the one before.

Only one directory is open at a time, however deep the tree is. The way back is `..`, and it must lead to the
very directory that the walk came from: a directory that is moved during its visit ends the walk, and leads it
nowhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

from corral.domain.file_paths import DEEPEST
from corral.errors import Code, Rejected, Retryable
from corral.system.trees.entries import DIRECTORY, open_within

MOST_ENTRIES: Final = 1_000_000
_PASSED_BY: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EXDEV})
"""A directory that is gone, swapped for something else, not accessible, or an excluded mount."""


class TreeEntry(NamedTuple):
    """An entry of the tree, a link as itself. `here` is open until the walk continues."""

    name: str
    status: os.stat_result
    here: int
    levels: list[_WalkLevel]

    @property
    def path(self) -> str:
        """The path from the root on; only while the walk is here."""
        return "/".join([*(level.name for level in self.levels[1:]), self.name])

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


class _WalkLevel(NamedTuple):
    name: str
    identity: tuple[int, int]
    waiting: list[str]
    """Directories in it that are still to be visited."""


def walk(
    root: int, *, deepest: int = DEEPEST, most: int = MOST_ENTRIES, mounted: bool = True
) -> Iterator[TreeEntry]:
    """Everything below an open directory; of each directory first its own entries. Entries that vanish
    meanwhile or are not accessible are skipped, and unless `mounted` so is the content of mounts: a mount in
    a tree is meant to be read with the tree, and not changed with it. PATH_REFUSED beyond `deepest` nested
    directories or `most` entries; FILE_UNREADABLE, Retryable, when a directory is moved during its visit;
    OSError. Blocks."""
    here = os.dup(root)
    try:
        levels = [_level("", here)]
        left = most
        for found in _entries(here, levels):
            left = _counted(left, most)
            yield found
        while True:
            if levels[-1].waiting:
                name = levels[-1].waiting.pop()
                try:
                    below = os.open(name, DIRECTORY, dir_fd=here) if mounted else open_within(here, name)
                except OSError as error:
                    if error.errno not in _PASSED_BY:
                        raise
                    continue
                os.close(here)
                here = below
                levels.append(_level(name, here))
                if len(levels) > deepest + 1:
                    raise _refused(f"it is nested deeper than {deepest} directories")
                for found in _entries(here, levels):
                    left = _counted(left, most)
                    yield found
            elif len(levels) > 1:
                name = levels.pop().name
                above = _above(here, levels[-1], name)
                os.close(here)
                here = above
            else:
                return
    finally:
        os.close(here)


def _level(name: str, descriptor: int) -> _WalkLevel:
    found = os.fstat(descriptor)
    return _WalkLevel(name, (found.st_dev, found.st_ino), [])


def _entries(here: int, levels: list[_WalkLevel]) -> Iterator[TreeEntry]:
    with os.scandir(here) as names:
        for entry in names:
            try:
                status = os.stat(entry.name, dir_fd=here, follow_symlinks=False)
            except (FileNotFoundError, PermissionError):
                continue  # the workload changed it meanwhile
            if stat.S_ISDIR(status.st_mode):
                levels[-1].waiting.append(entry.name)
            yield TreeEntry(entry.name, status, here, levels)


def _above(here: int, level: _WalkLevel, name: str) -> int:
    try:
        above = os.open("..", DIRECTORY, dir_fd=here)
    except OSError as error:
        raise _moved(name) from error
    found = os.fstat(above)
    if (found.st_dev, found.st_ino) != level.identity:
        os.close(above)
        raise _moved(name)
    return above


def _counted(left: int, most: int) -> int:
    if left <= 0:
        raise _refused(f"there are more than {most} entries in it")
    return left - 1


def _refused(why: str) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"the directory is not walked through: {why}",
        hint="remove what is not needed, or try again while it is not there",
        field="paths",
    )


def _moved(name: str) -> Retryable:
    shown = name[:80].encode(errors="replace").decode()  # it may be no UTF-8
    return Retryable(
        Code.FILE_UNREADABLE,
        f"the directory '{shown}' was moved while it was walked through",
        hint="try again when nothing moves directories there",
    )
