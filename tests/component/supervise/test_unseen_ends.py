"""A run ended while nobody was left who minded it: what is told of it is what is known."""

from __future__ import annotations

import os
import signal

import pytest
from supervised_node import SupervisedNode

from corral.daemon.console.queries import answer_to
from corral.runtimes.console.log import ConsoleLog
from corral.runtimes.keeper import run_files
from corral.testing.runtime_contract import is_running
from corral.testing.runtime_nodes import keeper_pid
from corral.testing.waiting import eventually
from corral.testing.workloads import shell
from corral.wire.v1.instance_pb2 import ConsoleQuery

TICKING = shell("while :; do echo tick; sleep 0.05; done")
LIVED_MS = 400


def last_output_ms(console: os.PathLike[str]) -> int:
    with ConsoleLog(console) as log:
        times = log.times(0, log.end_offset)
    return times[-1].timestamp_ms if times else 0


@pytest.mark.system
@pytest.mark.trap("T69")
async def test_the_duration_is_a_lower_bound_and_the_console_ends_with_a_gap(node: SupervisedNode) -> None:
    await node.start("a-1", TICKING)
    run = node.run("a-1")
    started, console = run.started_at_ms, run.files.console
    await eventually(lambda: last_output_ms(console) - started >= LIVED_MS)
    record = run_files.read_record(str(run.files.directory))
    assert record is not None
    await node.close()
    for pid in (keeper_pid(node.data), record.shim, record.pid):
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_running(record.pid))
    certain = last_output_ms(console) - started
    await node.open()
    outcome = (await node.settled("a-1")).outcome
    assert outcome is not None
    assert outcome.outcome == "unknown"
    assert outcome.uptime_ms == certain
    assert f"after at least {certain / 1000:.1f} s" in outcome.summary
    answer = answer_to(ConsoleQuery(instance_id="a-1"), str(console))
    gap = answer.gaps[-1]
    assert (gap.to_offset, gap.to_offset - gap.from_offset, gap.reason) == (answer.end_offset, 1, "unknown")
    assert outcome.console_end == answer.end_offset
