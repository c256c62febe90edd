"""No control groups: a run consists of the descendants of its shim.

The shim is a subreaper, so the descent is complete while it lives. After its death only the run's mark in the
environments (`CORRAL_RUN`) is left, and a process can have wiped its own: therefore this adapter does not
claim to kill every process. It neither limits nor freezes: a SIGSTOP is visible to parents and any process of
the user can undo it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from corral.errors import Code, Rejected
from corral.runtimes.cgroups import processes
from corral.runtimes.cgroups.port import CgroupFacts, SpareGroups, WorkUsage
from corral.sdk.runtime import RunLimits

RUN_MARK: Final = "CORRAL_RUN"
OWNER_MARK: Final = "CORRAL_RUN_OWNER"
_NOTE: Final = (
    "no control groups: runs have no limits, cannot be frozen, and a process that outlives its shim"
    " may escape a kill"
)


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """The processes from which a run descends, by pid and start time."""

    shim: tuple[int, int]
    work: tuple[int, int] = (0, 0)


class NoCgroups:
    """Runs by descent. `owner` separates the daemons of one machine, whose runs may have equal names; without
    an owner, marks are not searched: they could belong to another daemon."""

    name = "none"
    spares: SpareGroups | None = None

    def __init__(self, owner: str = "") -> None:
        self._owner = owner
        self._known: dict[str, _Known] = {}

    async def prove(self) -> CgroupFacts:
        return CgroupFacts(
            kill=False, freeze=False, memory_limit=False, cpu_limit=False, pids_limit=False, notes=(_NOTE,)
        )

    async def create(self, run: str, *, shim_pid: int, limits: RunLimits) -> tuple[str, ...]:  # noqa: ARG002
        self._known[run] = _Known(shim=_identity(shim_pid))
        return ()

    def environment(self, run: str) -> dict[str, str]:
        return {RUN_MARK: run, OWNER_MARK: self._owner} if self._owner else {}

    def know(self, run: str, *, shim_pid: int, pid: int) -> None:
        self._known[run] = _Known(shim=_identity(shim_pid), work=_identity(pid))

    def exists(self, run: str) -> bool:
        return run in self._known or bool(self._marked(run))

    def pids(self, run: str) -> list[int]:
        """Pids from the whole process table, and from the kernel's lists of children before and after: a
        single scan easily misses a process that forks and exits."""
        quick, whole = processes.descendants, processes.descendants_by_parent
        return self._members(run, quick) or self._members(run, whole) or self._members(run, quick)

    async def signal(self, run: str, number: int) -> None:
        processes.send_to_members(lambda: self.pids(run), number)

    async def kill(self, run: str) -> None:
        """Kill first by the kernel's lists of children, which are read faster than a process forks; then by
        the whole process table."""
        quick = lambda: self._members(run, processes.descendants)  # noqa: E731
        await processes.kill_until_quiet(quick, run)
        await processes.kill_until_quiet(lambda: self.pids(run), run)

    async def set_frozen(self, run: str, frozen: bool) -> None:
        """Freezing is refused; thawing is a no-op, because nothing is ever frozen here."""
        if frozen:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"cannot freeze run '{run}': this node has no control groups",
                hint="run the daemon as root, or under systemd, and see `instances.cgroups`",
            )

    def usage(self, run: str) -> WorkUsage:
        members = self.pids(run)
        return WorkUsage(
            processes=len(members),
            memory_bytes=processes.resident_bytes(members),
            cpu_seconds=processes.cpu_seconds(members),
        )

    def oom_killed(self, run: str) -> bool:  # noqa: ARG002  # the kernel counts it for groups only
        return False

    def oom_file(self, run: str) -> str:  # noqa: ARG002
        return ""

    async def remove(self, run: str) -> None:
        self._known.pop(run, None)

    def leftovers(self) -> list[str]:
        """Runs known here, and those whose mark is found on the machine with this owner."""
        marked = self._marks()
        return sorted({*self._known, *(marked[pid] for pid in processes.alive_among(marked))})

    async def place_keeper(self, pid: int, name: str) -> None:
        """No-op: there is no group to move the keeper to."""

    async def close(self) -> None:
        """No-op: nothing is held."""

    def _members(self, run: str, below: Callable[[Iterable[int]], set[int]]) -> list[int]:
        """All descendants of the shim while it lives; otherwise the workload's first process, its
        descendants, and every process that carries the mark."""
        known = self._known.get(run)
        if known is not None and _lives(known.shim):
            return processes.living(lambda: list(below([known.shim[0]])))
        found = set(self._marked(run))
        if known is not None and _lives(known.work):
            found.add(known.work[0])
        return sorted(processes.alive_among(found | below(found)))

    def _marked(self, run: str) -> list[int]:
        return [pid for pid, marked in self._marks().items() if marked == run]

    def _marks(self) -> dict[int, str]:
        """Runs of this owner by the pids that carry their mark."""
        found: dict[int, str] = {}
        for pid in processes.all_pids() if self._owner else ():
            marks = processes.environment_of(pid)
            if RUN_MARK in marks and marks.get(OWNER_MARK) == self._owner and pid != os.getpid():
                found[pid] = marks[RUN_MARK]
        return found


def _identity(pid: int) -> tuple[int, int]:
    stat = processes.read_stat(pid)
    return (pid, stat.start) if stat is not None else (0, 0)


def _lives(identity: tuple[int, int]) -> bool:
    stat = processes.read_stat(identity[0]) if identity[0] else None
    return stat is not None and stat.alive and stat.start == identity[1]
