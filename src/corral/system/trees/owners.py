"""Change of a tree's owner: each entry by its own descriptor, and only what belongs to the former user."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from typing import Final

import msgspec

from corral.system.trees.entries import has_no_other_name, look_at
from corral.system.trees.walk import walk

_DEEPEST: Final = 1_000_000
_MOST: Final = 1_000_000_000
_AT_EMPTY_PATH: Final = 0x1000
_LEFT: Final = frozenset({errno.ENOENT, errno.EXDEV})
"""Errors for what is gone, and what is mounted there."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


def _go_on() -> None:
    """No early end."""


class HandOver(msgspec.Struct, frozen=True, kw_only=True):
    """The result."""

    former: int
    owner: int
    changed: int
    left: int
    """Entries of others, files with more than one name, as they may lie elsewhere as well, and mounts in the
    tree, whatever their owner: each mount counts once."""


def hand_over(root: int, owner: tuple[int, int], *, check: Callable[[], None] = _go_on) -> HandOver:
    """Change the owner of everything in an open directory, and at last of the directory itself; of links
    themselves and not of their targets. `check` is called for each, and may raise; interrupted, the directory
    still has its former owner, and the next call does the rest. Errors as for `walk`; OSError. Blocks."""
    former = os.fstat(root).st_uid
    changed = left = 0
    for found in walk(root, deepest=_DEEPEST, most=_MOST, mounted=False):
        check()
        if found.status.st_uid == owner[0] and found.status.st_uid != former:
            continue  # changed before
        given = found.status.st_uid == former and _give(found.here, found.name, former, owner)
        changed, left = changed + given, left + (not given)
    os.fchown(root, *owner)
    return HandOver(former=former, owner=owner[0], changed=changed, left=left)


def _give(here: int, name: str, former: int, owner: tuple[int, int]) -> bool:
    try:
        with look_at(here, name, mounted=False) as looked:
            found = os.fstat(looked)  # the name may refer to another file by now
            alone = stat.S_ISDIR(found.st_mode) or has_no_other_name(here, name, looked)
            if found.st_uid != former or not alone:
                return False
            if _libc.fchownat(looked, b"", *owner, _AT_EMPTY_PATH) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), name)
            return True
    except OSError as error:
        if error.errno not in _LEFT:
            raise
        return False
