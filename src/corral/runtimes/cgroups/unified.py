"""A run's group in the v2 tree: leaves, limits, kill, freeze, counters.

Blocking calls are single reads and writes of kernel files. A group that is gone counts as empty.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import time
from typing import Final

from corral.errors import Code, Retryable
from corral.runtimes.cgroups import control_files, processes
from corral.runtimes.cgroups.port import WorkUsage
from corral.sdk.runtime import RunLimits

CONTROLLERS: Final = ("memory", "cpu", "pids")
CPU_PERIOD_MICROSECONDS: Final = 100_000
FREEZE_SECONDS: Final = 5.0
_PAUSE: Final = 0.002


def hand_down(group: str) -> None:
    """Enable this group's controllers for the groups below it. A controller that the kernel refuses (a group
    with processes of its own, a controller that v1 holds) stays off, and its limit cannot be set then."""
    for name in CONTROLLERS:
        control_files.write_if_there(f"{group}/cgroup.subtree_control", f"+{name}")


def make_leaves(group: str, *, shim_pid: int, child_pid: int = 0) -> str:
    """Make the two leaves of a group that exists, and move the shim and, if it is there already, its workload into
    theirs; returns the `work` leaf."""
    shim, work = f"{group}/shim", f"{group}/work"
    for leaf in (shim, work):
        pathlib.Path(leaf).mkdir(exist_ok=True)
    control_files.move_living(shim_pid, shim)
    hand_down(group)  # only now: a group with processes of its own may not
    if child_pid:
        control_files.move_living(child_pid, work)
    return work


def set_limits(work: str, limits: RunLimits) -> None:
    write = control_files.write_if_there
    if limits.memory_mb:
        write(f"{work}/memory.max", str(limits.memory_mb << 20))
        write(f"{work}/memory.swap.max", "0")
    write(f"{work}/memory.oom.group", "1")
    if limits.cpu_cores:
        quota = max(1000, round(limits.cpu_cores * CPU_PERIOD_MICROSECONDS))
        write(f"{work}/cpu.max", f"{quota} {CPU_PERIOD_MICROSECONDS}")
    if limits.pids:
        write(f"{work}/pids.max", str(limits.pids))


def limits_in_force(work: str) -> frozenset[str]:
    """Which of memory, cpu and pids the kernel limits in this group."""
    files = {"memory": "memory.max", "cpu": "cpu.max", "pids": "pids.max"}
    texts = {name: control_files.read_text(f"{work}/{file}").strip() for name, file in files.items()}
    return frozenset(name for name, text in texts.items() if text and not text.startswith("max"))


def pids(work: str) -> list[int]:
    return processes.living(lambda: control_files.member_pids(work))


def send(work: str, number: int) -> None:
    processes.send_to_members(lambda: pids(work), number)


async def kill(work: str, run: str) -> None:
    """Kill the group: at once where the kernel can (5.14); otherwise frozen, so that no process forks
    meanwhile. Kill comes before thaw: no process of a frozen run executes again."""
    if not pathlib.Path(work).is_dir():
        return
    if not control_files.write_if_there(f"{work}/cgroup.kill", "1"):
        await _kill_one_by_one(work, run)
    control_files.write_if_there(f"{work}/cgroup.freeze", "0")


async def set_frozen(work: str, run: str, frozen: bool) -> None:
    """Freeze or thaw. Returns when the kernel reports it done; an empty group is frozen at once."""
    try:
        control_files.write_text(f"{work}/cgroup.freeze", "1" if frozen else "0")
    except OSError as error:
        verb = "freeze" if frozen else "thaw"
        raise Retryable(
            Code.NOT_SUPPORTED, f"cannot {verb} run '{run}': {error.strerror} ({work}/cgroup.freeze)"
        ) from error
    expected = int(frozen)
    ends = time.monotonic() + FREEZE_SECONDS
    while control_files.read_field(f"{work}/cgroup.events", "frozen") != expected:
        if time.monotonic() > ends:
            control_files.write_if_there(f"{work}/cgroup.freeze", "0")
            raise Retryable(
                Code.TIMEOUT,
                f"run '{run}' did not freeze within {FREEZE_SECONDS:g} s; it was thawed",
                hint="one of its processes waits for a device or a network file system",
            )
        await asyncio.sleep(_PAUSE)


def usage(work: str) -> WorkUsage:
    members = pids(work)
    memory = control_files.read_number(f"{work}/memory.current")
    if memory:  # not counted: pages of files that the kernel may drop at any time
        memory = max(0, memory - control_files.read_field(f"{work}/memory.stat", "inactive_file"))
    else:
        memory = processes.resident_bytes(members)
    microseconds = control_files.read_field(f"{work}/cpu.stat", "usage_usec")
    return WorkUsage(processes=len(members), memory_bytes=memory, cpu_seconds=microseconds / 1e6)


def is_populated(group: str) -> bool:
    return control_files.read_field(f"{group}/cgroup.events", "populated") > 0


def groups_below(directory: str, prefix: str) -> list[str]:
    """Names of the groups there, without their prefix."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return []
    return [
        entry.name.removeprefix(prefix)
        for entry in entries
        if entry.is_dir() and entry.name.startswith(prefix)
    ]


async def _kill_one_by_one(work: str, run: str) -> None:
    control_files.write_if_there(f"{work}/cgroup.freeze", "1")
    processes.send_to_members(lambda: pids(work), signal.SIGKILL)
    control_files.write_if_there(f"{work}/cgroup.freeze", "0")
    await processes.kill_until_quiet(lambda: pids(work), run)
