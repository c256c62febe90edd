"""User that module processes run as, when the host may choose."""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Iterable
from typing import Final

from corral.errors import Code, Rejected
from corral.system.accounts import RunUser, find_account

AS_THE_HOST: Final = RunUser(name="")
_PASS: Final = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


def look_up(run_as: str) -> RunUser:
    """Look up the user. Blocking: the machine's users may be in a directory service. RUN_AS_REFUSED when
    there is no such user, or when we may not become it."""
    account = find_account(run_as)
    if account is None:
        raise Rejected(
            Code.RUN_AS_REFUSED,
            f"there is no user '{run_as}' that modules could run as",
            hint=f"make it (`useradd --system {run_as}`), or name another one in `modules.run_as`",
            field="modules.run_as",
        )
    if account.uid == os.geteuid():
        return AS_THE_HOST
    if os.geteuid() != 0:
        raise Rejected(
            Code.RUN_AS_REFUSED,
            f"modules cannot run as '{run_as}': this host does not run as root",
            hint="run it as root, or leave `modules.run_as` out",
            field="modules.run_as",
        )
    groups = tuple(os.getgrouplist(account.name, account.gid))
    return RunUser(name=account.name, uid=account.uid, gid=account.gid, groups=groups)


def let_pass(directory: pathlib.Path, *, within: pathlib.Path) -> None:
    """Let other users pass this directory and those above it, up to `within`, without listing them.
    Blocking."""
    for place in (directory, *directory.parents):
        place.chmod(stat.S_IMODE(place.stat().st_mode) | _PASS)
        if place == within:
            return


def check_readable(user: RunUser, paths: Iterable[pathlib.Path]) -> None:
    """RUN_AS_REFUSED when this user could not import from one of these directories: it must be able to read
    them, and to pass everything above. The error names all that are closed. Only the modes are checked; a
    missing directory is no obstacle. Blocking."""
    if not user.uid:
        return  # root, or the host's own user: what it cannot read, the host cannot either
    closed: dict[pathlib.Path, pathlib.Path] = {}
    """Closed directory, with the one that it keeps the user from."""
    for path in paths:
        place = path.resolve()
        for above in reversed((place, *place.parents)):
            if above.exists() and not _is_open(above, user, to_read=above == place):
                closed.setdefault(above, place)
    if closed:
        raise _unreadable(user, closed)


def _unreadable(user: RunUser, closed: dict[pathlib.Path, pathlib.Path]) -> Rejected:
    reasons = "; ".join(f"it may not read {place}, because of {above}" for above, place in closed.items())
    way = f"let it pass (`{_opening(closed)}`)"
    library = pathlib.Path(os.__file__).resolve().parent
    if any(library.is_relative_to(above) for above in closed):
        way = f"run Corral with a Python that every user can read, such as that of the system, or {way}"
    return Rejected(
        Code.RUN_AS_REFUSED,
        f"modules cannot run as user {user.uid}: {reasons}",
        hint=f"{way}, or leave `modules.run_as` out",
        field="modules.run_as",
    )


def _opening(closed: dict[pathlib.Path, pathlib.Path]) -> str:
    """Commands that would open the directories."""
    passed = [str(above) for above, place in closed.items() if above != place]
    read = [str(above) for above, place in closed.items() if above == place]
    commands = [("o+x", passed), ("o+rx", read)]
    return " && ".join(f"chmod {mode} {' '.join(names)}" for mode, names in commands if names)


def _is_open(path: pathlib.Path, user: RunUser, *, to_read: bool) -> bool:
    status = path.stat()
    if status.st_uid == user.uid:
        needed = stat.S_IXUSR | (stat.S_IRUSR if to_read else 0)
    elif status.st_gid == user.gid or status.st_gid in user.groups:
        needed = stat.S_IXGRP | (stat.S_IRGRP if to_read else 0)
    else:
        needed = stat.S_IXOTH | (stat.S_IROTH if to_read else 0)
    return status.st_mode & needed == needed
