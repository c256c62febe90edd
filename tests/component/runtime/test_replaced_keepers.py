"""A killed keeper is replaced, and the new one is handed every run: whoever is killed later, nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import signal

import pytest

from corral.errors import Retryable
from corral.runtimes.console.log import ConsoleLog
from corral.runtimes.keeper import keeper_protocol, run_files
from corral.runtimes.keeper.run_files import try_lock
from corral.runtimes.process.keeper_client import KeeperClient
from corral.runtimes.process.provider import ProcessRuntime
from corral.runtimes.process.run_start import spawn_plan
from corral.sdk.runtime import RunExit, RunHandle
from corral.system.accounts import own_user
from corral.testing import workloads
from corral.testing.runtime_contract import console_bytes, console_match, is_running
from corral.testing.runtime_nodes import ProcessHarness, keeper_pid, open_files
from corral.testing.waiting import eventually

SIDE = """
import os, sys, time, tty
if os.isatty(1):
    tty.setraw(1)
side = os.open("side", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
number = 0
while not os.path.exists("enough"):
    number += 1
    line = b"%d %s\\n" % (number, b"x" * 80)
    os.write(1, line)
    os.write(side, line)
    if number % 20 == 0:
        time.sleep(0.005)
sys.exit(9)
"""
"""Each line that was taken from it is in its file `side`, too."""
MANY = 50


def work(house: ProcessHarness, handle: RunHandle) -> pathlib.Path:
    return house.data / "running" / handle.run_name.partition(".")[0]


def written(house: ProcessHarness, handle: RunHandle) -> int:
    with contextlib.suppress(FileNotFoundError):
        return (work(house, handle) / "side").stat().st_size
    return 0


def kill_shim(handle: RunHandle) -> int:
    """Whoever minds the run now; its pid."""
    record = run_files.read_record(handle.run_directory)
    assert record is not None
    os.kill(record.shim, signal.SIGKILL)
    return record.shim


def kill_keeper(house: ProcessHarness) -> int:
    pid = keeper_pid(house.data)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return pid


def holds(pid: int, handle: RunHandle, *, terminal: bool = False) -> bool:
    """Whether this process has the console of the run open, and a terminal."""
    found = open_files(pid)
    return f"{handle.run_directory}/out" in found and (not terminal or "/dev/ptmx" in found)


async def handed_over(house: ProcessHarness, dead: int, *handles: RunHandle, terminal: bool = False) -> int:
    """Another keeper is there, and holds these runs; its pid."""

    def found() -> int:
        pid = keeper_pid(house.data)
        held = pid != dead and all(holds(pid, handle, terminal=terminal) for handle in handles)
        return pid if held else 0

    return await eventually(found)


async def rescued(handle: RunHandle, dead: int) -> None:
    """Until another one minds it."""

    def minded() -> bool:
        record = run_files.read_record(handle.run_directory)
        return record is not None and record.rescued and record.shim != dead

    await eventually(minded)


async def ended_alone(house: ProcessHarness, handle: RunHandle) -> RunExit:
    """It goes on for a while, and ends, while no daemon is there; how, as the next one learns."""
    before = written(house, handle)
    await eventually(lambda: written(house, handle) > before + 400_000)
    (work(house, handle) / "enough").touch()
    await eventually(lambda: run_files.is_empty(handle.run_directory))
    ended = (await (await house.next_provider()).adopt(handle.run_directory)).exit
    assert ended is not None
    return ended


@pytest.mark.trap("T68")
@pytest.mark.parametrize(("tty", "daemon"), [(False, "returns"), (True, "stays")])
async def test_keeper_killed_and_later_daemon_and_shim(house: ProcessHarness, tty: bool, daemon: str) -> None:
    """The daemon sees the keeper die, or finds it dead when it starts, together with what lives."""
    handle = await house.provider.start(house.spec(*workloads.python(SIDE), tty=tty))
    await eventually(lambda: written(house, handle) > 10_000)
    if daemon == "returns":
        await house.provider.close()
    dead = kill_keeper(house)
    if daemon == "returns":
        await eventually(lambda: not is_running(dead))
        assert (await (await house.next_provider()).adopt(handle.run_directory)).handle is not None
    await handed_over(house, dead, handle, terminal=tty)
    await house.provider.close()
    await rescued(handle, kill_shim(handle))
    ended = await ended_alone(house, handle)
    assert (ended.known, ended.code) == (True, 9)
    assert console_bytes(handle.run_directory) == (work(house, handle) / "side").read_bytes()


@pytest.mark.trap("T68")
async def test_its_rescue_is_replaced_and_its_keeper_again_and_again(house: ProcessHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.python(SIDE)))
    await eventually(lambda: written(house, handle) > 10_000)
    for _ in range(3):
        await handed_over(house, kill_keeper(house), handle)
        await house.provider.close()
        for _ in range(2):
            await rescued(handle, kill_shim(handle))
        assert (await (await house.next_provider()).adopt(handle.run_directory)).handle is not None
    await house.provider.close()
    ended = await ended_alone(house, handle)
    assert (ended.known, ended.code) == (True, 9)
    assert console_bytes(handle.run_directory) == (work(house, handle) / "side").read_bytes()


@pytest.mark.trap("T68")
async def test_main_process_and_shim_end_at_once_and_no_daemon_is_there(house: ProcessHarness) -> None:
    """The keeper held a pidfd of the main process before: the kernel tells it how that ended."""
    handles = [await house.provider.start(house.spec(*workloads.not_reading())) for _ in range(3)]
    for handle in handles:
        await console_match(handle, b"up\n")
    await handed_over(house, kill_keeper(house), *handles)
    await house.provider.close()
    for handle in handles:
        shim = int(handle.state["shim"])
        os.kill(shim, signal.SIGSTOP)
        os.kill(handle.pid, signal.SIGUSR1)
        os.kill(shim, signal.SIGKILL)
    for handle in handles:
        await eventually(lambda directory=handle.run_directory: run_files.is_empty(directory))
    provider = await house.next_provider()
    for handle in handles:
        ended = (await provider.adopt(handle.run_directory)).exit
        assert ended is not None
        assert (ended.known, ended.signal) == (True, signal.SIGUSR1)


@pytest.mark.parametrize("moment", ["at once", "later"])
async def test_the_terminal_of_a_run_outlives_keeper_and_shim_together(
    house: ProcessHarness, moment: str
) -> None:
    """The daemon has a copy of it, from the moment in which it knows of the run."""
    handle = await house.provider.start(house.spec(*workloads.python(SIDE), tty=True))
    if moment == "later":
        await eventually(lambda: written(house, handle) > 10_000)
    kill_keeper(house)
    await rescued(handle, kill_shim(handle))
    (work(house, handle) / "enough").touch()
    ended = await house.provider.wait_empty(handle)
    assert (ended.known, ended.code) == (True, 9)
    assert console_bytes(handle.run_directory) == (work(house, handle) / "side").read_bytes()


async def test_a_terminal_that_nobody_held_is_told_as_a_gap(house: ProcessHarness) -> None:
    """Its workload lives on without it, and what was in it is gone."""
    ignoring = workloads.shell("trap '' HUP; echo up; while sleep 0.1; do :; done")
    handle = await house.provider.start(house.spec(*ignoring, tty=True))
    await console_match(handle, b"up\r\n")
    await house.provider.close()
    dead = kill_keeper(house)
    shim = kill_shim(handle)
    await eventually(lambda: not is_running(dead) and not is_running(shim))
    assert (await (await house.next_provider()).adopt(handle.run_directory)).handle is not None
    await rescued(handle, shim)
    await rescued(handle, kill_shim(handle))
    await house.provider.kill(handle)
    await house.provider.wait_empty(handle)
    with ConsoleLog(f"{handle.run_directory}/console") as log:
        gaps = log.gaps(0, log.end_offset)
        assert (log.end_offset, [gap.reason for gap in gaps]) == (5, ["unknown"])


async def test_keepers_die_while_runs_start_and_end(house: ProcessHarness) -> None:
    chance = random.Random(68)

    async def started(code: int) -> RunHandle:
        """Also when keepers die faster than they can be asked: then nothing was started."""
        while True:
            with contextlib.suppress(Retryable):
                return await house.provider.start(house.spec(*workloads.shell(f"echo {code}; exit {code}")))

    async def one(code: int) -> tuple[int, RunExit, bytes]:
        handle = await started(code)
        ended = await house.provider.wait_empty(handle)
        return code, ended, console_bytes(handle.run_directory)

    async def all_of(first: int) -> list[tuple[int, RunExit, bytes]]:
        return [await one(code) for code in range(first, first + 8)]

    work = [asyncio.create_task(all_of(first)) for first in (1, 11, 21, 31)]
    while not all(task.done() for task in work):
        kill_keeper(house)
        await asyncio.sleep(chance.random() * 0.3)
    for task in work:
        for code, ended, console in task.result():
            assert (ended.known, ended.code, console) == (True, code, b"%d\n" % code)


async def test_many_runs_are_handed_over_and_rescued_without_a_daemon(house: ProcessHarness) -> None:
    handles = [await house.provider.start(house.spec(*workloads.silent())) for _ in range(MANY)]
    await handed_over(house, kill_keeper(house), *handles)
    await house.provider.close()
    shims = [kill_shim(handle) for handle in handles]
    for handle, shim in zip(handles, shims, strict=True):
        await rescued(handle, shim)
        os.kill(handle.pid, signal.SIGKILL)
    for handle in handles:
        await eventually(lambda directory=handle.run_directory: run_files.is_empty(directory))


async def test_a_keeper_that_was_handed_runs_ends_after_them(house: ProcessHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.silent()))
    keeper = await handed_over(house, kill_keeper(house), handle)
    assert not await house.provider.end_keeper()
    await house.provider.kill(handle)
    await house.provider.wait_empty(handle)
    await eventually(lambda: not holds(keeper, handle))
    await eventually(house.provider.end_keeper)
    await eventually(lambda: not is_running(keeper))


@pytest.mark.trap("T60")
async def test_runs_of_a_keeper_of_the_former_protocol_are_held_by_the_new_one(house: ProcessHarness) -> None:
    """Which is killed: it could not be handed anything."""

    async def unplaced(pid: int) -> None:
        return None

    client = KeeperClient(house.data / "keeper", place=unplaced, protocol=keeper_protocol.PROTOCOL - 1)
    older = await client.ensure()
    spec = house.spec(*workloads.python(SIDE))
    lock = try_lock(spec.run_directory)
    assert lock is not None
    plan = spawn_plan(spec, user=own_user(), marks={}, segment_bytes=1 << 20)
    dialogue, _ = await client.ask(plan, lock=lock)
    os.close(lock)
    async with dialogue:
        await dialogue.send({"go": True, "cgroup_files": []})
        await dialogue.receive()
    provider: ProcessRuntime = await house.next_provider()
    handle = (await provider.adopt(spec.run_directory)).handle
    assert handle is not None
    await eventually(lambda: holds(keeper_pid(house.data), handle))
    os.kill(older.pid, signal.SIGKILL)
    await provider.close()
    await rescued(handle, kill_shim(handle))
    (work(house, handle) / "enough").touch()
    await eventually(lambda: run_files.is_empty(handle.run_directory))
    ended = (await (await house.next_provider()).adopt(handle.run_directory)).exit
    assert ended is not None
    assert (ended.known, ended.code) == (True, 9)
    assert console_bytes(handle.run_directory) == (work(house, handle) / "side").read_bytes()
