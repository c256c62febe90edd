"""Starts that are cut off: one process or none, and never one that nobody knows of."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import subprocess
from collections.abc import AsyncIterator

import pytest

from corral.errors import Code, CorralError, Rejected, Retryable
from corral.runtimes.keeper import run_files
from corral.sdk.runtime import AdoptionKind, RunLimits, RunSpec
from corral.testing import workloads
from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import console_bytes, console_match, is_running
from corral.testing.runtime_nodes import CGROUP_KINDS, PATH, ProcessHarness, keeper_pid
from corral.testing.waiting import eventually
from corral.testing.workloads import shell

UP = shell("echo up $$; exec sleep 3600")
LONG_PATH = ":".join(["x"] * 20_000 + [PATH])
"""So long that the workload looks for its program for a while: it was let go and executes nothing yet."""


@pytest.fixture(
    params=[pytest.param(kind, marks=[] if kind == "v2" else pytest.mark.system) for kind in CGROUP_KINDS]
)
async def house(
    request: pytest.FixtureRequest, scratch: pathlib.Path, reaper: Reaper
) -> AsyncIterator[ProcessHarness]:
    async with ProcessHarness(scratch / "node", cgroups=request.param) as house:
        yield house


async def kill_shim_of(spec: RunSpec) -> None:
    """As soon as the run is on record."""
    record = await eventually(lambda: run_files.read_record(spec.run_directory))
    os.kill(record.shim, signal.SIGKILL)


@pytest.mark.trap("T50")
async def test_a_shim_that_is_killed_while_its_workload_begins_leaves_one_that_is_known(
    house: ProcessHarness,
) -> None:
    """Whoever ordered it must not be told that it failed: the workload runs. A shim that is killed between its record
    and the release of its workload has started nothing and says so; the next run has another try."""
    for _ in range(20):
        spec = house.spec("sh", *UP[1:], environment={"PATH": LONG_PATH})
        starting = asyncio.create_task(house.provider.start(spec), name="test/start")
        await kill_shim_of(spec)
        try:
            handle = await starting
            break
        except Retryable as error:
            refused = error
        assert refused.code is Code.SPAWN_FAILED
        workload = run_files.read_record(spec.run_directory).pid
        await eventually(lambda pid=workload: not is_running(pid))
        assert console_bytes(spec.run_directory) == b""
    await console_match(handle, b"up \\d+\n")
    assert console_bytes(spec.run_directory) == f"up {handle.pid}\n".encode()
    adoption = await (await house.next_provider()).adopt(spec.run_directory)
    assert adoption.kind is AdoptionKind.ALIVE
    await house.provider.kill(handle)
    ended = await house.provider.wait_empty(handle)
    assert (ended.known, ended.signal) == (True, signal.SIGKILL)


@pytest.mark.trap("T50")
async def test_a_rescued_run_is_adopted_although_its_shim_never_said_that_it_executes(
    house: ProcessHarness,
) -> None:
    handle = await house.provider.start(house.spec(*UP))
    await console_match(handle, b"up \\d+\n")
    run_files.make_file(handle.run_directory, run_files.FAILED)  # what such a shim leaves behind
    os.kill(int(handle.state["shim"]), signal.SIGKILL)
    await eventually(lambda: run_files.read_record(handle.run_directory).rescued)
    provider = await house.next_provider()
    async with asyncio.timeout(10):
        adoption = await provider.adopt(handle.run_directory)
    assert adoption.kind is AdoptionKind.ALIVE
    await provider.kill(handle)
    assert (await provider.wait_empty(handle)).signal == signal.SIGKILL


@pytest.mark.trap("T50")
async def test_a_group_that_a_killed_daemon_left_does_not_hinder_the_next_start(
    house: ProcessHarness,
) -> None:
    spec = house.spec(*workloads.crashing(code=4))
    shim = subprocess.Popen(["sleep", "3600"])  # it had come as far as its group, and gave up
    await house.cgroups().create(spec.run_name, shim_pid=shim.pid, limits=RunLimits())
    shim.kill()
    shim.wait()
    provider = await house.next_provider()
    assert (await provider.adopt(spec.run_directory)).kind is AdoptionKind.NEVER_STARTED
    handle = await provider.start(spec)
    assert (await provider.wait_empty(handle)).code == 4


async def test_a_cancelled_start_leaves_no_group_and_can_be_repeated(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.crashing(code=4))
    cgroups = house.cgroups()
    for hops in range(12):
        starting = asyncio.create_task(house.provider.start(spec), name="test/start")
        for _ in range(hops):
            await asyncio.sleep(0.001)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        adoption = await house.provider.adopt(spec.run_directory)
        if adoption.kind is not AdoptionKind.NEVER_STARTED:
            break
        assert not cgroups.exists(spec.run_name)
    else:
        adoption_handle = await house.provider.start(spec)
        assert (await house.provider.wait_empty(adoption_handle)).code == 4
        return
    assert adoption.handle is not None
    assert (await house.provider.wait_empty(adoption.handle)).code == 4


@pytest.mark.trap("T50")
async def test_a_run_whose_minders_are_all_dead_is_never_started_a_second_time(house: ProcessHarness) -> None:
    """Its lock is free for the moment; what its record says counts."""
    spec = house.spec(*UP)
    handle = await house.provider.start(spec)
    await house.provider.close()
    keeper = keeper_pid(house.data)
    for pid in (keeper, int(handle.state["shim"])):
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_running(int(handle.state["shim"])))
    with pytest.raises(Rejected) as caught:
        await house.provider.start(spec)
    assert caught.value.code is Code.ALREADY_EXISTS
    adoption = await house.provider.adopt(spec.run_directory)
    assert adoption.handle is not None
    assert adoption.handle.pid == handle.pid
    await house.provider.kill(handle)
    await house.provider.wait_empty(handle)


async def test_adopting_while_it_starts_gives_one_run_that_ends_once(house: ProcessHarness) -> None:
    spec = house.spec("sh", *UP[1:], environment={"PATH": LONG_PATH})
    starting = asyncio.create_task(house.provider.start(spec), name="test/start")
    await eventually(lambda: run_files.read_record(spec.run_directory))
    adoptions = await asyncio.gather(*(house.provider.adopt(spec.run_directory) for _ in range(3)))
    handle = await starting
    assert [adoption.handle for adoption in adoptions] == [handle] * 3
    minding = [
        name for task in asyncio.all_tasks() if (name := task.get_name()).endswith(f"/{spec.run_name}")
    ]
    assert sorted(minding) == [f"runtime/exit/{spec.run_name}", f"runtime/mind/{spec.run_name}"]
    await house.provider.kill(handle)
    await house.provider.wait_empty(handle)


@pytest.mark.trap("T50")
async def test_a_record_that_a_power_failure_emptied_is_no_record(house: ProcessHarness) -> None:
    """The kernel promises neither its bytes nor its size before it is synced."""
    for content in (b"", b"\0" * 300):
        spec = house.spec(*workloads.crashing(code=4))
        (pathlib.Path(spec.run_directory) / run_files.RECORD).write_bytes(content)
        assert (await house.provider.adopt(spec.run_directory)).kind is AdoptionKind.NEVER_STARTED


async def test_a_damaged_record_is_named(house: ProcessHarness) -> None:
    spec = house.spec("true")
    (pathlib.Path(spec.run_directory) / run_files.RECORD).write_bytes(b"corral-record 1\npid=1\n")
    with pytest.raises(CorralError) as caught:
        await house.provider.adopt(spec.run_directory)
    assert caught.value.code is Code.FORMAT_INVALID
