"""Control groups v1: one tree for each controller, and possibly an empty v2 tree beside them.

Where that v2 tree can kill and freeze, it does; limits and counters are the controllers' own. When memory
runs out the kernel kills one process of a run, not the run: v1 has no `memory.oom.group`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pathlib
import signal
import time
from collections.abc import Mapping
from typing import Final

from corral.errors import Code, Rejected, Retryable
from corral.runtimes.cgroups import control_files, processes, unified
from corral.runtimes.cgroups.control_files import Hierarchies
from corral.runtimes.cgroups.group_slots import GroupNames, bind_slot, remove_run_group, remove_slot
from corral.runtimes.cgroups.port import CgroupFacts, SpareGroups, WorkUsage
from corral.runtimes.cgroups.proof import proven_facts
from corral.runtimes.cgroups.run_groups import RUN, RootGroup, escaped, unescaped
from corral.runtimes.keeper.oom_kills import oom_kill_counted
from corral.sdk.runtime import RunLimits
from corral.system.threads import to_end

_V2: Final = "unified"
_LISTED_BY: Final = (_V2, "freezer", "pids", "memory", "cpu", "cpuacct", "name=systemd")
_PAUSE: Final = 0.002
_KILL_ROUNDS: Final = 20


class SeparateCgroups:
    """Groups `<mount of each controller>/<root>/run-<run>`, or slots there (see `group_slots`)."""

    name = "v1"

    def __init__(self, hierarchies: Hierarchies, root: str) -> None:
        """Makes the root groups where it is allowed; `OSError` when it is allowed nowhere."""
        mounts = dict(hierarchies.controllers)
        if hierarchies.unified is not None:
            mounts[_V2] = hierarchies.unified
        self._roots = _usable_roots(mounts, root)
        self._lister = next(name for name in _LISTED_BY if name in self._roots)
        self._by_v2 = _V2 in self._roots and _v2_can_kill(self._roots[_V2].path)
        self._names = GroupNames(self._roots[self._lister].path)
        self.spares: SpareGroups | None = self

    async def prove(self) -> CgroupFacts:
        return await proven_facts(self)

    async def create(self, run: str, *, shim_pid: int, limits: RunLimits) -> tuple[str, ...]:
        # Moving a process waits for the kernel, in each hierarchy: not on the loop.
        await to_end(self._make, f"{RUN}{escaped(run)}", shim_pid)
        self._set_limits(run, limits)
        return self._member_files(run)

    def next_slot(self) -> str:
        return self._names.next_slot()

    async def place(self, slot: str, *, shim_pid: int, child_pid: int) -> None:
        await to_end(self._make, slot, shim_pid, child_pid)

    def _make(self, name: str, shim_pid: int, child_pid: int = 0) -> None:
        made: list[str] = []
        try:
            for root in self._distinct_roots():
                group = root.make_child(name)
                made.append(group)
                for leaf in ("shim", "work"):
                    pathlib.Path(f"{group}/{leaf}").mkdir()
                control_files.move_living(shim_pid, f"{group}/shim")
                if child_pid:
                    control_files.move_living(child_pid, f"{group}/work")
        except OSError as error:
            for group in made:
                control_files.remove_unless_busy(group)
            raise Retryable(Code.SPAWN_FAILED, f"cannot make the control groups {name}: {error}") from error

    def bind(self, slot: str, run: str, *, limits: RunLimits) -> tuple[str, ...]:
        bind_slot(self._names, slot, run)
        self._set_limits(run, limits)
        return self._member_files(run)

    async def drop(self, slot: str) -> bool:
        return await to_end(self._drop, slot)

    def _drop(self, slot: str) -> bool:
        removed = [remove_slot(root.path, slot) for root in self._distinct_roots()]
        if all(removed):
            self._names.forget_slot(slot)
        return all(removed)

    def unbound(self) -> set[str]:
        return self._names.unbound(*(root.path for root in self._distinct_roots()))

    def environment(self, run: str) -> dict[str, str]:  # noqa: ARG002  # the port
        return {}

    def know(self, run: str, *, shim_pid: int, pid: int) -> None:
        """No-op: the kernel knows the members."""

    def exists(self, run: str) -> bool:
        name = self._names.of(run)
        return any(pathlib.Path(root.path, name).is_dir() for root in self._distinct_roots())

    def pids(self, run: str) -> list[int]:
        work = self._work(run, self._lister)
        return processes.living(lambda: control_files.member_pids(work))

    async def signal(self, run: str, number: int) -> None:
        processes.send_to_members(lambda: self.pids(run), number)

    async def kill(self, run: str) -> None:
        if self._by_v2:
            await unified.kill(self._work(run, _V2), run)
            return
        if "freezer" in self._roots:
            await self._kill_frozen(run)
        await processes.kill_until_quiet(lambda: self.pids(run), run)

    async def set_frozen(self, run: str, frozen: bool) -> None:
        if self._by_v2:
            await unified.set_frozen(self._work(run, _V2), run, frozen)
        elif "freezer" not in self._roots:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"cannot freeze run '{run}': this machine has no freezer controller",
                hint="mount the freezer hierarchy, or use cgroup v2",
            )
        elif not await self._freeze(run, frozen):
            await self._freeze(run, False)
            raise Retryable(
                Code.TIMEOUT,
                f"run '{run}' did not freeze within {unified.FREEZE_SECONDS:g} s; it was thawed",
                hint="one of its processes waits for a device or a network file system",
            )

    def usage(self, run: str) -> WorkUsage:
        members = self.pids(run)
        memory = self._work(run, "memory")
        used = control_files.read_number(f"{memory}/memory.usage_in_bytes")
        if used:
            used = max(0, used - control_files.read_field(f"{memory}/memory.stat", "total_inactive_file"))
        nanoseconds = control_files.read_number(f"{self._work(run, 'cpuacct')}/cpuacct.usage")
        return WorkUsage(
            processes=len(members),
            memory_bytes=used or processes.resident_bytes(members),
            cpu_seconds=nanoseconds / 1e9 if nanoseconds else processes.cpu_seconds(members),
        )

    def oom_killed(self, run: str) -> bool:
        return oom_kill_counted(self.oom_file(run))

    def oom_file(self, run: str) -> str:
        return f"{self._work(run, 'memory')}/memory.oom_control" if "memory" in self._roots else ""

    def limits_in_force(self, run: str) -> frozenset[str]:
        found: set[str] = set()
        if 0 < control_files.read_number(f"{self._work(run, 'memory')}/memory.limit_in_bytes") < 2**60:
            found.add("memory")
        if control_files.read_number(f"{self._work(run, 'cpu')}/cpu.cfs_quota_us"):
            found.add("cpu")
        if control_files.read_number(f"{self._work(run, 'pids')}/pids.max"):
            found.add("pids")
        return frozenset(found)

    async def remove(self, run: str) -> None:
        name = self._names.of(run)
        for root in sorted(self._distinct_roots(), key=lambda root: root.path == self._names.path):
            remove_run_group(f"{root.path}/{name}", run)  # last the one with the label
        self._names.forget(run)

    def leftovers(self) -> list[str]:
        names = {name for root in self._distinct_roots() for name in unified.groups_below(root.path, RUN)}
        return sorted({*map(unescaped, names), *self._names.runs()})

    async def place_keeper(self, pid: int, name: str) -> None:
        for root in self._distinct_roots():
            try:
                root.place_keeper(pid, name)
            except OSError as error:
                raise Retryable(
                    Code.SPAWN_FAILED,
                    f"cannot move the keeper ({pid}) into a control group of its own ({root.path}): {error}",
                ) from error

    async def close(self) -> None:
        """No-op: groups of runs outlive the daemon."""
        for root in self._distinct_roots():
            await root.remove_if_empty()

    def _distinct_roots(self) -> list[RootGroup]:
        """The root groups without duplicates: controllers that are mounted together share their directory."""
        return list({root.path: root for root in self._roots.values()}.values())

    def _work(self, run: str, controller: str) -> str:
        """The `work` directory of a controller; for a controller that is not mounted, a path that does not
        exist either."""
        root = self._roots.get(controller)
        return f"{root.path if root else '/nonexistent'}/{self._names.of(run)}/work"

    def _member_files(self, run: str) -> tuple[str, ...]:
        name = self._names.of(run)
        return tuple(f"{root.path}/{name}/work/cgroup.procs" for root in self._distinct_roots())

    def _set_limits(self, run: str, limits: RunLimits) -> None:
        write = control_files.write_if_there
        if limits.memory_mb:
            memory, most = self._work(run, "memory"), str(limits.memory_mb << 20)
            write(f"{memory}/memory.limit_in_bytes", most)
            write(f"{memory}/memory.memsw.limit_in_bytes", most)  # memory and swap together: no swap
        if limits.cpu_cores:
            cpu, period = self._work(run, "cpu"), unified.CPU_PERIOD_MICROSECONDS
            write(f"{cpu}/cpu.cfs_period_us", str(period))
            write(f"{cpu}/cpu.cfs_quota_us", str(max(1000, round(limits.cpu_cores * period))))
        if limits.pids:
            write(f"{self._work(run, 'pids')}/pids.max", str(limits.pids))

    async def _kill_frozen(self, run: str) -> None:
        """Freeze, kill, thaw. A frozen process does not fork: one round that froze everything reaches
        everything. The processes die when they are thawed, before they execute an instruction."""
        for _ in range(_KILL_ROUNDS):
            if not self.pids(run):
                break
            complete = await self._freeze(run, True)
            processes.send_to_members(lambda: self.pids(run), signal.SIGKILL)
            control_files.write_if_there(f"{self._work(run, 'freezer')}/freezer.state", "THAWED")
            if complete:
                return
        control_files.write_if_there(f"{self._work(run, 'freezer')}/freezer.state", "THAWED")

    async def _freeze(self, run: str, frozen: bool) -> bool:
        """Freeze or thaw; False when it is not complete in time."""
        path = f"{self._work(run, 'freezer')}/freezer.state"
        expected = "FROZEN" if frozen else "THAWED"
        ends = time.monotonic() + unified.FREEZE_SECONDS
        while control_files.write_if_there(path, expected):  # repeated: a fork may have been missed
            if control_files.read_text(path).strip() == expected:
                return True
            if time.monotonic() > ends:
                return False
            await asyncio.sleep(_PAUSE)
        return not pathlib.Path(path).exists()


def _usable_roots(mounts: Mapping[str, str], root: str) -> dict[str, RootGroup]:
    usable: dict[str, RootGroup] = {}
    refused: OSError | None = None
    for name, mount in mounts.items():
        try:
            usable[name] = RootGroup(mount, root, v2=name == _V2)
        except OSError as error:
            refused = error
    if not usable:
        raise refused or FileNotFoundError(errno.ENOENT, "no control group hierarchy is mounted")
    return usable


def _v2_can_kill(root: str) -> bool:
    """Whether the v2 tree has `cgroup.kill`: tested on a scratch group, for the root of a hierarchy has no
    such file."""
    scratch = f"{root}/look-{os.getpid()}"
    with contextlib.suppress(FileExistsError):
        pathlib.Path(scratch).mkdir()
    try:
        return (
            pathlib.Path(scratch, "cgroup.kill").exists() and pathlib.Path(scratch, "cgroup.freeze").exists()
        )
    finally:
        control_files.remove_unless_busy(scratch)
