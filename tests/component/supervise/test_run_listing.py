"""Which runs of an instance its node names when it is asked."""

from __future__ import annotations

from typing import Any

from supervised_node import FIRST

from corral.daemon.orders.instance_orders import list_runs
from corral.daemon.runs.run_files import RunDirectories
from corral.testing import workloads
from corral.wire.v1.instance_pb2 import ConsoleQuery, ConsoleQueryResult, RestartPolicy


def asked(node, **fields: Any) -> ConsoleQueryResult:
    return list_runs(RunDirectories(node.data), ConsoleQuery(instance_id="one", runs=True, **fields))


async def test_every_run_that_is_kept_is_named_with_its_end_and_its_console(node):
    policy = RestartPolicy(attempts=2, interval_ms=300_000, delay_ms=10, max_delay_ms=20)
    await node.start("one", workloads.crashing(code=3, says="it broke"), restart_policy=policy)
    await node.until("one", "CRASHED", incarnation=FIRST + 2)
    await node.settled("one")
    found = asked(node)
    assert ([run.incarnation for run in found.runs], found.more_runs) == (
        [FIRST, FIRST + 1, FIRST + 2],
        False,
    )
    for run in found.runs:
        assert (run.exit.known, run.exit.code, run.crashed) == (True, 3, True)
        assert 0 < run.accepted_at_ms <= run.started_at_ms <= run.ended_at_ms
        assert (run.first_offset, run.end_offset) == (0, len("it broke\n"))
    between = asked(node, after_run=FIRST, before_run=FIRST + 2)
    assert [run.incarnation for run in between.runs] == [FIRST + 1]
    newest = asked(node, max_lines=1, newest=True)
    assert ([run.incarnation for run in newest.runs], newest.more_runs) == ([FIRST + 2], True)
    (node.data / "runs/one" / str(FIRST) / "outcome.json").write_bytes(b"{")
    assert [run.incarnation for run in asked(node).runs] == [FIRST, FIRST + 1, FIRST + 2]


async def test_only_names_of_instances_find_anything(node):
    await node.start("one", workloads.crashing(code=3))
    await node.settled("one")
    for id in ("", ".", "..", "../runs/one", "one/..", "one/../one", "a\0b", "nobody"):
        found = list_runs(RunDirectories(node.data), ConsoleQuery(instance_id=id, runs=True))
        assert not found.runs, id
