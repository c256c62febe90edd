"""Writes to files in a working directory while its workload may be changing them too.

As in `instance_files` every directory is opened relative to the one before and no link is followed. Written files get
the owner of the working directory. A file is written aside and gets its name in one rename, so that it is there as a
whole or not at all. Aside is where working directories are made, which a starting daemon empties: one that is killed
in between leaves nothing in the directory itself. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
import stat
from typing import Final, NamedTuple

from corral.daemon.prepare.working_directories import staging_beside
from corral.domain.file_paths import check_path
from corral.errors import Code, Rejected
from corral.system.trees.entries import (
    NEW_FILE,
    has_no_other_name,
    look_at,
    open_itself,
    open_tree,
    parent_of,
    write_whole,
)

_MODE: Final = 0o644
_MORE: Final = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TAKEN: Final = frozenset(
    {errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP, errno.ENXIO}
)


class _Draft(NamedTuple):
    """Content and mode of a file to be written."""

    content: bytes
    owner: tuple[int, int] | None
    mode: int


def write_file(root: pathlib.Path, path: str, content: bytes, *, append: bool = False) -> None:
    """Replace a regular file or make it, or add to its end. PATH_REFUSED for anything else that lies there
    or on the way; OSError, then nothing was written."""
    check_path(path, field="path")
    with open_tree(root) as top, parent_of(top, path, make=True, owner=(owner := _owner(top))) as here:
        name = path.rpartition("/")[2]
        present = _regular(here, name, path)
        if append and present is not None:
            _append(here, name, path, content, owner)
        else:
            mode = _MODE if present is None else stat.S_IMODE(present.st_mode) & 0o777
            _replace(root, here, path, _Draft(content, owner, mode))


def remove_file(root: pathlib.Path, path: str) -> bool:
    """A file or link, or a directory that is empty; False when there was none. PATH_REFUSED for a directory
    that is not, and for what leads out; OSError."""
    check_path(path, field="path")
    try:
        with open_tree(root) as top, parent_of(top, path) as here:
            name = path.rpartition("/")[2]
            if stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
                os.rmdir(name, dir_fd=here)
            else:
                os.unlink(name, dir_fd=here)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in _TAKEN:
            raise Rejected(
                Code.PATH_REFUSED,
                f"'{path}' is a directory that is not empty",
                hint="remove what is in it first",
            ) from error
        raise
    return True


def _owner(top: int) -> tuple[int, int] | None:
    """Owner of the working directory; None when the daemon can make only files of its own."""
    found = os.fstat(top)
    return (found.st_uid, found.st_gid) if os.geteuid() == 0 else None


def _regular(here: int, name: str, path: str) -> os.stat_result | None:
    """The status of the file there; None when there is none."""
    try:
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise _no_file(path)
    return found


def _replace(root: pathlib.Path, here: int, path: str, draft: _Draft) -> None:
    name = path.rpartition("/")[2]
    try:
        with open_tree(staging_beside(root)) as aside:
            if os.fstat(aside).st_dev == os.fstat(here).st_dev and _moved(aside, here, name, draft):
                return
        _moved(here, here, name, draft)  # another file system is mounted there: only beside its place
    except OSError as error:
        if error.errno in _TAKEN:
            raise _no_file(path) from error
        raise


def _moved(aside: int, here: int, name: str, draft: _Draft) -> bool:
    """Made in the one directory and moved to the other; False when nothing can be moved between them."""
    temporary = f".corral-{secrets.token_hex(8)}"
    descriptor = os.open(temporary, NEW_FILE, 0o600, dir_fd=aside)
    try:
        try:
            write_whole(descriptor, draft.content)
            if draft.owner is not None:
                os.fchown(descriptor, *draft.owner)
            os.fchmod(descriptor, draft.mode)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=aside, dst_dir_fd=here)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=aside)
        if isinstance(error, OSError) and error.errno == errno.EXDEV:
            return False
        raise
    return True


def _append(here: int, name: str, path: str, content: bytes, owner: tuple[int, int] | None) -> None:
    """Append to the very file that is there: programs that have it open see it grow. A file with a second name may be
    one that lies elsewhere, and so may one of another user, whose second name is hidden from the link count by
    removing this one."""
    with look_at(here, name) as looked:
        found = os.fstat(looked)
        alone = stat.S_ISREG(found.st_mode) and has_no_other_name(here, name, looked)
        if not alone or (owner is not None and found.st_uid != owner[0]):
            raise _no_file(path)
        descriptor = open_itself(looked, _MORE)
    try:
        try:
            write_whole(descriptor, content)
        except OSError:
            _take_back(descriptor, found.st_size, len(content))
            raise
    finally:
        os.close(descriptor)


def _take_back(descriptor: int, size: int, most: int) -> None:
    """Truncate a partial append, unless another process has written behind it."""
    with contextlib.suppress(OSError):
        if size < os.fstat(descriptor).st_size < size + most:
            os.ftruncate(descriptor, size)


def _no_file(path: str) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"'{path}' is no regular file of the instance's own",
        hint="links, directories and the like are not written to; nothing was",
    )
