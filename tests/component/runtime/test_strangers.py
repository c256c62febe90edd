"""Records that speak of somebody else's processes: nobody is touched for that."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from corral.runtimes.keeper import exit_file, run_files
from corral.runtimes.keeper.proc_facts import boot_id, open_process, start_time
from corral.runtimes.keeper.run_files import RunRecord
from corral.sdk.runtime import AdoptionKind, RunSpec
from corral.testing.runtime_contract import console_match, is_running
from corral.testing.runtime_nodes import ProcessHarness
from corral.testing.waiting import eventually
from corral.testing.workloads import python


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "3600"])
    yield process
    process.kill()
    process.wait()


def record(spec: RunSpec, *, pid: int, start: int, boot: str, shim: int | None = None) -> None:
    """As a shim would have written it that is long gone."""
    exit_file.allocate_exit(spec.run_directory)
    run_files.write_record(
        spec.run_directory,
        RunRecord(
            run=spec.run_name,
            pid=pid,
            start=start,
            shim=pid if shim is None else shim,
            shim_start=start,
            boot=boot,
            started_ns=1,
            segment_bytes=1 << 20,
            quota_bytes=1 << 24,
        ),
    )


@pytest.mark.system
@pytest.mark.trap("T18")
async def test_a_pid_that_was_reused_is_never_signalled(
    house: ProcessHarness, stranger: subprocess.Popen[bytes]
) -> None:
    spec = house.spec("true")
    earlier = (start_time(stranger.pid) or 0) - 1
    record(spec, pid=stranger.pid, start=earlier, boot=boot_id())
    adoption = await house.provider.adopt(spec.run_directory)
    assert adoption.handle is not None
    await house.provider.signal(adoption.handle, signal.SIGTERM)
    await house.provider.kill(adoption.handle)
    ended = await house.provider.wait_empty(adoption.handle)
    assert not ended.known
    await house.provider.kill(adoption.handle)
    assert stranger.poll() is None


@pytest.mark.system
@pytest.mark.trap("T18")
@pytest.mark.parametrize("reused", ["work", "shim"])
async def test_neither_a_stranger_nor_its_children_are_taken_for_the_workload(
    house: ProcessHarness, reused: str
) -> None:
    """The pid of a shim or of a workload that is long gone belongs to somebody else, who has a child."""
    with subprocess.Popen(["sh", "-c", "sleep 3600 & echo $!; wait"], stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None
        child = int(stranger.stdout.readline())
        gone = subprocess.Popen(["true"])
        gone.wait()
        pids = {"pid": stranger.pid, "shim": gone.pid}
        if reused == "shim":
            pids = {"pid": gone.pid, "shim": stranger.pid}
        spec = house.spec("true")
        record(spec, **pids, start=(start_time(stranger.pid) or 0) - 1, boot=boot_id())
        adoption = await house.provider.adopt(spec.run_directory)
        assert adoption.handle is not None
        await house.provider.signal(adoption.handle, signal.SIGTERM)
        await house.provider.kill(adoption.handle)
        assert not (await house.provider.wait_empty(adoption.handle)).known
        assert stranger.poll() is None
        assert is_running(child)
        os.kill(child, signal.SIGKILL)


@pytest.mark.trap("T18")
async def test_a_process_whose_first_thread_has_ended_lives(house: ProcessHarness) -> None:
    """It looks like a zombie in the process table, and its other threads run."""
    program = (
        "import ctypes, threading; threading.Thread(target=input).start(); print('up', flush=True); "
        "ctypes.CDLL(None).syscall(60, 0)"
    )
    handle = await house.provider.start(house.spec(*python(program)))
    await console_match(handle, b"up\n")
    stat = pathlib.Path(f"/proc/{handle.pid}/stat")
    await eventually(lambda: stat.read_bytes().rpartition(b")")[2].split()[0] == b"Z")
    pidfd = open_process(handle.pid, int(handle.state["start"]))
    assert pidfd is not None
    os.close(pidfd)
    await house.provider.kill(handle)
    assert (await house.provider.wait_empty(handle)).signal == signal.SIGKILL


@pytest.mark.trap("T18")
async def test_a_record_of_another_boot_means_that_the_host_was_restarted(
    house: ProcessHarness, stranger: subprocess.Popen[bytes]
) -> None:
    spec = house.spec("true")
    record(spec, pid=stranger.pid, start=start_time(stranger.pid) or 0, boot="another-boot")
    adoption = await house.provider.adopt(spec.run_directory)
    assert adoption.kind is AdoptionKind.ENDED
    assert adoption.exit is not None
    assert (adoption.exit.known, adoption.exit.host_rebooted) == (False, True)
    assert adoption.handle is not None
    await house.provider.kill(adoption.handle)
    await house.provider.signal(adoption.handle, signal.SIGTERM)
    assert stranger.poll() is None


async def test_an_exit_that_was_noted_before_the_host_went_down_is_kept(house: ProcessHarness) -> None:
    spec = house.spec("true")
    record(spec, pid=1, start=1, boot="another-boot")
    exit_file.write_exit(spec.run_directory, 3 << 8, at_ns=5_000_000, who="shim")
    adoption = await house.provider.adopt(spec.run_directory)
    assert adoption.exit is not None
    assert (adoption.exit.known, adoption.exit.code, adoption.exit.host_rebooted) == (True, 3, False)


@pytest.mark.system
@pytest.mark.trap("T18")
async def test_a_zombie_is_dead(house: ProcessHarness) -> None:
    spec = house.spec("true")
    zombie = subprocess.Popen(["sleep", "3600"])
    start = start_time(zombie.pid) or 0
    zombie.kill()
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    try:
        record(spec, pid=zombie.pid, start=start, boot=boot_id())
        adoption = await house.provider.adopt(spec.run_directory)
        assert adoption.handle is not None
        assert not (await house.provider.wait_empty(adoption.handle)).known
        assert pathlib.Path(f"/proc/{zombie.pid}").exists()
    finally:
        zombie.wait()
