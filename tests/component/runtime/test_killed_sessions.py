"""Keeper, shims, windows and session servers are killed at random and under load: no run notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from corral.runtimes.keeper import run_files
from corral.runtimes.keeper.proc_facts import open_process, start_time
from corral.runtimes.sessions.multiplexer import session_name
from corral.runtimes.sessions.window_file import read_window
from corral.sdk.runtime import RunHandle
from corral.testing import workloads
from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import console_bytes, console_match, is_running
from corral.testing.runtime_nodes import MULTIPLEXERS, SessionHarness, keeper_pid
from corral.testing.waiting import eventually
from corral.testing.workloads import read_numbered

CLIENT = pathlib.Path(__file__).with_name("session_client.py")
FAST_LINES = 150_000
SLOW_LINES = 9_000


@pytest.fixture(params=[(name, kind) for name in MULTIPLEXERS for kind in ("none", "v2")], ids="-".join)
async def house(
    request: pytest.FixtureRequest, scratch: pathlib.Path, reaper: Reaper
) -> AsyncIterator[SessionHarness]:
    multiplexer, cgroups = request.param
    async with SessionHarness(scratch / "node", multiplexer=multiplexer, cgroups=cgroups) as house:
        yield house


def kill(pid: int, start: int) -> bool:
    """This very process, if it is there."""
    pidfd = open_process(pid, start)
    if pidfd is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)
    return True


def kill_shim(handle: RunHandle) -> bool:
    record = run_files.read_record(handle.run_directory)
    assert record is not None
    return kill(record.shim, record.shim_start)


def kill_window(handle: RunHandle) -> bool:
    window = read_window(handle.run_directory)
    return window is not None and kill(window.pid, window.start)


def kill_server(handle: RunHandle) -> bool:
    """Only while its window lives, so that the pid is surely the server's."""
    window = read_window(handle.run_directory)
    if window is None or start_time(window.pid) != window.start or not is_running(window.pid):
        return False
    return kill(window.parent, start_time(window.parent) or 0)


def kill_keeper(house: SessionHarness) -> bool:
    pid = keeper_pid(house.data)
    return kill(pid, start_time(pid) or 0)


@pytest.mark.system
@pytest.mark.trap("T46")
async def test_no_byte_is_lost_or_doubled_and_every_exit_is_known(house: SessionHarness) -> None:
    chance = random.Random(7)
    fast = workloads.chatty(lines=FAST_LINES, padding=120, then="exit 5")
    slow = workloads.chatty(lines=SLOW_LINES, per_second=3000, then="exit 5")
    handles = [await house.provider.start(house.spec(*argv)) for argv in (fast, slow, fast, slow)]
    ends = [asyncio.create_task(house.provider.wait_empty(handle)) for handle in handles]
    killed = {"shim": 0, "window": 0, "server": 0, "keeper": 0}
    deadline = time.monotonic() + 90
    while not all(end.done() for end in ends):
        assert time.monotonic() < deadline, (killed, [end.done() for end in ends])
        killed["shim"] += kill_shim(chance.choice(handles))
        if chance.random() < 0.05:
            killed["window"] += kill_window(chance.choice(handles))
        if chance.random() < 0.05:
            killed["server"] += kill_server(chance.choice(handles))
        if chance.random() < 0.02:
            killed["keeper"] += kill_keeper(house)
        await asyncio.sleep(chance.random() * 0.008)
    assert killed["shim"] > 20
    assert killed["keeper"] > 0
    for handle, end, last in zip(handles, ends, (FAST_LINES, SLOW_LINES) * 2, strict=True):
        assert (end.result().known, end.result().code) == (True, 5)
        read_numbered(console_bytes(handle.run_directory)).check(last=last)
    await eventually(lambda: house.sessions() == set(), state=house.sessions)


@pytest.mark.trap("T46")
async def test_everything_of_ours_dies_and_the_next_daemon_finds_the_run(house: SessionHarness) -> None:
    handle = await house.provider.start(house.spec(*workloads.reading_commands(code=6)))
    await console_match(handle, b"up\n")
    await eventually(lambda: read_window(handle.run_directory))
    await house.provider.close()
    assert kill_server(handle)
    assert kill_keeper(house)
    assert kill_shim(handle)
    provider = await house.next_provider()
    adoption = await provider.adopt(handle.run_directory)
    assert adoption.handle is not None
    assert adoption.handle.pid == handle.pid
    await provider.send_command(handle, "hello")
    await console_match(handle, b"got hello\n")
    await provider.send_command(handle, "stop")
    ended = await provider.wait_empty(handle)
    assert (ended.known, ended.code) == (True, 6)
    assert console_bytes(handle.run_directory) == b"up\ngot hello\nbye\n"
    assert house.sessions() == set()


@pytest.mark.system
@pytest.mark.parametrize("multiplexer", MULTIPLEXERS)
@pytest.mark.parametrize("seen", [True, False], ids=["with its window", "before its window"])
async def test_a_daemon_is_killed_and_the_next_one_finds_run_and_window(
    scratch: pathlib.Path, reaper: Reaper, multiplexer: str, seen: bool
) -> None:
    async with SessionHarness(scratch / "node", multiplexer=multiplexer) as house:
        spec = house.spec(*workloads.reading_commands(code=6))
        arguments = [str(CLIENT), str(house.data), multiplexer, msgspec.json.encode(spec).decode()]
        with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE) as daemon:
            assert daemon.stdout is not None
            assert await asyncio.to_thread(daemon.stdout.readline) == b"started\n"
            if seen:
                await eventually(lambda: read_window(spec.run_directory))
            daemon.kill()
            assert await asyncio.to_thread(daemon.wait) == -9
        before = read_window(spec.run_directory)
        provider = await house.next_provider()
        adoption = await provider.adopt(spec.run_directory)
        assert adoption.handle is not None
        window = await eventually(lambda: read_window(spec.run_directory))
        assert before is None or window.pid == before.pid
        await eventually(lambda: house.sessions() == {session_name(spec.run_name)}, state=house.sessions)
        await provider.send_command(adoption.handle, "stop")
        ended = await provider.wait_empty(adoption.handle)
        assert (ended.known, ended.code) == (True, 6)
        assert console_bytes(spec.run_directory) == b"up\nbye\n"
        await eventually(lambda: house.sessions() == set(), state=house.sessions)
