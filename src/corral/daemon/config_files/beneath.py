"""Files beneath a directory whose content belongs to somebody else: no symbolic link is ever followed."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import secrets
import stat
from collections.abc import Iterator
from typing import Final

from corral.daemon.config_files.faults import MAX_BYTES
from corral.domain.file_paths import check_path
from corral.errors import Code, Rejected, Retryable

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = 0o640
_NEW_DIRECTORY: Final = 0o750


def read_beneath(root: pathlib.Path, path: str) -> bytes | None:
    """The content of a regular file; None when there is none. PATH_REFUSED for anything else on the way."""
    with _refusals(path), contextlib.ExitStack() as stack:
        folder, name = _open_folder(stack, root, path, make=False)
        if folder < 0:
            return None
        try:
            descriptor = os.open(name, _READ, dir_fd=folder)
        except FileNotFoundError:
            return None
        stack.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _refused(path, "it is not a regular file")
        if status.st_size > MAX_BYTES:
            raise Rejected(
                Code.CONFIG_FILE_INVALID,
                f"{path} has {status.st_size} bytes; a configuration file has {MAX_BYTES} at most",
                hint="take it out of the patches",
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES)


def replace_beneath(root: pathlib.Path, path: str, content: bytes) -> None:
    """Write it aside and put it in place: whoever looks finds the old content or the new one. Mode and owner
    stay; a new file belongs to the owner of its directory. Not flushed: who keeps the directory does that."""
    with _refusals(path), contextlib.ExitStack() as stack:
        folder, name = _open_folder(stack, root, path, make=True)
        aside = f".{name[:200]}.{secrets.token_hex(6)}.corral"
        descriptor = os.open(aside, _WRITE, 0o600, dir_fd=folder)
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


def _open_folder(
    stack: contextlib.ExitStack, root: pathlib.Path, path: str, *, make: bool
) -> tuple[int, str]:
    """The directory that holds the file, -1 when it is missing and not to be made; and the file's name."""
    *folders, name = check_path(path, field="file").split("/")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, folder)
    for part in folders:
        try:
            inner = os.open(part, _DIRECTORY, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                return -1, name
            os.mkdir(part, _NEW_DIRECTORY, dir_fd=folder)
            inner = os.open(part, _DIRECTORY, dir_fd=folder)
            _own_as(os.fstat(folder), inner)
        stack.callback(os.close, inner)
        folder = inner
    return folder, name


def _take_after(folder: int, name: str, descriptor: int) -> None:
    """Give the new file the owner and mode of the one whose place it takes."""
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
        with contextlib.suppress(PermissionError):  # only root gives files away
            os.fchown(descriptor, status.st_uid, status.st_gid)


@contextlib.contextmanager
def _refusals(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EEXIST):
            raise _refused(path, "a symbolic link or something that is no directory is on its way") from error
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
