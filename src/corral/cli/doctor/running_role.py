"""The settings of the controller or daemon that is to be checked: those it runs with, if it runs."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

import click

from corral.cli.roles import CONTROLLER_SETTINGS, DAEMON_SETTINGS, controller, daemon
from corral.errors import CorralError
from corral.system.config import ControllerConfig, DaemonConfig, Sources

C = TypeVar("C", ControllerConfig, DaemonConfig)
Load = Callable[[pathlib.Path | None, Mapping[str, str], Mapping[str, object]], tuple[C, Sources]]

_COMMANDS: Final = {"controller": (controller, CONTROLLER_SETTINGS), "daemon": (daemon, DAEMON_SETTINGS)}
_LOCKS: Final = pathlib.Path("/proc/locks")
_UP: Final = "up.lock"


class RunningRole(NamedTuple, Generic[C]):
    config: C
    pid: int
    """0: it does not run."""


def running_role(
    role: str, load: Load[C], given: Mapping[str, str | None], *, file: str | None
) -> RunningRole[C]:
    """`given`: settings of the command line, which find the role; the process, where it runs, knows better. Raises
    `Rejected` when they are refused."""
    named, data = file or os.environ.get("CORRAL_CONFIG"), given.get("data")
    if data and is_there(pathlib.Path(data, _UP)) and is_there(pathlib.Path(data, role)):
        data = str(pathlib.Path(data, role).absolute())  # that of `corral up`
    config, _ = load(pathlib.Path(named) if named else None, os.environ, {**given, "data": data})
    pid = lock_holder(config.data / f"{role}.lock")
    with contextlib.suppress(
        OSError, ValueError, CorralError, click.ClickException
    ):  # another user's, or gone
        if pid:
            config = _settings_of_process(role, load, pid)
    return RunningRole(config, pid)


def is_there(path: pathlib.Path) -> bool:
    """False also where this user may not look."""
    return os.path.exists(path)  # noqa: PTH110 - raises nothing


def lock_holder(lock: pathlib.Path) -> int:
    """The process that holds this lock file; 0: none. The lock is not touched: whoever starts meanwhile gets it."""
    try:
        holder, inode = lock.read_text().strip(), lock.stat().st_ino
    except OSError:
        return 0
    for line in _LOCKS.read_text().splitlines():
        words = line.split()  # 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF
        if words[1] == "FLOCK" and words[4] == holder and words[5].rpartition(":")[2] == str(inode):
            return int(holder)
    return 0


def _settings_of_process(role: str, load: Load[C], pid: int) -> C:
    words, variables = (
        pathlib.Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace").split("\0")[:-1]
        for file in ("cmdline", "environ")
    )
    environment = dict(each.partition("=")[::2] for each in variables)
    command, names = _COMMANDS[role]
    params = command.make_context(role, words[words.index(role) + 1 :], resilient_parsing=True).params
    named = params.get("config") or environment.get("CORRAL_CONFIG")
    path = pathlib.Path(f"/proc/{pid}/cwd").resolve() / named if named else None
    return load(path, environment, {key: params.get(name) for name, key in names.items()})[0]
