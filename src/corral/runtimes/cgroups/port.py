"""The interface to control groups that the process runtime uses, and the removal of a run's group.

A run has one group of its own, never reused, with two leaves: `shim` for our own process, `work` for the
workload. Limits, freezing and killing apply to `work` alone. No group of ours lies below the daemon's own
unit: the service manager can then restart the daemon at any time.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import msgspec
import structlog

from corral.errors import CorralError, Retryable
from corral.sdk.runtime import RunLimits
from corral.system.aio.backoff import doubled


class CgroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Features that were proven on a scratch group when the daemon started; `notes` name what failed, and why."""

    kill: bool
    freeze: bool
    memory_limit: bool
    cpu_limit: bool
    pids_limit: bool
    notes: tuple[str, ...] = ()


class WorkUsage(msgspec.Struct, frozen=True, kw_only=True):
    processes: int
    memory_bytes: int
    cpu_seconds: float


class SpareGroups(Protocol):
    """Groups that are made, and have their processes, before their run is known (see `group_slots`)."""

    def next_slot(self) -> str:
        """The name of a group that is to be made, unused so far."""

    async def place(self, slot: str, *, shim_pid: int, child_pid: int) -> None:
        """Make the group and move a shim and its fork into the two leaves. `Retryable` when the kernel refuses, or
        when one of them is gone; `drop` it then, and after a cancellation."""

    def bind(self, slot: str, run: str, *, limits: RunLimits) -> tuple[str, ...]:
        """Make it the group of the run, with its limits. From now on it is found by the run's name, by later
        daemons too. Returns what `Cgroups.create` returns."""

    async def drop(self, slot: str) -> bool:
        """Remove a group that has no run; False while a process is in it, or when it has one. Idempotent."""

    def unbound(self) -> set[str]:
        """The groups without a run, whichever daemon made them."""


class Cgroups(Protocol):
    """Groups by run name (`corral.sdk.runtime.run_name`). Methods raise `Retryable` when the kernel
    or the service manager refuses; those that undo or end something are idempotent."""

    name: str
    """`systemd`, `v2`, `v1` or `none`."""
    spares: SpareGroups | None
    """None where groups cannot be made ahead of their run."""

    async def prove(self) -> CgroupFacts:
        """Try kill, freeze and memory limit on a scratch group with a real process, and remove it."""

    async def create(self, run: str, *, shim_pid: int, limits: RunLimits) -> tuple[str, ...]:
        """Make the run's group with its limits and move the shim into its `shim` leaf. Returns the
        files into each of which the shim writes the workload's pid (decimal) before it executes."""

    def environment(self, run: str) -> dict[str, str]:
        """Variables for the workload's environment by which a process that left its parents is found again.
        Empty where groups do that."""

    def know(self, run: str, *, shim_pid: int, pid: int) -> None:
        """Register, after an adoption, the processes whose descendants belong to this run. Only an adapter
        without groups needs it (it also searches for the variables of `environment`)."""

    def exists(self, run: str) -> bool: ...

    def pids(self, run: str) -> list[int]:
        """Every process in `work`, zombies excepted; empty when there is none, or no group."""

    async def signal(self, run: str, number: int) -> None:
        """Send a signal to every process in `work`."""

    async def kill(self, run: str) -> None:
        """SIGKILL to every process in `work`, those forked meanwhile included. Thaws what is frozen. Returns
        when the kernel has the request; the processes may exist for a moment more."""

    async def set_frozen(self, run: str, frozen: bool) -> None: ...

    def usage(self, run: str) -> WorkUsage: ...

    def oom_killed(self, run: str) -> bool:
        """Whether the kernel killed a process in `work` because memory ran out."""

    def oom_file(self, run: str) -> str:
        """The file whose line `oom_kill N` counts such kills; empty when there is none. It may vanish with
        the last process of the run, so the shim reads it before it exits."""

    async def remove(self, run: str) -> None:
        """Remove the run's group; only when it is empty."""

    def leftovers(self) -> list[str]:
        """Runs that have a group here, created by this daemon or an earlier one."""

    async def place_keeper(self, pid: int, name: str) -> None:
        """Move the keeper out of the daemon's own unit, so that stopping the unit does not kill it.
        Idempotent; `name` distinguishes the keepers of a node."""

    async def close(self) -> None: ...


_TRIES: Final = 8
_PAUSE: Final = 0.005
_log = structlog.get_logger("corral.runtimes.cgroups")


async def remove_group(cgroups: Cgroups, run: str) -> None:
    """Remove a run's group, with retries: the kernel may count a process for a moment after its exit.
    Idempotent."""
    for attempt in range(_TRIES):
        try:
            await cgroups.remove(run)
        except Retryable:
            if attempt == _TRIES - 1:
                raise
            await asyncio.sleep(doubled(_PAUSE, attempt))
        else:
            return


async def remove_group_if_empty(cgroups: Cgroups, run: str) -> None:
    """Remove a run's group; a group that is not empty stays, and that is logged."""
    try:
        await remove_group(cgroups, run)
    except CorralError as error:
        _log.warning("control_group_removal.failed", run=run, error=str(error))


async def drop_spare_group(groups: SpareGroups, slot: str) -> None:
    """Remove the group of a spare whose processes are gone, with retries as in `remove_group`; a group that is not
    empty stays, and that is logged."""
    for attempt in range(_TRIES):
        if await groups.drop(slot):
            return
        await asyncio.sleep(doubled(_PAUSE, attempt))
    _log.warning("spare_shim_group.kept", slot=slot)
