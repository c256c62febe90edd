"""Entries of directories that others may write to: opened and inspected by descriptor, no link is followed.

A path is walked part by part from an open directory, so that a directory that is swapped for a link meanwhile
leads nowhere else. What is no regular file is never opened: opening a FIFO would block, and opening alone
makes some devices act. A file with more than one name may also lie elsewhere: it is not read, its owner is
not changed and its mode is not opened. The same holds for a file whose other name is hidden by removing the
one used here, and, for root, for a file that does not belong to its directory's owner and is not readable by
all.
"""

from __future__ import annotations

import contextlib
import ctypes
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
"""The mode of read-only files that are linked out of the cache instead of copied."""
_UNREAD: Final = (
    "nothing was read; put a file of its own there (`cp F F.new && mv F.new F` makes one of a link)"
)
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS: Final = frozenset({errno.ELOOP, errno.ENOTDIR})
_LOOKS: Final = 2
_OPENAT2: Final = 437
_RESOLVE: Final = 0x01 | 0x02 | 0x04
"""RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS."""
_NO_OPENAT2: Final = frozenset({errno.ENOSYS, errno.EPERM, errno.E2BIG})
_libc: Final = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


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
    """The open directory that holds `path`, a checked relative path; `make`: missing ones are made.
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
                os.fchown(here, *owner)  # by descriptor: the one made here, and none that replaced it
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
        if stat.S_ISDIR(os.fstat(looked).st_mode):
            raise Rejected(
                Code.PATH_REFUSED,
                f"'{shown}' is a directory",
                hint=f"nothing was read; name a file in it: '{shown}/NAME'",
            )
        if refused := unreadable(here, name, looked):
            raise Rejected(Code.PATH_REFUSED, f"'{shown}' {refused}", hint=_UNREAD)
        return open_itself(looked, READ)


@contextlib.contextmanager
def look_at(here: int, name: str, *, mounted: bool = True) -> Iterator[int]:
    """A descriptor of whatever lies there, a link itself too, that can be inspected and not read: nothing is
    opened by it. FileNotFoundError; unless `mounted`, EXDEV for a mount."""
    descriptor = os.open(name, _LOOK, dir_fd=here) if mounted else open_within(here, name, _LOOK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_within(here: int, name: str, flags: int = DIRECTORY) -> int:
    """By `openat2`, which reports a mount by EXDEV. Without it (an old kernel, a sandbox) only another file
    system is noticed."""
    how = _OpenHow(flags=flags, mode=0, resolve=_RESOLVE)
    while True:
        descriptor: int = _libc.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_long(here),
            os.fsencode(name),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number in _NO_OPENAT2:
            return _open_on_one_file_system(here, name, flags)
        if number not in (errno.EAGAIN, errno.EINTR):
            raise OSError(number, os.strerror(number), name)


def _open_on_one_file_system(here: int, name: str, flags: int) -> int:
    descriptor = os.open(name, flags, dir_fd=here)
    if os.fstat(descriptor).st_dev != os.fstat(here).st_dev:
        os.close(descriptor)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return descriptor


def open_itself(looked: int, flags: int) -> int:
    """Open the very object that `look_at` found; it was inspected before. The caller closes it."""
    return os.open(itself(looked), flags)


def itself(descriptor: int) -> pathlib.Path:
    """A path to the very object of a descriptor of `look_at`, whatever its name refers to by now."""
    return pathlib.Path(f"/proc/self/fd/{descriptor}")


def unreadable(here: int, name: str, looked: int) -> str:
    """Why a file that `look_at` found is not read; empty when it may be. Files linked out of the cache may
    be: they are readable by all."""
    found = os.fstat(looked)
    if not stat.S_ISREG(found.st_mode):
        return "is a link or no regular file"
    if _linked_by_us(found):
        return ""
    if not has_no_other_name(here, name, looked):
        return "has more than one name and may lie elsewhere as well"
    if not _of_its_directory(here, found):
        return "belongs to another user than its directory, and not everybody may read it"
    return ""


def has_no_other_name(here: int, name: str, looked: int) -> bool:
    """Whether what `look_at` found lies here and nowhere else. The link count alone does not prove it: a file
    that had two names when it was opened has one as soon as this name is removed. So it must still be here,
    and as a call looks the name up before it counts, it must be so twice."""
    own = os.fstat(looked)
    for _ in range(_LOOKS):
        try:
            found = os.stat(name, dir_fd=here, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if not os.path.samestat(found, own) or found.st_nlink != 1:
            return False
    return True


def _of_its_directory(here: int, found: os.stat_result) -> bool:
    """Whether root may read a file for others: a user who can write to the directory may have linked a file
    there that is not theirs, and that they cannot read."""
    if os.geteuid() != 0 or found.st_mode & stat.S_IROTH:
        return True
    directory = os.fstat(here)
    if directory.st_uid == 0:
        return not directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid == directory.st_uid


def _linked_by_us(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == LINKED_MODE


def entry_at(root: int, path: str) -> os.stat_result | None:
    """The entry at a relative path, a link as itself; None when there is none, or when something on the way
    is no directory, is not accessible or has a name that is too long."""
    try:
        with parent_of(root, path) as here:
            return os.stat(path.rpartition("/")[2], dir_fd=here, follow_symlinks=False)
    except (OSError, Rejected, ValueError):
        return None


def is_missing(root: int, path: str) -> bool:
    """Whether nothing lies at a relative path. A link on the way, which is not followed, counts as something."""
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
