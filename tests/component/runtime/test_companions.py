"""Programs that stay beside a workload when something of ours is killed at the wrong moment."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import random
import shutil
import signal
from collections.abc import AsyncIterator

import pytest

from corral.errors import Code, CorralError
from corral.runtimes.keeper import companion_files
from corral.runtimes.keeper.proc_facts import start_time
from corral.runtimes.process.companions import MOST_KNOWN
from corral.sdk.runtime import RunExit, RunHandle, SideRun
from corral.testing import workloads
from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import is_running
from corral.testing.runtime_nodes import ProcessHarness, keeper_pid
from corral.testing.waiting import eventually
from corral.testing.workloads import shell

WITH_CHILD = shell("setsid sleep 3600 & echo $! >> children; echo $$ >> leaders; wait")


@pytest.fixture(params=[pytest.param("none", marks=pytest.mark.system), "v2"])
async def house(
    request: pytest.FixtureRequest, scratch: pathlib.Path, reaper: Reaper
) -> AsyncIterator[ProcessHarness]:
    async with ProcessHarness(scratch / "node", cgroups=request.param) as house:
        yield house


def minder_of(handle: RunHandle, name: str = "side") -> int:
    record = companion_files.read_record(companion_files.place_of(handle.run_directory, name))
    assert record is not None
    return record.minder


async def pids_in(path: pathlib.Path, count: int = 1) -> list[int]:
    """What companions wrote there, once so many did."""

    def found() -> list[int]:
        pids = [int(line) for line in path.read_text().split()] if path.exists() else []
        return pids if len(pids) >= count else []

    return await eventually(found)


async def side_of(house: ProcessHarness, handle: RunHandle) -> SideRun:
    (side,) = await house.provider.list_beside(handle)
    return side


async def emptied(house: ProcessHarness, handle: RunHandle) -> RunExit:
    """How it ended, once nothing is left; what never comes to that fails by itself."""
    async with asyncio.timeout(60):
        return await house.provider.wait_empty(handle)


async def stop(house: ProcessHarness, handle: RunHandle) -> None:
    await house.provider.kill(handle)
    await emptied(house, handle)


@pytest.mark.trap("T18")
async def test_a_killed_minder_takes_all_of_its_companion_along_and_another_can_be_spawned(
    house: ProcessHarness,
) -> None:
    spec = house.spec(*workloads.silent())
    handle = await house.provider.start(spec)
    first = await house.provider.spawn_beside(handle, "side", WITH_CHILD, {})
    (child,) = await pids_in(pathlib.Path(spec.directory, "children"))
    os.kill(minder_of(handle), signal.SIGKILL)
    second = await eventually_another(house, handle, first.pid)
    assert not is_running(first.pid)
    assert not is_running(child)
    children = await pids_in(pathlib.Path(spec.directory, "children"), 2)
    assert is_running(handle.pid)
    await stop(house, handle)
    assert not any(is_running(pid) for pid in (second.pid, *children))


async def eventually_another(house: ProcessHarness, handle: RunHandle, earlier: int) -> SideRun:
    """The kernel may need a moment to make a dead minder known."""
    async with asyncio.timeout(60):
        while (side := await house.provider.spawn_beside(handle, "side", WITH_CHILD, {})).pid == earlier:
            await asyncio.sleep(0.01)
    return side


@pytest.mark.trap("T19")
@pytest.mark.parametrize(
    ("house", "without_shim"), [("none", False), ("none", True), ("v2", True)], indirect=["house"]
)
async def test_what_is_left_when_all_of_ours_is_killed_ends_with_the_run(
    house: ProcessHarness, without_shim: bool
) -> None:
    spec = house.spec(*workloads.reading_commands(code=9))
    handle = await house.provider.start(spec)
    side = await house.provider.spawn_beside(handle, "side", WITH_CHILD, {})
    (child,) = await pids_in(pathlib.Path(spec.directory, "children"))
    os.kill(keeper_pid(house.data), signal.SIGKILL)
    assert is_running(side.pid)  # which did not notice
    os.kill(minder_of(handle), signal.SIGKILL)
    if without_shim:
        os.kill(int(handle.state["shim"]), signal.SIGKILL)  # the watching daemon gets another minder
    await house.provider.send_command(handle, "stop")
    await eventually(lambda: not is_running(handle.pid))
    await eventually(lambda: not is_running(child))  # nobody has asked for it
    await house.next_provider()
    assert (await emptied(house, handle)).code == 9
    assert not is_running(side.pid)
    last = await side_of(house, handle)
    assert (last.running, last.exit is not None and last.exit.known) == (False, False)


@pytest.mark.trap("T19")
@pytest.mark.parametrize("house", ["none"], indirect=True)
async def test_one_that_does_not_want_to_end_delays_the_run_until_it_is_killed_and_changes_nothing(
    house: ProcessHarness,
) -> None:
    spec = house.spec(*workloads.reading_commands(code=9))
    handle = await house.provider.start(spec)
    stubborn = shell("trap '' TERM; echo $$ > leaders; while :; do sleep 0.05; done")
    side = await house.provider.spawn_beside(handle, "side", stubborn, {})
    await pids_in(pathlib.Path(spec.directory, "leaders"))
    minder = minder_of(handle)
    os.kill(keeper_pid(house.data), signal.SIGKILL)
    os.kill(minder, signal.SIGSTOP)  # its grace ends when the test says so
    await house.provider.send_command(handle, "stop")
    assert (await house.provider.wait_exit(handle)).code == 9
    emptying = asyncio.create_task(emptied(house, handle))
    assert is_running(side.pid)
    os.kill(minder, signal.SIGCONT)
    assert (await emptying).code == 9
    assert not is_running(side.pid)
    last = await side_of(house, handle)
    assert last.exit is not None
    assert last.exit.signal == signal.SIGKILL


@pytest.mark.parametrize("house", ["none"], indirect=True)
async def test_spawns_while_keepers_are_killed_leave_one(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.silent())
    handle = await house.provider.start(spec)

    async def spawn() -> int:
        while True:
            try:
                return (await house.provider.spawn_beside(handle, "side", WITH_CHILD, {})).pid
            except CorralError as error:
                assert error.code is Code.SPAWN_FAILED  # noqa: PT017 - the keeper was killed over it

    for _ in range(5):
        spawning = [asyncio.create_task(spawn(), name=f"test/spawn/{n}") for n in range(3)]
        await asyncio.sleep(0)
        os.kill(keeper_pid(house.data), signal.SIGKILL)
        pids = set(await asyncio.gather(*spawning))
        assert len(pids) == 1
        leaders = await pids_in(pathlib.Path(spec.directory, "leaders"))
        assert {pid for pid in leaders if is_running(pid)} <= pids
        await house.provider.stop_beside(handle, "side", grace=10)
    await stop(house, handle)
    leaders = await pids_in(pathlib.Path(spec.directory, "leaders"))
    assert not any(is_running(pid) for pid in leaders)


@pytest.mark.parametrize("house", ["none"], indirect=True)
async def test_spawns_whose_daemon_is_killed_over_them_leave_one(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.silent())
    handle = await house.provider.start(spec)
    chance = random.Random(7)
    for _ in range(8):
        spawning = asyncio.create_task(
            house.provider.spawn_beside(handle, "side", WITH_CHILD, {}), name="test/spawn"
        )
        await asyncio.sleep(chance.uniform(0, 0.01))  # whenever it comes
        spawning.cancel()
        await asyncio.gather(spawning, return_exceptions=True)
        await house.next_provider()
        side = await house.provider.spawn_beside(handle, "side", WITH_CHILD, {})
        leaders = await pids_in(pathlib.Path(spec.directory, "leaders"))
        assert {pid for pid in leaders if is_running(pid)} <= {side.pid}
        if chance.random() < 0.5:
            await house.provider.stop_beside(handle, "side", grace=10)
    await stop(house, handle)
    leaders = await pids_in(pathlib.Path(spec.directory, "leaders"))
    assert not any(is_running(pid) for pid in leaders)


@pytest.mark.trap("T18")
@pytest.mark.parametrize("house", ["none"], indirect=True)
async def test_a_pid_that_is_somebody_elses_by_now_is_neither_told_to_run_nor_stopped(
    house: ProcessHarness,
) -> None:
    handle = await house.provider.start(house.spec(*workloads.silent()))
    await house.provider.spawn_beside(handle, "side", shell("exec sleep 3600"), {})
    await house.provider.stop_beside(handle, "side", grace=10)
    place = pathlib.Path(companion_files.place_of(handle.run_directory, "side"))
    record = json.loads((place / "record").read_text())
    own = os.getpid()
    stranger = {"pid": own, "start": 1, "minder": own, "minder_start": (start_time(own) or 0) - 1}
    (place / "record").write_text(json.dumps({**record, **stranger}))
    (place / "exit").write_bytes(b"")
    assert not (await side_of(house, handle)).running
    stopped = await house.provider.stop_beside(handle, "side", grace=0)
    assert stopped is not None
    assert not stopped.running
    await stop(house, handle)


@pytest.mark.parametrize("house", ["none"], indirect=True)
async def test_a_run_has_at_most_eight_and_the_oldest_of_many_that_ended_make_room(
    house: ProcessHarness,
) -> None:
    handle = await house.provider.start(house.spec(*workloads.silent()))
    for n in range(8):
        await house.provider.spawn_beside(handle, f"side-{n}", shell("exec sleep 3600"), {})
    with pytest.raises(CorralError) as caught:
        await house.provider.spawn_beside(handle, "side-8", shell("true"), {})
    assert caught.value.code is Code.CONFLICT
    await house.provider.stop_beside(handle, "side-3", grace=10)
    await house.provider.spawn_beside(handle, "side-8", shell("exec sleep 3600"), {})
    assert len(await house.provider.list_beside(handle)) == 9
    ended = companion_files.place_of(handle.run_directory, "side-3")
    for n in range(9, MOST_KNOWN):
        shutil.copytree(ended, companion_files.place_of(handle.run_directory, f"side-{n}"))
    await house.provider.stop_beside(handle, "side-8", grace=10)
    await house.provider.spawn_beside(handle, "one-more", shell("exec sleep 3600"), {})
    names = {side.name for side in await house.provider.list_beside(handle)}
    assert len(names) == MOST_KNOWN
    assert names >= {"one-more", "side-8"}  # younger than those
    await stop(house, handle)
    assert not any(side.running for side in await house.provider.list_beside(handle))


@pytest.mark.parametrize("house", ["none"], indirect=True)
async def test_a_stop_beside_a_spawn_under_way_ends_what_comes_of_it(house: ProcessHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.silent()))
    for n in range(4):
        spawning = asyncio.create_task(
            house.provider.spawn_beside(handle, f"side-{n}", WITH_CHILD, {}), name="test/spawn"
        )
        lock = pathlib.Path(companion_files.place_of(handle.run_directory, f"side-{n}"), "lock")
        await eventually(lock.exists)
        async with asyncio.timeout(60):
            await house.provider.stop_beside(handle, f"side-{n}", grace=10)
        side = await spawning
        assert await house.provider.stop_beside(handle, f"side-{n}", grace=10) is not None
        assert not is_running(side.pid)
    await stop(house, handle)


@pytest.mark.trap("T19")
@pytest.mark.parametrize("house", ["none"], indirect=True)
async def test_stopped_minders_and_companions_do_not_keep_a_run(house: ProcessHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands(code=9)))
    side = await house.provider.spawn_beside(handle, "side", WITH_CHILD, {})
    other = await house.provider.spawn_beside(handle, "other", WITH_CHILD, {})
    os.kill(minder_of(handle), signal.SIGSTOP)
    os.kill(other.pid, signal.SIGSTOP)
    await house.provider.send_command(handle, "stop")
    assert (await emptied(house, handle)).code == 9
    assert not any(is_running(pid) for pid in (side.pid, other.pid))
    ended = {one.name: one.exit for one in await house.provider.list_beside(handle)}
    assert {name: end.signal for name, end in ended.items() if end} == dict.fromkeys(ended, signal.SIGTERM)


@pytest.mark.trap("T19")
@pytest.mark.parametrize("house", ["v2"], indirect=True)
async def test_what_a_lost_companion_hid_from_us_ends_with_the_group(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.reading_commands(code=9))
    handle = await house.provider.start(spec)
    hidden = shell("env -i setsid sleep 3600 & echo $! > children; wait")
    first = await house.provider.spawn_beside(handle, "side", hidden, {})
    (child,) = await pids_in(pathlib.Path(spec.directory, "children"))
    # Before its last exec it has the environment by which we know our processes.
    await eventually(lambda: pathlib.Path(f"/proc/{child}/comm").read_text() == "sleep\n")
    os.kill(minder_of(handle), signal.SIGKILL)
    await eventually_another(house, handle, first.pid)
    assert is_running(child)
    await house.provider.send_command(handle, "stop")
    assert (await emptied(house, handle)).code == 9
    assert not is_running(child)
