"""What ended runs leave behind, and what must never be taken for it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import pathlib
import threading

import pytest
from supervised_node import FIRST, SupervisedNode, with_settings

from corral.errors import Retryable
from corral.sdk.runtime import RunLimits
from corral.system.clock import SystemClock
from corral.testing import workloads
from corral.testing.waiting import eventually


async def test_after_a_stop_the_working_directory_goes_and_the_console_stays(node):
    await node.start("one", workloads.reading_commands())
    await node.says("one", "up")
    directory = node.data / "running" / "one"
    assert directory.is_dir()
    await node.stop("one")
    run = await node.settled("one")
    assert not directory.exists()
    assert "up" in node.console("one")
    assert run.files.outcome() is not None


async def test_a_static_directory_stays(node):
    await node.start("one", workloads.shell("echo world > level.dat; echo up; read x"), static_instance=True)
    await node.says("one", "up")
    await node.stop("one")
    await node.settled("one")
    await node.supervision.housekeeping.tidy()
    await node.start(
        "one", workloads.shell("cat level.dat; exec sleep 3600"), static_instance=True, incarnation=2048
    )
    await node.says("one", "world")


async def test_after_a_crash_the_directory_is_kept_for_a_while(node):
    await node.start("kept", workloads.crashing(code=1), crash_keep_seconds=3600)
    await node.start("gone", workloads.crashing(code=1, after_seconds=0), crash_keep_seconds=1)
    await node.settled("kept")
    await node.settled("gone")

    async def tidied() -> bool:
        await node.supervision.housekeeping.tidy()
        return not (node.data / "running" / "gone").exists()

    assert (node.data / "running" / "kept").is_dir()
    await eventually(tidied)
    assert (node.data / "running" / "kept").is_dir()


@pytest.mark.trap("T34")
async def test_cleaning_up_after_a_crash_never_touches_the_run_that_has_the_id_now(node):
    await node.start("one", workloads.crashing(code=1), crash_keep_seconds=1)
    await node.settled("one")
    await node.start("one", workloads.shell("echo mine > mine; echo up; exec sleep 3600"), incarnation=2048)
    await node.says("one", "up")
    outcome = node.supervision.services.runs.files("one", FIRST).outcome()
    later = outcome.ended_at_ms / 1000 + 2
    await eventually(lambda: node.supervision.services.now_ms() / 1000 > later)
    await node.supervision.housekeeping.tidy()
    assert (node.data / "running" / "one" / "mine").read_text() == "mine\n"
    await node.reopen()
    await node.supervision.housekeeping.tidy()
    assert (node.data / "running" / "one" / "mine").read_text() == "mine\n"
    assert node.run("one").state == "RUNNING"


class SteppingClock(SystemClock):
    """Somebody sets the wall clock."""

    step = dt.timedelta()

    def now(self) -> dt.datetime:
        return super().now() + self.step


@pytest.mark.trap("T28")
async def test_a_clock_that_is_set_shortens_no_life_and_no_keeping(scratch):
    clock = SteppingClock()
    node = SupervisedNode(scratch / "node", clock=clock)
    await node.open()
    try:
        await node.start("crashed", workloads.crashing(code=1), crash_keep_seconds=3600)
        await node.settled("crashed")
        await node.start("young", workloads.silent(), max_lifetime_seconds=3600)
        await node.until("young", "RUNNING")
        clock.step = dt.timedelta(hours=2)
        await node.supervision.housekeeping.tidy()
        assert (node.data / "running" / "crashed").is_dir()
        assert node.run("young").state == "RUNNING"
        assert node.run("young").uptime_ms < 3_600_000
    finally:
        await node.clear()


async def test_what_is_forgotten_takes_its_working_directory_along(scratch):
    node = SupervisedNode(scratch / "node", settings=with_settings(keep_ended_bytes=1))
    await node.open()
    try:
        await node.start("gone", workloads.megabyte_then_exit(), crash_keep_seconds=3600)
        await node.start("kept", workloads.megabyte_then_exit(), static_instance=True)
        await node.settled("gone")
        await node.settled("kept")
        await node.reports()
        await node.supervision.housekeeping.tidy()
        assert node.supervision.supervisor.instances.find("gone") is None
        assert {path.name for path in (node.data / "static").iterdir()} == {"kept", ".seeds"}
    finally:
        await node.clear()


async def test_a_new_start_begins_in_an_empty_directory_and_a_restart_in_the_one_it_had(node):
    await node.start("one", workloads.shell("ls; touch left; exit 1"), attempts=1)
    run = await node.settled("one")
    assert run.order.incarnation == FIRST + 1
    assert node.console("one") == "left\n"
    await node.start("one", workloads.shell("ls; echo up; exec sleep 3600"), incarnation=2048)
    await node.says("one", "up")
    assert node.console("one") == "up\n"


async def test_ended_runs_are_bounded_by_what_they_take(scratch):
    node = SupervisedNode(scratch / "node", settings=with_settings(keep_ended_bytes=2 << 20))
    await node.open()
    try:
        for number in range(4):
            await node.start("one", workloads.megabyte_then_exit(), incarnation=FIRST + 1024 * number)
            await node.settled("one")
        await node.start("live", workloads.chatty(lines=50_000))
        await node.says("live", "line 50000")
        await node.reports()
        await node.supervision.housekeeping.tidy()
        left = sorted(int(path.name) for path in (node.data / "runs" / "one").iterdir())
        assert left == [FIRST + 1024 * 3]
        assert "line 1 " in node.console("live")
    finally:
        await node.clear()


async def test_runs_that_go_while_somebody_writes_into_them_go_as_a_whole(scratch):
    node = SupervisedNode(scratch / "node", settings=with_settings(keep_ended_bytes=1))
    await node.open()
    runs, over = (
        [node.supervision.services.runs.files(f"old-{n}", FIRST) for n in range(40)],
        threading.Event(),
    )

    def mark_all_the_time() -> None:
        while not over.is_set():
            for files in runs:
                files.write_pending_modules()

    try:
        for files in runs:
            files.console.mkdir(parents=True)
            for name in ("intent.json", "outcome.json", "order.json", "reported"):
                (files.directory / name).write_text("0\n")
        marking = asyncio.create_task(asyncio.to_thread(mark_all_the_time))
        await node.supervision.housekeeping.tidy()
        over.set()
        await marking
        assert [files.directory for files in runs if files.directory.exists()] == []
    finally:
        over.set()
        await node.clear()


async def test_an_end_that_was_not_told_is_not_cleaned_up(scratch):
    node = SupervisedNode(scratch / "node", settings=with_settings(keep_ended_bytes=1))
    await node.open()
    try:
        await node.start("one", workloads.megabyte_then_exit())
        run = await node.settled("one")
        await node.reports()
        (run.files.directory / "reported").unlink()
        await node.supervision.housekeeping.tidy()
        assert run.files.outcome() is not None
    finally:
        await node.clear()


@pytest.mark.trap("T73")
async def test_the_group_of_a_run_without_a_directory_is_left_alone_until_somebody_ends_it(node):
    cgroups = node.runtime.cgroups
    if cgroups.name == "none":
        pytest.skip("this machine has no control groups")
    process = os.posix_spawn("/bin/sleep", ["sleep", "3600"], {})
    # The node looks by itself, too: until the group is complete it must not be without a directory.
    directory = node.data / "runs" / "orphan" / "1024"
    directory.mkdir(parents=True)

    async def tidied() -> bool:
        with contextlib.suppress(Retryable):  # it is dead, and the kernel still has to let go of it
            await node.supervision.housekeeping.tidy()
        return "orphan.1024" not in cgroups.leftovers()

    try:
        files = await cgroups.create("orphan.1024", shim_pid=process, limits=RunLimits())
        for file in files:
            pathlib.Path(file).write_text(str(process))
        directory.rmdir()
        await node.supervision.housekeeping.tidy()
        (lost,) = node.supervision.supervisor.lost()
        assert (lost.instance_id, lost.incarnation, lost.pid) == ("orphan", 1024, process)
        assert os.waitpid(process, os.WNOHANG) == (0, 0), "nobody asked for its end"
        assert not (await node.stop("orphan", incarnation=2048)).accepted, "that is another run"
        assert (await node.stop("orphan", incarnation=1024)).accepted
        _, status = os.waitpid(process, 0)
        process = 0
        assert os.WTERMSIG(status) == 9
        await eventually(tidied)
        assert not node.supervision.supervisor.lost()
        assert (await node.last_status("orphan")).exit.known is False
    finally:
        if process:
            os.kill(process, 9)
            os.waitpid(process, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_the_bin_is_emptied_though_uids_cannot_be_written_down(scratch):
    """As on a full disk, where only the bin has room to give."""
    node = SupervisedNode(scratch / "node", settings=with_settings(development=False))
    scratch.chmod(0o711)
    await node.open()
    try:
        assert (await node.start("one", workloads.silent(), isolate="uid")).accepted
        await node.stop("one", force=True)
        await node.settled("one")
        bin = node.data / ".discarded"
        (bin / "more").mkdir()
        record = node.data / "uids.json"
        record.unlink()
        (record / "in the way").mkdir(parents=True)
        await node.supervision.housekeeping.tidy()
        assert list(bin.iterdir()) == []
    finally:
        await node.clear()
