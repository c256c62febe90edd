"""Entries of directories that others may write to: opened and looked at by descriptor, no link is followed.

A path is walked part by part from an open directory, so that nobody who swaps a directory for a link
meanwhile leads us elsewhere. What is no regular file is never opened: a FIFO would keep us waiting, and
opening alone makes some devices act. A file with more than one name may be one that lies elsewhere: it is
not read, and neither given away nor opened to anybody.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import stat
from collections.abc import Iterator
from typing import Final

from corral.errors import Code, Rejected

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
LINKED_MODE: Final = 0o444
"""Of read-only files that we link out of the cache instead of copying them."""
_UNREAD: Final = (
    "nothing was read; put a file of its own there (`cp F F.new && mv F.new F` makes one of a link)"
)
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS: Final = frozenset({errno.ELOOP, errno.ENOTDIR})


@contextlib.contextmanager
def open_tree(path: pathlib.Path) -> Iterator[int]:
    """The directory a tree begins with, open. Its parents are the daemon's own; it is no link itself.
    FileNotFoundError, NotADirectoryError."""
    descriptor = os.open(path, DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_tree(path: pathlib.Path) -> bool:
    """Whether `open_tree` finds a directory there."""
    try:
        with open_tree(path):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def parent_of(
    root: int, path: str, *, make: bool = False, owner: tuple[int, int] | None = None
) -> Iterator[int]:
    """The open directory that holds `path`, a checked relative path; `make`: those missing are made.
    PATH_REFUSED when something on the way is no directory; FileNotFoundError when it is missing."""
    here = os.dup(root)
    try:
        for part in path.split("/")[:-1]:
            made = make and _make(here, part)
            try:
                below = os.open(part, DIRECTORY, dir_fd=here)
            except OSError as error:
                raise _refused(path, part, error) from error
            os.close(here)
            here = below
            if made and owner is not None and os.fstat(here).st_uid == os.geteuid():
                os.fchown(here, *owner)  # the one that we made, and none that was put in its place
        yield here
    finally:
        os.close(here)


@contextlib.contextmanager
def directory_beneath(root: int, path: str) -> Iterator[int]:
    """A directory, open; the root itself for an empty path. Errors as for `parent_of`."""
    with parent_of(root, f"{path}/" if path else "") as here:
        yield here


@contextlib.contextmanager
def open_beneath(root: int, path: str) -> Iterator[int]:
    """A regular file for reading, at a checked relative path. PATH_REFUSED for links, devices and the like,
    which are never opened, and for a file that has other names; FileNotFoundError."""
    with parent_of(root, path) as here:
        descriptor = open_regular(here, path.rpartition("/")[2], shown=path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_regular(here: int, name: str, *, shown: str) -> int:
    """Like `open_beneath`, in a directory that is open; the caller closes it."""
    with look_at(here, name) as looked:
        if refused := unreadable(os.fstat(looked)):
            raise Rejected(Code.PATH_REFUSED, f"'{shown}' {refused}", hint=_UNREAD)
        return os.open(itself(looked), READ)


@contextlib.contextmanager
def look_at(here: int, name: str) -> Iterator[int]:
    """A descriptor of whatever lies there, a link itself too, that can be looked at and not read: nothing
    is opened by it. FileNotFoundError."""
    descriptor = os.open(name, _LOOK, dir_fd=here)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def itself(descriptor: int) -> pathlib.Path:
    """A path that leads to the very thing a descriptor of `look_at` is of, whatever its name holds by now."""
    return pathlib.Path(f"/proc/self/fd/{descriptor}")


def unreadable(found: os.stat_result) -> str:
    """Why a file is not read; empty when it may be. Those that we linked out of the cache may be: everybody
    can read them."""
    if not stat.S_ISREG(found.st_mode):
        return "is a link or no regular file"
    if found.st_nlink > 1 and not _linked_by_us(found):
        return "has more than one name and may lie elsewhere as well"
    return ""


def _linked_by_us(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == LINKED_MODE


def entry_at(root: int, path: str) -> os.stat_result | None:
    """What lies at a relative path, a link as itself; None when nothing does, or when something on the way
    is no directory, is closed to us or has a name that is too long."""
    try:
        with parent_of(root, path) as here:
            return os.stat(path.rpartition("/")[2], dir_fd=here, follow_symlinks=False)
    except (OSError, Rejected, ValueError):
        return None


def is_missing(root: int, path: str) -> bool:
    """Whether nothing lies at a relative path. A link on the way, which is not followed, is something."""
    try:
        with parent_of(root, path) as here:
            os.stat(path.rpartition("/")[2], dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return True
    except (OSError, Rejected):
        return False
    return False


def write_whole(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _make(here: int, part: str) -> bool:
    """Whether it was missing. Its owner is set once it is open: by its name it could be another by then."""
    try:
        os.mkdir(part, 0o750, dir_fd=here)
    except FileExistsError:
        return False
    return True


def _refused(path: str, part: str, error: OSError) -> Exception:
    if error.errno in _LINKS:
        return Rejected(
            Code.PATH_REFUSED,
            f"'{part}' in '{path}' is a link or no directory",
            hint="links are not followed; replace it by what it points to",
        )
    return error
