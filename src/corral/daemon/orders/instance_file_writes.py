"""Writes of modules to files in a working directory while its workload may be changing them too.

As in `instance_files` every directory is opened relative to the one before and no link is followed; a file that is
written as a whole is there as a whole or not at all, see `instance_file_placing`. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import stat
from collections.abc import Iterator
from typing import Final

from corral.daemon.orders.instance_file_placing import (
    TAKEN,
    Owner,
    check_depth,
    no_file,
    owner_of_tree,
    place_file,
    regular_file,
)
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_exchange import removed_unless_left_aside
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

_MORE: Final = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def write_file(root: pathlib.Path, path: str, content: bytes, *, append: bool = False) -> None:
    """Replace a regular file or make it, or add to its end. PATH_REFUSED for anything else that lies there
    or on the way; OSError, then nothing was written."""
    check_path(path, field="path")
    if append and _appended(root, path, content):
        return
    with staged_bytes(root, content) as staged:
        place_file(root, path, staged, "", abort=Abort(), durable=False, keep_owner=False)


@contextlib.contextmanager
def staged_bytes(root: pathlib.Path, content: bytes) -> Iterator[pathlib.Path]:
    """A file with this content beside the working directory, to be placed in it; removed if it was not."""
    staged = staging_beside(root) / f".corral-{secrets.token_hex(8)}"
    descriptor = os.open(staged, NEW_FILE, 0o600)
    with removed_unless_left_aside(lambda: staged.unlink(missing_ok=True)):
        try:
            write_whole(descriptor, content)
        finally:
            os.close(descriptor)
        yield staged


def _appended(root: pathlib.Path, path: str, content: bytes) -> bool:
    """Whether there is a file to add to, and it was."""
    check_depth(path.rpartition("/")[0])
    with open_tree(root) as top, parent_of(top, path, make=True, owner=(owner := owner_of_tree(top))) as here:
        name = path.rpartition("/")[2]
        if regular_file(here, name, path) is None:
            return False
        _append(here, name, path, content, owner)
        return True


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
        if error.errno in TAKEN:
            raise Rejected(
                Code.PATH_REFUSED,
                f"'{path}' is a directory that is not empty",
                hint="remove what is in it first",
            ) from error
        raise
    return True


def _append(here: int, name: str, path: str, content: bytes, owner: Owner) -> None:
    """Append to the very file that is there: programs that have it open see it grow. A file with a second name may be
    one that lies elsewhere, and so may one of another user, whose second name is hidden from the link count by
    removing this one."""
    with look_at(here, name) as looked:
        found = os.fstat(looked)
        alone = stat.S_ISREG(found.st_mode) and has_no_other_name(here, name, looked)
        if not alone or (owner is not None and found.st_uid != owner[0]):
            raise no_file(path, is_directory=stat.S_ISDIR(found.st_mode))
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
