"""Renames by `renameat2`: to a name that is free, and of two names in one step.

Where the kernel or the file system has neither (an old kernel, some network file systems), a free name is taken by
comparison and rename, and two names cannot be exchanged.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

_NO_REPLACE: Final = 1
_EXCHANGE: Final = 2
_MISSING: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENOTSUP})
_libc: Final = ctypes.CDLL(None, use_errno=True)


def rename_to_free(source: int, name: str, target: int, new_name: str) -> None:
    """Move an entry of one open directory to another, under a name that is free. FileExistsError, then nothing was moved;
    OSError."""
    number = _rename(source, name, target, new_name, _NO_REPLACE)
    if number in _MISSING:
        _rename_compared(source, name, target, new_name)
    elif number:
        raise OSError(number, os.strerror(number), new_name)


def exchange(source: int, name: str, target: int, other: str) -> bool:
    """Let two entries take each other's place. False when that cannot be done here, and nothing was; OSError."""
    number = _rename(source, name, target, other, _EXCHANGE)
    if number in _MISSING:
        return False
    if number:
        raise OSError(number, os.strerror(number), other)
    return True


def _rename(source: int, name: str, target: int, new_name: str, flags: int) -> int:
    """The number of the error; 0: done."""
    done = _libc.renameat2(
        ctypes.c_int(source),
        os.fsencode(name),
        ctypes.c_int(target),
        os.fsencode(new_name),
        ctypes.c_uint(flags),
    )
    return ctypes.get_errno() if done else 0


def _rename_compared(source: int, name: str, target: int, new_name: str) -> None:
    try:
        os.stat(new_name, dir_fd=target, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new_name)
