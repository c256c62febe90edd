"""What the keeper is told to start: the specification, checked and with its user looked up."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

from corral.errors import Code, Rejected
from corral.runtimes.keeper.keeper_protocol import MAX_FRAME, pack
from corral.sdk.runtime import RunSpec
from corral.system.accounts import LONGEST_NAME, RunUser, find_account, is_id, name_of, own_user

_MEBIBYTE: Final = 1 << 20


def look_up_user(run_as: str, groups: Iterable[int] = ()) -> RunUser:
    """Blocking. RUN_AS_REFUSED when there is no such user, or when we may not become it. Of its supplementary groups it
    has these alone."""
    account = find_account(run_as)
    if account is None and not is_id(run_as):
        shown = run_as[:LONGEST_NAME]
        raise Rejected(
            Code.RUN_AS_REFUSED,
            f"there is no user '{shown}' on this node",
            hint=f"make it (`useradd --system {shown}`), or name another one in `run_as`",
            field="run_as",
        )
    uid = account.uid if account is not None else int(run_as)
    gid = account.gid if account is not None else uid
    if os.geteuid() == 0:
        return RunUser(name=run_as, uid=uid, gid=gid, groups=tuple(dict.fromkeys((gid, *groups))))
    if uid != os.geteuid():
        raise Rejected(
            Code.RUN_AS_REFUSED,
            f"this daemon runs as {name_of(os.geteuid())} and cannot run a workload as '{run_as}'",
            hint="run the daemon as root, or leave `run_as` out",
            field="run_as",
        )
    return own_user()


def spawn_plan(spec: RunSpec, *, user: RunUser, marks: dict[str, str], segment_bytes: int) -> dict[str, Any]:
    """A request to the keeper. INVALID_FIELD for what no process can be given, ARGUMENTS_TOO_LONG for
    more than any kernel takes."""
    if not spec.command or not spec.command[0]:
        raise Rejected(Code.INVALID_FIELD, f"run {spec.run_name} has no command", field="command")
    _check_texts(spec)
    plan = {
        "do": "spawn",
        "run": spec.run_name,
        "run_directory": spec.run_directory,
        "directory": spec.directory,
        "command": list(spec.command),
        "environment": {**spec.environment, **marks},
        "marks": [f"{name}={value}" for name, value in marks.items()],
        "uid": user.uid,
        "gid": user.gid,
        "groups": list(user.groups),
        "stdin": spec.stdin,
        "tty": spec.tty,
        "segment_bytes": segment_bytes,
        "quota_bytes": spec.limits.console_mb * _MEBIBYTE,
    }
    if len(pack(plan)) > MAX_FRAME:
        raise Rejected(
            Code.ARGUMENTS_TOO_LONG,
            f"the arguments and environment of run {spec.run_name} are too long for any kernel",
            hint="one argument or value may have 128 KiB, all of them about 2 MiB",
        )
    return plan


def _check_texts(spec: RunSpec) -> None:
    for text in (*spec.command, *spec.environment.values(), spec.directory, *spec.environment):
        if "\0" in text:
            raise Rejected(Code.INVALID_FIELD, f"run {spec.run_name}: {text[:40]!r} contains a zero byte")
    for name in spec.environment:
        if not name or "=" in name:
            raise Rejected(
                Code.INVALID_FIELD,
                f"run {spec.run_name}: {name[:40]!r} is no name of a variable",
                field="env",
            )
