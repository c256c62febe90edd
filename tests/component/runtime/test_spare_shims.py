"""Spare shims: a start uses one that waits in its control group, whoever was killed meanwhile, and nothing of those
that got no run is left."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import msgspec
import pytest
from spare_client import STEPS

from corral.runtimes.cgroups.control_files import mounted_hierarchies
from corral.runtimes.cgroups.group_slots import SLOT
from corral.runtimes.cgroups.unified import groups_below
from corral.runtimes.keeper.run_files import read_record
from corral.runtimes.keeper.spare_shims import SPARE
from corral.runtimes.process.shim_pool import SpareShim
from corral.sdk.runtime import AdoptionKind, RunHandle, RunLimits, RunSpec
from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import console_bytes, console_match, is_running
from corral.testing.runtime_nodes import ProcessHarness, keeper_pid
from corral.testing.waiting import eventually
from corral.testing.workloads import shell

CLIENT = pathlib.Path(__file__).with_name("spare_client.py")
UP = shell("echo up $$; exec sleep 3600")
SPARES = 2


@pytest.fixture(params=["v1", "v2"])
async def node(
    request: pytest.FixtureRequest, scratch: pathlib.Path, reaper: Reaper
) -> AsyncIterator[ProcessHarness]:
    async with ProcessHarness(scratch / "node", cgroups=request.param, spare_shims=SPARES) as node:
        yield node
    assert not slots(node), "a group of a spare is left"


def slots(node: ProcessHarness) -> set[str]:
    """The groups of spares, and of runs that were started with one, in any hierarchy."""
    mounted = mounted_hierarchies()
    trees = [tree for tree in (mounted.unified, *mounted.controllers.values()) if tree]
    return {name for tree in trees for name in groups_below(f"{tree}/{node.cgroup_root}", SLOT)}


async def spares(node: ProcessHarness, but: tuple[SpareShim, ...] = ()) -> tuple[SpareShim, ...]:
    """The pool, once it is full of spares other than these."""
    pool = node.provider.shims
    await eventually(lambda: len(pool.spares) == SPARES and not set(pool.spares) & set(but))
    return pool.spares


async def end(node: ProcessHarness, handle: RunHandle) -> None:
    await node.provider.kill(handle)
    ended = await node.provider.wait_empty(handle)
    assert (ended.known, ended.signal) == (True, signal.SIGKILL)


async def test_a_start_uses_a_spare_and_its_group_is_that_of_the_run(node: ProcessHarness) -> None:
    first, *_ = before = await spares(node)
    spec = node.spec(*UP, limits=RunLimits(memory_mb=64))
    handle = await node.provider.start(spec)
    record = read_record(spec.run_directory)
    assert record is not None
    assert (record.shim, record.pid) == (first.pid, first.child) == (first.pid, handle.pid)
    assert await node.provider.processes(handle) == (handle.pid,)
    assert all(f"/{first.slot}/work/" in file for file in record.procs)
    assert node.cgroups().leftovers() == [spec.run_name]
    await console_match(handle, b"up \\d+\n")
    assert console_bytes(spec.run_directory) == f"up {handle.pid}\n".encode()
    await spares(node, but=before[:1])
    await end(node, handle)
    assert first.slot.removeprefix(SLOT) not in slots(node)


async def test_a_group_with_processes_never_loses_its_run(node: ProcessHarness) -> None:
    first, *_ = await spares(node)
    spec = node.spec(*UP)
    handle = await node.provider.start(spec)
    groups = node.cgroups().spares
    assert groups is not None
    assert not await groups.drop(first.slot)
    assert node.cgroups().leftovers() == [spec.run_name]
    await end(node, handle)
    assert await groups.drop(first.slot)


async def test_a_burst_larger_than_the_pool_starts_whole(node: ProcessHarness) -> None:
    await spares(node)
    specs = [node.spec(*UP) for _ in range(3 * SPARES)]
    handles = await asyncio.gather(*(node.provider.start(spec) for spec in specs))
    assert len({handle.pid for handle in handles}) == len(specs)
    assert sorted(node.cgroups().leftovers()) == sorted(spec.run_name for spec in specs)
    for handle in handles:
        assert await node.provider.processes(handle) == (handle.pid,)
    await asyncio.gather(*(end(node, handle) for handle in handles))


async def test_a_program_that_cannot_be_executed_leaves_no_group(node: ProcessHarness) -> None:
    await spares(node)
    spec = node.spec("/nonexistent/program")
    with pytest.raises(Exception, match="nonexistent"):
        await node.provider.start(spec)
    assert node.cgroups().leftovers() == []


@pytest.mark.parametrize("node", ["v2"], indirect=True)
@pytest.mark.parametrize("victim", ["shim", "fork", "keeper"])
async def test_a_killed_spare_is_replaced(node: ProcessHarness, victim: str) -> None:
    before = await spares(node)
    pids = {"shim": before[0].pid, "fork": before[0].child, "keeper": keeper_pid(node.data)}
    os.kill(pids[victim], signal.SIGKILL)
    gone = before if victim == "keeper" else before[:1]
    await spares(node, but=gone)
    await eventually(lambda: not any(is_running(pid) for spare in gone for pid in (spare.pid, spare.child)))
    handle = await node.provider.start(node.spec(*UP))
    await end(node, handle)


@pytest.mark.parametrize("node", ["v2"], indirect=True)
@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("shim", signal.SIGKILL),
        ("fork", signal.SIGKILL),
        pytest.param("shim", signal.SIGSTOP, marks=pytest.mark.system),
        ("fork", signal.SIGSTOP),
    ],
)
async def test_a_spare_that_is_hit_right_before_its_run_delays_no_start(
    node: ProcessHarness, victim: str, number: int
) -> None:
    for spare in await spares(node):
        pid = spare.pid if victim == "shim" else spare.child
        os.kill(pid, number)
        if victim == "fork":  # one that is stopped after it was chosen is like any workload that is stopped
            await eventually(lambda pid=pid: state_of(pid) in {"T", "Z", ""})
    spec = node.spec(*UP)
    handle = await node.provider.start(spec)
    await console_match(handle, b"up \\d+\n")
    await end(node, handle)


def state_of(pid: int) -> str:
    """The state letter of a process; empty when there is none."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


async def test_spares_end_with_their_daemon(node: ProcessHarness) -> None:
    waiting = await spares(node)
    await node.provider.close()
    assert not any(is_running(pid) for spare in waiting for pid in (spare.pid, spare.child))
    assert not slots(node)


async def test_the_group_of_a_spare_that_ends_after_the_next_daemon_has_started_is_removed(
    node: ProcessHarness,
) -> None:
    groups = node.cgroups().spares
    assert groups is not None
    dialogue, spare = await node.provider.keeper.client.ask({"do": "prepare"})
    slot = groups.next_slot()
    await groups.place(slot, shim_pid=spare[SPARE], child_pid=spare["child"])
    os.kill(spare[SPARE], signal.SIGSTOP)  # it gets no processor
    await dialogue.close()  # as the kernel does for a daemon that is killed
    await node.next_provider()
    await spares(node)
    assert slot.removeprefix(SLOT) in slots(node)
    os.kill(spare[SPARE], signal.SIGCONT)
    await eventually(lambda: slot.removeprefix(SLOT) not in slots(node))


@pytest.mark.trap("T50")
@pytest.mark.parametrize(
    ("node", "step"),
    [*(("v2", step) for step in STEPS), ("v1", STEPS[0]), ("v1", STEPS[-1])],
    indirect=["node"],
)
async def test_the_daemon_is_killed_after_each_step_of_a_start_with_a_spare(
    node: ProcessHarness, step: str
) -> None:
    spec = node.spec(*UP)
    process = subprocess.Popen([sys.executable, str(CLIENT), *arguments(node, spec, step)])
    assert await asyncio.to_thread(process.wait) == -signal.SIGKILL
    provider = await node.next_provider()
    adoption = await provider.adopt(spec.run_directory)
    started = STEPS.index(step) >= STEPS.index("go-sent")
    assert adoption.kind is (AdoptionKind.ALIVE if started else AdoptionKind.NEVER_STARTED)
    handle = adoption.handle if started else await provider.start(spec)
    assert handle is not None
    await console_match(handle, b"up \\d+\n")
    assert console_bytes(spec.run_directory) == f"up {handle.pid}\n".encode()
    assert await provider.processes(handle) == (handle.pid,)
    await end(node, handle)
    await spares(node)
    await eventually(lambda: len(slots(node)) == 2 * SPARES)


def arguments(node: ProcessHarness, spec: RunSpec, step: str) -> list[str]:
    return [str(node.data), node.cgroup_kind, node.cgroup_root, msgspec.json.encode(spec).decode(), step]
