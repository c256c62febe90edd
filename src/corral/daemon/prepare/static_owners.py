"""Owners of static directories: a directory changes from one user to another as a whole, or not at all."""

from __future__ import annotations

import os
import pathlib
import stat
from typing import Final

import msgspec
import structlog

from corral.daemon.node.durable_files import store
from corral.daemon.prepare.static_trees import SEEDS
from corral.errors import Code, CorralError, Rejected
from corral.system.files import read_versioned
from corral.system.trees.entries import open_tree
from corral.system.trees.owners import HandOver, hand_over
from corral.system.trees.walk import walk

_FORMAT: Final = "corral-static-owners"
_VERSION: Final = 1
_HAND_OVERS: Final = 20
_DEEPEST: Final = 1_000_000
_MOST: Final = 1_000_000_000
_SHOWN: Final = 3
_SHOWN_LENGTH: Final = 120
_log = structlog.get_logger("corral.daemon.prepare")


class _Owners(msgspec.Struct, frozen=True, kw_only=True):
    handed_over: tuple[HandOver, ...] = ()
    """The last ones, the newest at the end."""


def own_static(path: pathlib.Path, owner: tuple[int, int]) -> None:
    """Give a static tree to the user of its instance, before the start: its group changed its user, or the way in which
    users are chosen changed. Files that the former owner did not own stay as they are. Logged and recorded; errors as
    of `check_hand_over`, with nothing changed. Blocks."""
    check_hand_over(path, owner)
    with open_tree(path) as root:
        if os.fstat(root).st_uid == owner[0]:
            return
        result = hand_over(root, owner)
    _log.warning("static_owner.changed", path=str(path), **msgspec.structs.asdict(result))
    record = path.parent / SEEDS / f"{path.name}.owners.json"
    record.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        before = read_versioned(record, _Owners, name=_FORMAT, version=_VERSION) or _Owners()
    except CorralError:  # the record is only history
        before = _Owners()
    kept = (*before.handed_over, result)[-_HAND_OVERS:]
    store(record, _Owners(handed_over=kept), name=_FORMAT, version=_VERSION)


def check_hand_over(path: pathlib.Path, owner: tuple[int, int]) -> None:
    """Check that a static tree can be given to the user of its instance. RUN_AS_REFUSED when files of its former owner
    have more than one name: these stay with that owner, and the workload could not use its own world. OSError, and
    FILE_UNREADABLE when directories in it are moved meanwhile. Blocks."""
    with open_tree(path) as root:
        former = os.fstat(root).st_uid
        if former == owner[0]:
            return
        shown: list[str] = []
        count = 0
        for found in walk(root, deepest=_DEEPEST, most=_MOST, mounted=False):
            if found.status.st_uid == former and _stays_behind(found.status):
                count += 1
                if len(shown) < _SHOWN:
                    name = found.path.encode(errors="replace").decode()  # it may not be UTF-8
                    shown.append(name if len(name) <= _SHOWN_LENGTH else f"...{name[-_SHOWN_LENGTH:]}")
    if count:
        raise _bound(path, former, owner[0], shown, count)


def _stays_behind(status: os.stat_result) -> bool:
    """A file with another name, which may be elsewhere, unless it is readable by all and writable by none: such are the
    files that are linked from the cache."""
    mode = status.st_mode
    for_all = mode & stat.S_IROTH and not mode & 0o222
    return stat.S_ISREG(mode) and status.st_nlink > 1 and not for_all


def _bound(path: pathlib.Path, former: int, owner: int, shown: list[str], count: int) -> Rejected:
    names = ", ".join(f"'{name}'" for name in shown) + (
        f" and {count - len(shown)} more" if count > len(shown) else ""
    )
    return Rejected(
        Code.RUN_AS_REFUSED,
        f"the static files in {path} cannot go from user {former} to user {owner}: {names} "
        f"{'has' if count == 1 else 'have'} more than one name (hard links, as 'cp -al' makes them) and may lie "
        "elsewhere as well",
        hint="make the other names copies of their own ('cp -a --reflink=auto', or rsync without --link-dest), and "
        "remove the links; or let the group keep the shared user with `isolate: shared`",
        field="isolate",
    )
