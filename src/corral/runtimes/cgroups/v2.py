"""Control groups of a v2 tree: the plain tree (`UnifiedCgroups`), for machines without systemd, and what all
groups in a v2 tree have in common (`RunsInOneTree`)."""

from __future__ import annotations

import abc
import pathlib

from corral.errors import Code, Retryable
from corral.runtimes.cgroups import control_files, unified
from corral.runtimes.cgroups.group_slots import GroupNames, bind_slot, remove_run_group, remove_slot
from corral.runtimes.cgroups.port import CgroupFacts, SpareGroups, WorkUsage
from corral.runtimes.cgroups.proof import proven_facts
from corral.runtimes.cgroups.run_groups import RUN, RootGroup, escaped
from corral.runtimes.keeper.oom_kills import oom_kill_counted
from corral.sdk.runtime import RunLimits
from corral.system.threads import to_end


class RunsInOneTree(abc.ABC):
    """The part of the interface that concerns a run's `work` leaf. Subclasses locate the run's group."""

    @abc.abstractmethod
    def _group(self, run: str) -> str:
        """The directory of the run's group, whether or not it exists."""

    def environment(self, run: str) -> dict[str, str]:  # noqa: ARG002  # the port
        return {}

    def know(self, run: str, *, shim_pid: int, pid: int) -> None:  # noqa: B027  # nothing to remember
        """No-op: the kernel knows the members."""

    def exists(self, run: str) -> bool:
        return pathlib.Path(self._group(run)).is_dir()

    def pids(self, run: str) -> list[int]:
        return unified.pids(self._work(run))

    async def signal(self, run: str, number: int) -> None:
        unified.send(self._work(run), number)

    async def kill(self, run: str) -> None:
        await unified.kill(self._work(run), run)

    async def set_frozen(self, run: str, frozen: bool) -> None:
        await unified.set_frozen(self._work(run), run, frozen)

    def usage(self, run: str) -> WorkUsage:
        return unified.usage(self._work(run))

    def oom_killed(self, run: str) -> bool:
        """Whether there was an OOM kill. False also when the group is gone: read `oom_file` before."""
        return oom_kill_counted(self.oom_file(run))

    def oom_file(self, run: str) -> str:
        return f"{self._work(run)}/memory.events"

    def limits_in_force(self, run: str) -> frozenset[str]:
        return unified.limits_in_force(self._work(run))

    def _work(self, run: str) -> str:
        return f"{self._group(run)}/work"


class UnifiedCgroups(RunsInOneTree):
    """Groups `<mount>/<root>/run-<run>`, or slots there (see `group_slots`)."""

    name = "v2"

    def __init__(self, mount: str, root: str) -> None:
        """Makes the root group; `OSError` when this process may not."""
        self._root = RootGroup(mount, root, v2=True)
        self._names = GroupNames(self._root.path)
        self.spares: SpareGroups | None = self

    async def prove(self) -> CgroupFacts:
        return await proven_facts(self)

    async def create(self, run: str, *, shim_pid: int, limits: RunLimits) -> tuple[str, ...]:
        # Moving a process waits for the kernel: not on the loop.
        await to_end(self._make, f"{RUN}{escaped(run)}", shim_pid)
        unified.set_limits(self._work(run), limits)
        return (f"{self._work(run)}/cgroup.procs",)

    def next_slot(self) -> str:
        return self._names.next_slot()

    async def place(self, slot: str, *, shim_pid: int, child_pid: int) -> None:
        await to_end(self._make, slot, shim_pid, child_pid)

    def _make(self, name: str, shim_pid: int, child_pid: int = 0) -> None:
        group = f"{self._root.path}/{name}"
        try:
            self._root.make_child(name)
            unified.make_leaves(group, shim_pid=shim_pid, child_pid=child_pid)
        except OSError as error:
            if not isinstance(error, FileExistsError):
                control_files.remove_unless_busy(group)
            raise Retryable(Code.SPAWN_FAILED, f"cannot make the control group {group}: {error}") from error

    def bind(self, slot: str, run: str, *, limits: RunLimits) -> tuple[str, ...]:
        bind_slot(self._names, slot, run)
        unified.set_limits(self._work(run), limits)
        return (f"{self._work(run)}/cgroup.procs",)

    async def drop(self, slot: str) -> bool:
        removed = await to_end(remove_slot, self._root.path, slot)
        if removed:
            self._names.forget_slot(slot)
        return removed

    def unbound(self) -> set[str]:
        return self._names.unbound(self._root.path)

    async def remove(self, run: str) -> None:
        remove_run_group(self._group(run), run)
        self._names.forget(run)

    def leftovers(self) -> list[str]:
        return self._names.runs()

    async def place_keeper(self, pid: int, name: str) -> None:
        try:
            self._root.place_keeper(pid, name)
        except OSError as error:
            raise Retryable(
                Code.SPAWN_FAILED, f"cannot move the keeper ({pid}) into a control group of its own: {error}"
            ) from error

    async def close(self) -> None:
        """No-op: groups of runs outlive the daemon."""
        await self._root.remove_if_empty()

    def _group(self, run: str) -> str:
        return f"{self._root.path}/{self._names.of(run)}"
