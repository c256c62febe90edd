"""Files under a directory whose content belongs to a workload: no symbolic link is ever followed."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
import stat
from collections.abc import Iterator
from typing import Final

from corral.daemon.config_files.text_edits import MAX_BYTES
from corral.domain.file_paths import check_path
from corral.errors import Code, Rejected, Retryable
from corral.system.trees.entries import NEW_FILE, open_beneath, open_tree, parent_of

_NEW_FILE: Final = 0o640


def read_beneath(root: pathlib.Path, path: str) -> bytes | None:
    """The content of a regular file; None when there is none. PATH_REFUSED for anything else on the path."""
    check_path(path, field="file")
    with _refusals(path), open_tree(root) as top:
        try:
            with open_beneath(top, path) as descriptor:
                return _content(descriptor, path)
        except FileNotFoundError:
            return None


def _content(descriptor: int, path: str) -> bytes:
    check_size(descriptor, path)
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read(MAX_BYTES)


def check_size(descriptor: int, path: str) -> None:
    """CONFIG_FILE_INVALID for a file that is too large to be patched."""
    size = os.fstat(descriptor).st_size
    if size > MAX_BYTES:
        raise Rejected(
            Code.CONFIG_FILE_INVALID,
            f"{path} has {size} bytes; a configuration file has {MAX_BYTES} at most",
            hint="take it out of the patches",
        )


def replace_beneath(root: pathlib.Path, path: str, content: bytes) -> None:
    """Write a temporary file and rename it: a reader finds the old content or the new one. Mode and owner stay; a new
    file gets the owner of its directory. Not flushed: the caller that keeps the directory does that."""
    name = check_path(path, field="file").rpartition("/")[2]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_refusals(path))
        top = stack.enter_context(open_tree(root))
        folder = stack.enter_context(parent_of(top, path, make=True, owner=_owner(top)))
        aside = f".{secrets.token_hex(6)}.corral"  # its own name may have the maximal length already
        descriptor = os.open(aside, NEW_FILE, 0o600, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                _take_after(folder, name, descriptor)
            os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside, dir_fd=folder)
            raise


def _owner(top: int) -> tuple[int, int] | None:
    """The owner of new directories: only root can change owners."""
    found = os.fstat(top)
    return (found.st_uid, found.st_gid) if os.geteuid() == 0 else None


def _take_after(folder: int, name: str, descriptor: int) -> None:
    """Give the new file the owner and mode of the one it replaces."""
    try:
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        _own_as(os.fstat(folder), descriptor)
        os.fchmod(descriptor, _NEW_FILE)
        return
    if not stat.S_ISREG(old.st_mode):
        raise _refused(name, "it is not a regular file")
    _own_as(old, descriptor)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


def _own_as(status: os.stat_result, descriptor: int) -> None:
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        with contextlib.suppress(PermissionError):  # only root can change owners
            os.fchown(descriptor, status.st_uid, status.st_gid)


@contextlib.contextmanager
def _refusals(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EEXIST):
            raise _refused(path, "a symbolic link or something that is no directory is on its way") from error
        if error.errno == errno.ENAMETOOLONG:
            raise _refused(path, "its name is longer than a file's can be") from error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Retryable(
            Code.DISK_FULL if full else Code.FILE_UNREADABLE,
            f"{path} cannot be changed: {error.strerror or error}",
            hint="make room on its disk and check its permissions",
        ) from error


def _refused(path: str, why: str) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"{path} is not patched: {why}",
        hint="patches change regular files within the working directory",
        field="file",
    )
