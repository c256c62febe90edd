"""Whatever minds a run is killed, at random and under load: the run does not notice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import signal
import time
from collections.abc import AsyncIterator

import pytest

from corral.runtimes.console.log import ConsoleGap, ConsoleLog
from corral.runtimes.keeper import run_files
from corral.runtimes.keeper.proc_facts import open_process
from corral.sdk.runtime import RunHandle
from corral.testing import workloads
from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import console_bytes, console_match, is_running
from corral.testing.runtime_nodes import ProcessHarness, keeper_pid
from corral.testing.waiting import eventually
from corral.testing.workloads import read_numbered

FAST_LINES = 250_000
SLOW_LINES = 9_000


@pytest.fixture(params=["none", "v2"])
async def house(
    request: pytest.FixtureRequest, scratch: pathlib.Path, reaper: Reaper
) -> AsyncIterator[ProcessHarness]:
    async with ProcessHarness(scratch / "node", cgroups=request.param) as house:
        yield house


def kill_minder(handle: RunHandle) -> bool:
    """Whoever minds the run now; by a pidfd, for it may be dying already."""
    record = run_files.read_record(handle.run_directory)
    assert record is not None
    pidfd = open_process(record.shim, record.shim_start)
    if pidfd is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)
    return True


def kill_keeper(house: ProcessHarness) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(keeper_pid(house.data), signal.SIGKILL)


def gaps(handle: RunHandle) -> list[ConsoleGap]:
    with ConsoleLog(f"{handle.run_directory}/console") as log:
        return log.gaps(0, log.end_offset)


async def ended_run(house: ProcessHarness, handle: RunHandle) -> None:
    await house.provider.kill(handle)
    await house.provider.wait_empty(handle)


@pytest.mark.system
@pytest.mark.trap("T46")
@pytest.mark.parametrize("seed", range(2))
async def test_no_byte_is_lost_or_doubled_and_every_exit_is_known(house: ProcessHarness, seed: int) -> None:
    chance = random.Random(seed)
    fast = workloads.chatty(lines=FAST_LINES, padding=120, then="exit 5")
    slow = workloads.chatty(lines=SLOW_LINES, per_second=3000, then="exit 5")
    handles = [await house.provider.start(house.spec(*argv)) for argv in (fast, slow, fast, slow)]
    ends = [asyncio.create_task(house.provider.wait_empty(handle)) for handle in handles]
    killed = keepers = 0
    deadline = time.monotonic() + 60
    while not all(end.done() for end in ends):
        assert time.monotonic() < deadline, [run_files.read_record(h.run_directory).text() for h in handles]
        killed += kill_minder(chance.choice(handles))
        if chance.random() < 0.01:
            kill_keeper(house)
            keepers += 1
        await asyncio.sleep(chance.random() * 0.004)
    assert killed > 20
    assert keepers > 0
    for handle, end, last in zip(handles, ends, (FAST_LINES, SLOW_LINES) * 2, strict=True):
        assert (end.result().known, end.result().code) == (True, 5)
        read_numbered(console_bytes(handle.run_directory)).check(last=last)
        assert gaps(handle) == []


@pytest.mark.trap("T46")
async def test_last_words_between_the_death_of_the_shim_and_its_successor(house: ProcessHarness) -> None:
    """The workload writes and ends while nobody reads: the bytes wait in a FIFO that others hold."""
    script = workloads.shell('echo up; read x; head -c 30000 /dev/zero | tr "\\0" z; exit 8')
    handles = [await house.provider.start(house.spec(*script)) for _ in range(5)]
    for handle in handles:
        await console_match(handle, b"up\n")
        os.kill(int(handle.state["shim"]), signal.SIGKILL)
        await house.provider.send_command(handle, "go")
    for handle in handles:
        ended = await house.provider.wait_empty(handle)
        assert (ended.known, ended.code) == (True, 8)
        assert console_bytes(handle.run_directory) == b"up\n" + b"z" * 30_000


async def test_the_keeper_replaces_a_shim_without_a_daemon(house: ProcessHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands(code=6)))
    await console_match(handle, b"up\n")
    await house.provider.close()  # from now on no daemon watches
    os.kill(int(handle.state["shim"]), signal.SIGKILL)
    await eventually(lambda: run_files.read_record(handle.run_directory).shim != handle.state["shim"])
    await house.provider.send_command(handle, "hello")
    await console_match(handle, b"got hello\n")
    await house.provider.send_command(handle, "stop")
    await eventually(lambda: run_files.is_empty(handle.run_directory))
    ended = (await house.provider.adopt(handle.run_directory)).exit
    assert ended is not None
    assert (ended.known, ended.code) == (True, 6)
    assert console_bytes(handle.run_directory) == b"up\ngot hello\nbye\n"


async def test_shim_and_keeper_die_while_no_daemon_is_there(house: ProcessHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands(code=6)))
    await console_match(handle, b"up\n")
    await house.provider.close()
    kill_keeper(house)
    os.kill(int(handle.state["shim"]), signal.SIGKILL)
    await eventually(lambda: not is_running(int(handle.state["shim"])))
    provider = await house.next_provider()
    adoption = await provider.adopt(handle.run_directory)
    assert adoption.handle is not None
    assert adoption.handle.pid == handle.pid
    await provider.send_command(adoption.handle, "hello")
    await provider.send_command(adoption.handle, "stop")
    ended = await provider.wait_empty(adoption.handle)
    assert (ended.known, ended.code) == (True, 6)
    assert console_bytes(handle.run_directory) == b"up\ngot hello\nbye\n"
    assert gaps(handle) == []


@pytest.mark.system
@pytest.mark.trap("T69")
@pytest.mark.parametrize("tty", [False, True], ids=["fifo", "terminal"])
async def test_everything_died_and_nobody_saw_the_end(house: ProcessHarness, tty: bool) -> None:
    """What it wrote last was in a FIFO that nobody held, or in a terminal that hung up: the console says so."""
    script = workloads.shell('stty -onlcr; echo up; read x; head -c 30000 /dev/zero | tr "\\0" z; exit 8')
    handle = await house.provider.start(house.spec(*script, tty=tty))
    await console_match(handle, b"up\n")
    await house.provider.close()
    keeper = keeper_pid(house.data)
    for pid in (keeper, int(handle.state["shim"])):
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_running(keeper) and not is_running(int(handle.state["shim"])))
    if not tty:
        await house.provider.send_command(handle, "go")
    await eventually(lambda: not is_running(handle.pid))
    stored = len(console_bytes(handle.run_directory))
    for _ in range(2):
        provider = await house.next_provider()
        adoption = await provider.adopt(handle.run_directory)
        assert adoption.handle is not None
        ended = await provider.wait_empty(adoption.handle)
        assert (ended.known, ended.seen) == (False, False)
        assert "killed" in ended.reason
        assert gaps(handle) == [ConsoleGap(stored, stored + 1, "unknown")]
        await provider.close()


@pytest.mark.trap("T69")
async def test_the_host_went_down_under_it(house: ProcessHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.not_reading()))
    await console_match(handle, b"up\n")
    await ended_run(house, handle)
    await house.provider.close()
    kill_keeper(house)
    await eventually(lambda: not is_running(int(handle.state["shim"])))
    record = run_files.read_record(handle.run_directory)
    assert record is not None
    record.boot = "another one"
    run_files.write_record(handle.run_directory, record)
    run_files.remove(handle.run_directory, run_files.EMPTY, run_files.EXIT)
    for _ in range(2):
        ended = (await (await house.next_provider()).adopt(handle.run_directory)).exit
        assert ended is not None
        assert ended.host_rebooted
        assert gaps(handle) == [ConsoleGap(3, 4, "unknown")]


@pytest.mark.trap("T19")
async def test_a_grandchild_outlives_main_process_shim_and_keeper(house: ProcessHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.double_forking(stays=False)))
    grandchild = int((await console_match(handle, rb"grandchild (\d+)\n"))[1])
    await house.provider.wait_exit(handle)
    kill_keeper(house)
    kill_minder(handle)
    provider = await house.next_provider()
    adoption = await provider.adopt(handle.run_directory)
    assert adoption.handle is not None
    assert is_running(grandchild)
    await provider.kill(adoption.handle)
    assert (await provider.wait_empty(adoption.handle)).code == 0
    assert not is_running(grandchild)


async def test_a_new_keeper_is_started_when_one_is_needed(house: ProcessHarness) -> None:
    before = await house.provider.start(house.spec(*workloads.silent()))
    old = keeper_pid(house.data)
    kill_keeper(house)
    await eventually(lambda: not is_running(old))
    after = await house.provider.start(house.spec(*workloads.silent()))
    assert is_running(before.pid)
    for handle in (before, after):
        await ended_run(house, handle)
    assert keeper_pid(house.data) != old
