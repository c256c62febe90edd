"""Who module processes run as, when the host may choose."""

from __future__ import annotations

import os
import pathlib
import pwd
import stat
from collections.abc import Iterable

import msgspec

from corral.errors import Code, Rejected


class RunUser(msgspec.Struct, frozen=True):
    """uid -1: who the host is."""

    uid: int = -1
    gid: int = -1
    groups: tuple[int, ...] = ()


def look_up(run_as: str) -> RunUser:
    """Blocking: the machine's users may be kept elsewhere. RUN_AS_REFUSED when there is no such user, or
    when we may not become it."""
    if not run_as:
        return RunUser()
    try:
        entry = pwd.getpwuid(int(run_as)) if run_as.isdecimal() else pwd.getpwnam(run_as)
    except (KeyError, OverflowError):
        raise Rejected(
            Code.RUN_AS_REFUSED,
            f"there is no user '{run_as}' that modules could run as",
            hint=f"make it (`useradd --system {run_as}`), or name another one in `modules.runAs`",
            field="modules.runAs",
        ) from None
    if entry.pw_uid == os.geteuid():
        return RunUser()
    if os.geteuid() != 0:
        raise Rejected(
            Code.RUN_AS_REFUSED,
            f"modules cannot run as '{run_as}': this host does not run as root",
            hint="run it as root, or leave `modules.runAs` out",
            field="modules.runAs",
        )
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return RunUser(entry.pw_uid, entry.pw_gid, tuple(groups))


def check_readable(user: RunUser, paths: Iterable[pathlib.Path]) -> None:
    """Blocking. RUN_AS_REFUSED when this user could not import from one of these directories: everything
    above them must let it pass. Only the modes are looked at."""
    if user.uid <= 0:
        return
    for path in paths:
        place = path.resolve()
        for above in (place, *place.parents):
            if not _may_pass(above.stat(), user):
                raise Rejected(
                    Code.RUN_AS_REFUSED,
                    f"modules cannot run as user {user.uid}: it may not read {place}, because of {above}",
                    hint=f"let it pass (`chmod o+x {above}`), or leave `modules.runAs` out",
                    field="modules.runAs",
                )


def _may_pass(status: os.stat_result, user: RunUser) -> bool:
    if status.st_uid == user.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == user.gid or status.st_gid in user.groups:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)
