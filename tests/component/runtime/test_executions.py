"""Programs beside a workload when something of ours is killed, and under another user."""

from __future__ import annotations

import asyncio
import os
import pathlib
import pwd
import signal
from collections.abc import AsyncIterator

import pytest

from corral.errors import Code, CorralError
from corral.runtimes.keeper.proc_facts import parents
from corral.runtimes.process.workload_context import MARK, runtime_of
from corral.sdk.runtime import Execution, RunHandle
from corral.testing import workloads
from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import console_match, is_running
from corral.testing.runtime_nodes import ProcessHarness, keeper_pid
from corral.testing.waiting import eventually
from corral.testing.workloads import shell


@pytest.fixture(params=[pytest.param("none", marks=pytest.mark.system), "v2"])
async def house(
    request: pytest.FixtureRequest, scratch: pathlib.Path, reaper: Reaper
) -> AsyncIterator[ProcessHarness]:
    for directory in (scratch, scratch / "node", scratch / "node" / "running"):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o711)
    async with ProcessHarness(scratch / "node", cgroups=request.param) as house:
        yield house


LONG = shell("echo $$ > pid; sleep 1; echo done; exit 3")
FOREVER = shell("echo $$ > pid; while :; do sleep 0.1; done")


def executing(house: ProcessHarness, handle: RunHandle, *command: str) -> asyncio.Task[Execution]:
    return asyncio.create_task(house.provider.execute(handle, command, timeout=60), name="test/execute")


async def pid_of(directory: str) -> int:
    path = pathlib.Path(directory, "pid")
    return await eventually(lambda: int(path.read_text() or 0) if path.exists() else 0)


def parent_of(pid: int) -> int:
    return next(parent for child, parent, _ in parents() if child == pid)


async def ended(house: ProcessHarness, handle: RunHandle) -> None:
    await house.provider.kill(handle)
    assert (await house.provider.wait_empty(handle)).signal == signal.SIGKILL


async def test_the_death_of_the_keeper_does_not_concern_it(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.silent())
    handle = await house.provider.start(spec)
    execution = executing(house, handle, *LONG)
    await pid_of(spec.directory)
    os.kill(keeper_pid(house.data), signal.SIGKILL)
    done = await execution
    assert (done.code, done.output) == (3, "done\n")
    await ended(house, handle)


async def test_the_death_of_its_aide_ends_it_and_is_said(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.silent())
    handle = await house.provider.start(spec)
    execution = executing(house, handle, *FOREVER)
    pid = await pid_of(spec.directory)
    os.kill(parent_of(pid), signal.SIGKILL)
    with pytest.raises(CorralError) as caught:
        await execution
    assert caught.value.code is Code.SPAWN_FAILED
    await eventually(lambda: not is_running(pid))
    assert is_running(handle.pid)
    await ended(house, handle)


@pytest.mark.trap("T19")
async def test_what_a_killed_aide_could_not_end_is_gone_when_the_run_is(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.reading_commands(code=3))
    handle = await house.provider.start(spec)
    execution = executing(house, handle, *shell("setsid sh -c 'echo $$ > pid; exec sleep 3600' & sleep 3600"))
    pid = await pid_of(spec.directory)
    os.kill(parent_of(parent_of(pid)), signal.SIGKILL)
    with pytest.raises(CorralError):
        await execution
    assert is_running(pid)
    await house.provider.send_command(handle, "stop")
    assert (await house.provider.wait_empty(handle)).code == 3
    assert not is_running(pid)


async def test_the_death_of_the_shim_does_not_concern_it(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.silent())
    handle = await house.provider.start(spec)
    execution = executing(house, handle, *LONG)
    await pid_of(spec.directory)
    os.kill(int(handle.state["shim"]), signal.SIGKILL)
    assert (await execution).code == 3
    assert (await house.provider.execute(handle, ("true",), timeout=20)).code == 0
    await ended(house, handle)


async def test_it_ends_with_the_daemon_that_waits_for_it(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.silent())
    handle = await house.provider.start(spec)
    execution = executing(house, handle, *FOREVER)
    pid = await pid_of(spec.directory)
    execution.cancel()  # the kernel hangs up for a daemon that is killed
    await asyncio.gather(execution, return_exceptions=True)
    await eventually(lambda: not is_running(pid))
    await ended(house, handle)


async def test_a_run_of_an_older_corral_has_no_mark(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.silent(), environment={"PATH": "/usr/bin:/bin", "OWN": "value"})
    handle = await house.provider.start(spec)
    pathlib.Path(spec.run_directory, MARK).unlink()
    provider = await house.next_provider()
    assert runtime_of(spec.run_directory) == "process"
    adoption = await provider.adopt(spec.run_directory)
    assert adoption.handle == handle
    execution = await provider.execute(handle, ("sh", "-c", 'echo "$PWD $OWN"'), timeout=20)
    assert execution.output == f"{spec.directory} value\n"
    await ended(house, handle)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
async def test_it_runs_as_the_user_of_the_run(house: ProcessHarness) -> None:
    nobody = pwd.getpwnam("nobody")
    spec = house.spec(*workloads.silent(), run_as="nobody")
    os.chown(spec.directory, nobody.pw_uid, nobody.pw_gid)
    handle = await house.provider.start(spec)
    who = shell("id -u; id -g; echo again > /dev/stderr; kill -0 $PPID 2>/dev/null && echo may kill; exit 0")
    groups = shell("grep -E '^(Groups|CapEff|CapAmb)' /proc/self/status")
    for provider in (house.provider, await house.next_provider()):
        execution = await provider.execute(handle, who, timeout=20)
        assert execution == Execution(code=0, output=f"{nobody.pw_uid}\n{nobody.pw_gid}\nagain\n")
        status = pathlib.Path(f"/proc/{handle.pid}/status").read_text()
        for line in (await provider.execute(handle, groups, timeout=20)).output.splitlines():
            assert line in status
    await ended(house, handle)


async def test_beside_a_frozen_run_it_waits_and_can_time_out(house: ProcessHarness) -> None:
    if not house.provider.capabilities().freeze:
        pytest.skip("this node cannot freeze")
    handle = await house.provider.start(house.spec(*workloads.silent()))
    await house.provider.set_frozen(handle, True)
    with pytest.raises(CorralError) as caught:
        await house.provider.execute(handle, ("true",), timeout=0.5)
    assert caught.value.code is Code.TIMEOUT
    await house.provider.set_frozen(handle, False)
    assert (await house.provider.execute(handle, ("true",), timeout=20)).code == 0
    await ended(house, handle)


async def test_one_that_forks_without_end_is_ended(house: ProcessHarness) -> None:
    spec = house.spec(*workloads.silent())
    handle = await house.provider.start(spec)
    forking = shell("hop() { sleep 0.01; (hop &) ; exit; }; echo up; hop; ")
    with pytest.raises(CorralError) as caught:
        await house.provider.execute(handle, shell(f"({forking[2]}) & sleep 3600"), timeout=0.5)
    assert caught.value.code is Code.TIMEOUT
    stats = await house.provider.stats(handle)
    assert stats.processes == 1
    await ended(house, handle)


async def test_a_run_that_ends_in_the_middle_of_many(house: ProcessHarness) -> None:
    """Whenever the run ends: each program either was done or is said to have ended with it, and nothing is left."""
    for pause in (0.0, 0.01, 0.03):
        handle = await house.provider.start(house.spec(*workloads.reading_commands(code=7)))
        await console_match(handle, b"up\n")
        programs = [executing(house, handle, *shell("sleep 0.02; echo x")) for _ in range(8)]
        await asyncio.sleep(pause)
        await house.provider.send_command(handle, "stop")
        assert (await house.provider.wait_empty(handle)).code == 7
        for result in await asyncio.gather(*programs, return_exceptions=True):
            if isinstance(result, CorralError):
                assert result.code is Code.NOT_RUNNING
            else:
                assert result == Execution(code=0, output="x\n")
