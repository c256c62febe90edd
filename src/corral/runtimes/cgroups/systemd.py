"""Control groups under systemd: a transient scope for each run, so that the manager knows whose they
are and leaves them alone when the daemon's unit stops.

The scope is delegated: the two leaves within it, their limits, freezing and killing are ours. systemd
removes a scope with its last process.
"""

from __future__ import annotations

import contextlib
import pathlib
from typing import Final

from corral.errors import Code, CorralError, Retryable
from corral.runtimes.cgroups import control_files, unified
from corral.runtimes.cgroups.one_tree import RunsInOneTree
from corral.runtimes.cgroups.port import CgroupFacts
from corral.runtimes.cgroups.proof import proven_facts
from corral.runtimes.cgroups.run_names import escaped, is_keeper_name, keeper_name, unescaped
from corral.runtimes.cgroups.systemd_bus import manager_group, start_scope, stop_unit
from corral.sdk.runtime import RunLimits

SLICE: Final = "corral.slice"
_PREFIX: Final = "corral-"
_SUFFIX: Final = ".scope"


def systemd_is_pid_1() -> bool:
    """As sd_booted(3) asks, and not from within somebody's container that shares only the directory."""
    try:
        first = pathlib.Path("/proc/1/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return False
    return first in ("systemd", "init") and pathlib.Path("/run/systemd/system").is_dir()


def open_systemd(mount: str, owner: str) -> SystemdCgroups:
    """Asks the manager over the system bus (blocking, with a deadline) where its groups lie."""
    group = manager_group().rstrip("/")
    path = f"{mount}{group}"
    if not pathlib.Path(path, "cgroup.procs").exists():
        raise Retryable(Code.NOT_SUPPORTED, f"the manager's groups are not in the v2 hierarchy ({path})")
    return SystemdCgroups(f"{path}/{SLICE}", owner)


class SystemdCgroups(RunsInOneTree):
    """Scopes `corral-<run>[:<owner>].scope` in `corral.slice`."""

    name = "systemd"

    def __init__(self, directory: str, owner: str) -> None:
        """`directory`: the group of the slice."""
        self._directory = directory
        self._ending = f":{owner}{_SUFFIX}" if owner else _SUFFIX

    async def prove(self) -> CgroupFacts:
        return await proven_facts(self)

    async def create(self, run: str, *, shim_pid: int, limits: RunLimits) -> tuple[str, ...]:
        unit = self._unit(run)
        await start_scope(unit, slice=SLICE, pid=shim_pid, description=f"Corral run {run}")
        try:
            work = unified.make_leaves(self._group(run), shim_pid=shim_pid, limits=limits)
        except OSError as error:
            with contextlib.suppress(CorralError):
                await stop_unit(unit)
            raise Retryable(
                Code.SPAWN_FAILED, f"cannot divide the control group of run '{run}' ({unit}): {error}"
            ) from error
        return (f"{work}/cgroup.procs",)

    async def remove(self, run: str) -> None:
        """An empty scope goes by itself; stopping it only makes sure. The manager kills what a scope
        holds when it is stopped: one that is not empty is refused."""
        group = self._group(run)
        if unified.is_populated(group):
            raise Retryable(
                Code.CONFLICT,
                f"cannot remove {self._unit(run)}: processes {control_files.member_pids(group)} are left",
                hint="wait until the run is empty, or kill it",
            )
        await stop_unit(self._unit(run))

    def leftovers(self) -> list[str]:
        names = unified.groups_below(self._directory, _PREFIX)
        found = [name.removesuffix(self._ending) for name in names if name.endswith(self._ending)]
        return [unescaped(name) for name in found if ":" not in name and not is_keeper_name(name)]

    async def house_keeper(self, pid: int, name: str) -> None:
        unit = f"{_PREFIX}{keeper_name(name, pid)}{self._ending}"
        if pid in control_files.member_pids(f"{self._directory}/{unit}"):
            return
        await start_scope(unit, slice=SLICE, pid=pid, description=f"Corral keeper {name}")

    async def close(self) -> None:
        """Scopes stay: daemons come and go."""

    def _unit(self, run: str) -> str:
        return f"{_PREFIX}{escaped(run)}{self._ending}"

    def _group(self, run: str) -> str:
        return f"{self._directory}/{self._unit(run)}"
