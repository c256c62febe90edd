"""What a program needs to know to run as the workload does: user, directory, environment.

A provider remembers them of what it started itself. Of a run that it adopted, the mark tells user and
directory, and the kernel the environment with which the main process was executed: written down it
could give away secrets.
"""

from __future__ import annotations

import os
import pathlib

import msgspec

from corral.runtimes.process.runtime_mark import read_mark
from corral.system.accounts import RunUser


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    user: RunUser
    directory: str
    environment: dict[str, str]


def surroundings_of(run_directory: str, pid: int) -> Surroundings | None:
    """Of a run whose main process is `pid`, which the caller holds; None when it has ended."""
    process = pathlib.Path(f"/proc/{pid}")
    try:
        environment = _environment(process)
        mark = read_mark(run_directory)
        if mark is not None:
            return Surroundings(user=mark.user, directory=mark.directory, environment=environment)
        return Surroundings(
            user=_user(process), directory=str((process / "cwd").readlink()), environment=environment
        )
    except OSError:
        return None


def _environment(process: pathlib.Path) -> dict[str, str]:
    entries = (entry.partition(b"=") for entry in (process / "environ").read_bytes().split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in entries if name}


def _user(process: pathlib.Path) -> RunUser:
    """Of a run that was started before there were marks: whoever it is now."""
    lines = (line.partition(":\t") for line in (process / "status").read_text().splitlines())
    values = {name: value.split() for name, _, value in lines}
    uid, gid = int(values["Uid"][0]), int(values["Gid"][0])
    if os.geteuid() != 0:
        return RunUser(name=str(uid))
    groups = tuple(int(group) for group in values["Groups"])
    return RunUser(name=str(uid), uid=uid, gid=gid, groups=groups)
