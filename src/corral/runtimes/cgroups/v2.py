"""Control groups of the plain v2 tree, for machines whose service manager is not systemd."""

from __future__ import annotations

from corral.errors import Code, Retryable
from corral.runtimes.cgroups import control_files, unified
from corral.runtimes.cgroups.one_tree import RunsInOneTree
from corral.runtimes.cgroups.port import CgroupFacts
from corral.runtimes.cgroups.proof import proven_facts
from corral.runtimes.cgroups.root_groups import RUN, RootGroup
from corral.runtimes.cgroups.run_names import escaped, unescaped
from corral.sdk.runtime import RunLimits
from corral.system.threads import to_end


class UnifiedCgroups(RunsInOneTree):
    """Groups `<mount>/<root>/run-<run>`."""

    name = "v2"

    def __init__(self, mount: str, root: str) -> None:
        """Makes the root group; `OSError` when this process may not."""
        self._root = RootGroup(mount, root, v2=True)

    async def prove(self) -> CgroupFacts:
        return await proven_facts(self)

    async def create(self, run: str, *, shim_pid: int, limits: RunLimits) -> tuple[str, ...]:
        # Moving a process waits for the kernel: not on the loop.
        return await to_end(self._create, run, shim_pid, limits)

    def _create(self, run: str, shim_pid: int, limits: RunLimits) -> tuple[str, ...]:
        group = self._group(run)
        try:
            self._root.make_child(f"{RUN}{escaped(run)}")
            work = unified.make_leaves(group, shim_pid=shim_pid, limits=limits)
        except OSError as error:
            if not isinstance(error, FileExistsError):
                control_files.remove_unless_busy(group)
            raise Retryable(
                Code.SPAWN_FAILED, f"cannot make the control group of run '{run}' ({group}): {error}"
            ) from error
        return (f"{work}/cgroup.procs",)

    async def remove(self, run: str) -> None:
        control_files.remove_empty(self._group(run), run)

    def leftovers(self) -> list[str]:
        return [unescaped(name) for name in unified.groups_below(self._root.path, RUN)]

    async def house_keeper(self, pid: int, name: str) -> None:
        try:
            self._root.house_keeper(pid, name)
        except OSError as error:
            raise Retryable(
                Code.SPAWN_FAILED, f"cannot move the keeper ({pid}) into a control group of its own: {error}"
            ) from error

    async def close(self) -> None:
        """Groups of runs stay: daemons come and go."""
        await self._root.remove_if_empty()

    def _group(self, run: str) -> str:
        return f"{self._root.path}/{RUN}{escaped(run)}"
