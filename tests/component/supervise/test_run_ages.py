"""The age of a run counts from the execution of its program, however long its process was kept ready before."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from supervised_node import SETTINGS, SupervisedNode

from corral.daemon.runs.run_times import RunTimes, process_started
from corral.sdk.runtime import RunHandle
from corral.system.clock import SystemClock
from corral.testing import workloads
from corral.testing.stepped_clock import SteppedClock
from corral.testing.waiting import eventually

ALIVE_MS = 500


@pytest.fixture
async def node(tmp_path: pathlib.Path) -> AsyncIterator[SupervisedNode]:
    settings = msgspec.structs.replace(SETTINGS, spare_shims=1)
    node = await SupervisedNode(tmp_path / "node", settings=settings).open()
    yield node
    await node.clear()


async def old_spare(node: SupervisedNode) -> int:
    """The process that the next start uses, once it is older than a run has to be."""
    pool = node.runtime.runtime.shims
    (spare,) = await eventually(lambda: pool.spares)
    forked = process_started(spare.child)
    assert forked is not None
    await eventually(lambda: SystemClock().boottime() > forked + ALIVE_MS / 1000)
    return spare.child


@pytest.mark.control_groups
async def test_a_run_in_a_process_that_was_forked_ahead_is_as_old_as_its_program(node):
    pid = await old_spare(node)
    before, before_ms = SystemClock().boottime(), time.time_ns() // 1_000_000
    await node.start("one", workloads.reading_commands(), min_alive_ms=ALIVE_MS)
    run = node.run("one")
    assert run.pid == pid
    assert run.started_at_ms >= before_ms
    started = run.times.started_at
    assert int(before * 1000) <= int(started * 1000)  # a run says its start in milliseconds
    await eventually(lambda: run.readiness.ready)
    assert SystemClock().boottime() >= started + ALIVE_MS / 1000
    await node.reopen()
    assert node.run("one").times.started_at == started


def handle(started_at_ms: int, **fields: int) -> RunHandle:
    return RunHandle(
        runtime="process",
        run_name="one.1",
        run_directory="/",
        pid=os.getpid(),
        started_at_ms=started_at_ms,
        **fields,
    )


def test_a_start_that_is_told_by_the_wall_clock_alone_is_never_before_that_of_its_process():
    clock = SteppedClock()
    forked = process_started(os.getpid())
    assert forked is not None

    def started(by_wall_seconds: float) -> float:
        now_ms = int(clock.now().timestamp() * 1000)
        return RunTimes(clock).start(handle(now_ms - int(by_wall_seconds * 1000)), now_ms=now_ms)

    before = clock.boottime()
    assert started(0.0) >= before  # forked ahead
    assert started(1e6) == forked  # the clock was set forward since
    assert started(-1e6) == forked  # or back
    assert RunTimes(clock).start(handle(1, started_after_boot_ms=5000), now_ms=1) == 5.0
