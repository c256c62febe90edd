"""The accounts of this machine, and the user that a process is to run as. Look-ups block: the account
database may be across a network."""

from __future__ import annotations

import grp
import os
import pwd
from typing import Final

import msgspec

LAST_ID: Final = 4_294_967_294
"""The greatest uid or gid. The one after it means "leave it as it is" to the kernel."""
LONGEST_NAME: Final = 64
"""Characters of an account's name; also how much of a wrong one is shown."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: int
    gid: int
    home: str


class RunUser(msgspec.Struct, frozen=True, kw_only=True):
    """The user that a process becomes; uid None: the present one."""

    name: str
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()


def own_user() -> RunUser:
    return RunUser(name=name_of(os.geteuid()))


def is_id(text: str) -> bool:
    """Whether it is the number of a user or group."""
    return text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= LAST_ID


def find_account(user: str) -> Account | None:
    """By name or number; None when there is none."""
    if not user or len(user) > LONGEST_NAME:
        return None
    try:
        if user.isascii() and user.isdecimal():
            entry = pwd.getpwuid(int(user)) if is_id(user) else None
        else:
            entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        return None
    if entry is None:
        return None
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, home=entry.pw_dir)


def name_of(uid: int) -> str:
    found = find_account(str(uid))
    return found.name if found is not None else str(uid)


def find_group(name: str) -> int | None:
    """The number of a group; None when there is none."""
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        return None


def is_taken(id: int) -> bool:
    """Whether an account or a group has this number."""
    for look_up in (pwd.getpwuid, grp.getgrgid):
        try:
            look_up(id)
        except KeyError:
            continue
        return True
    return False
