"""The reaper against what it is for: instances that are made to outlive everything."""

from __future__ import annotations

import os
import pathlib
import signal

from corral.runtimes.cgroups.selection import owner_of
from corral.testing import workloads
from corral.testing.reaper import Reaper
from corral.testing.runtime_nodes import INCARNATION, start_detached
from corral.testing.survivors import node_mark
from corral.testing.waiting import eventually


async def test_keeper_shims_and_workloads_of_a_test_are_found_and_ended(
    tmp_path: pathlib.Path, reaper: Reaper
) -> None:
    handles = [
        await start_detached(tmp_path / "node", "deaf-1", workloads.ignoring_signals()),
        await start_detached(tmp_path / "node", "mute-1", workloads.closing_descriptors()),
        await start_detached(tmp_path / "node", "hidden-1", workloads.double_forking()),
    ]
    found = reaper.survivors()
    assert {handle.pid for handle in handles} <= {process.pid for process in found}
    assert any("keeper_main" in process.command for process in found)
    reaper.reap()
    assert reaper.survivors() == []


async def test_a_grandchild_is_found_when_all_that_minded_it_are_dead(
    tmp_path: pathlib.Path, reaper: Reaper
) -> None:
    data = tmp_path / "node"
    assert node_mark(data) == owner_of(str(data))
    run = await start_detached(data, "hidden-1", workloads.double_forking())
    console = data / "runs" / "hidden-1" / str(INCARNATION) / "console"
    said = await eventually(lambda: b"".join(log.read_bytes() for log in console.glob("*.log")))
    grandchild = int(said.split()[1])
    for process in reaper.survivors():
        if process.pid not in (run.pid, grandchild):
            os.kill(process.pid, signal.SIGKILL)
    os.kill(run.pid, signal.SIGKILL)
    await eventually(lambda: [process.pid for process in reaper.survivors()] == [grandchild])
    reaper.reap()
    assert reaper.survivors() == []


async def test_instances_that_a_test_leaves_running_end_with_it(
    tmp_path: pathlib.Path, reaper: Reaper
) -> None:
    await start_detached(tmp_path / "node", "left-1", workloads.chatty(per_second=50))
    assert reaper.survivors()
