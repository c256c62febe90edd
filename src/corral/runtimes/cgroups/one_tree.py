"""What is the same for every run whose group lies in the v2 tree, whoever made the group."""

from __future__ import annotations

import abc
import pathlib

from corral.runtimes.cgroups import unified
from corral.runtimes.cgroups.port import WorkUsage


class RunsInOneTree(abc.ABC):
    """The part of the port that concerns a run's `work` leaf. Adapters say where its group lies."""

    @abc.abstractmethod
    def _group(self, run: str) -> str:
        """The directory of the run's group, whether or not it exists."""

    def environment(self, run: str) -> dict[str, str]:  # noqa: ARG002  # the port
        return {}

    def know(self, run: str, *, shim_pid: int, pid: int) -> None:  # noqa: B027  # nothing to remember
        """The kernel knows."""

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
        """False also when the group is gone: `oom_file` is to be read before."""
        return unified.oom_killed(self._work(run))

    def oom_file(self, run: str) -> str:
        return f"{self._work(run)}/memory.events"

    def limits_in_force(self, run: str) -> frozenset[str]:
        return unified.limits_in_force(self._work(run))

    def _work(self, run: str) -> str:
        return f"{self._group(run)}/work"
