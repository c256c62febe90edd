"""Opening files beneath a directory that others may write to: no symlink is ever followed.

A path is walked part by part from an open directory, so that nobody who swaps a directory for a link
meanwhile leads us elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

from corral.errors import Code, Rejected

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS: Final = frozenset({errno.ELOOP, errno.ENOTDIR})


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
            if made and owner is not None:
                os.fchown(here, *owner)
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
    """A regular file for reading. PATH_REFUSED for links, devices and the like, which are never opened."""
    name = path.rpartition("/")[2]
    with parent_of(root, path) as here:
        if not _is_regular(here, name):
            raise Rejected(Code.PATH_REFUSED, f"'{path}' is no regular file", hint="nothing was read")
        try:
            descriptor = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here
            )
        except OSError as error:
            raise _refused(path, name, error) from error
    try:
        # It may have been swapped between the look and the opening; what is open is what counts.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Rejected(Code.PATH_REFUSED, f"'{path}' is no regular file", hint="nothing was read")
        yield descriptor
    finally:
        os.close(descriptor)


def _is_regular(here: int, name: str) -> bool:
    return stat.S_ISREG(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)


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
