"""Who a workload runs as: a name or number, looked up by the daemon before the spawn."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from typing import Final

import msgspec

from corral.errors import Code, Rejected

_LAST_ID: Final = 4_294_967_294
"""The one after it means "leave it as it is" to the kernel."""


class RunUser(msgspec.Struct, frozen=True, kw_only=True):
    """What the shim changes to; uid None: it stays what we are."""

    name: str
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()


def own_user() -> RunUser:
    return RunUser(name=_name_of(os.geteuid()))


def look_up(run_as: str, groups: Iterable[int] = ()) -> RunUser:
    """Blocking: the machine's user database may be remote. RUN_AS_REFUSED when there is no such user, or
    when we may not become it. Of its supplementary groups it has these alone."""
    if not run_as:
        return own_user()
    entry = _entry(run_as)
    if entry is None and not _is_number(run_as):
        raise Rejected(
            Code.RUN_AS_REFUSED,
            f"there is no user '{run_as[:64]}' on this node",
            hint=f"make it (`useradd --system {run_as[:64]}`), or name another one in `run_as`",
            field="run_as",
        )
    uid = entry.pw_uid if entry is not None else int(run_as)
    gid = entry.pw_gid if entry is not None else uid
    if os.geteuid() != 0:
        if uid != os.geteuid():
            raise Rejected(
                Code.RUN_AS_REFUSED,
                f"this daemon runs as {_name_of(os.geteuid())} and cannot run a workload as '{run_as}'",
                hint="run the daemon as root, or leave `run_as` out",
                field="run_as",
            )
        return own_user()
    return RunUser(name=run_as, uid=uid, gid=gid, groups=tuple(dict.fromkeys((gid, *groups))))


def _entry(run_as: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(int(run_as)) if _is_number(run_as) else pwd.getpwnam(run_as)
    except (KeyError, ValueError):
        return None


def _is_number(run_as: str) -> bool:
    return run_as.isascii() and run_as.isdecimal() and len(run_as) <= 10 and int(run_as) <= _LAST_ID


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
