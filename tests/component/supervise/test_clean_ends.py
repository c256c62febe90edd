"""Ends that are no crashes: what counts as one, what follows, and how soon."""

from __future__ import annotations

import pytest
from supervised_node import FIRST, SupervisedNode, base_plan

from corral.testing import workloads
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import InstanceState


async def first_reports(node: SupervisedNode, id: str) -> list:
    """The reports of runs that follow another without a crash."""
    found = [
        message.instance_status for message in await node.reports() if message.HasField("instance_status")
    ]
    return [each for each in found if each.instance_id == id and each.HasField("former_exit")]


@pytest.mark.trap("T88")
async def test_a_match_that_ends_is_no_crash_and_its_node_starts_the_next_one_in_its_turn(node):
    await node.begin("one", base_plan(workloads.crashing(code=0)))
    await eventually(lambda: node.run("one").order.incarnation == FIRST + 1)
    (told,) = await first_reports(node, "one")
    assert (told.former_exit.outcome, told.former_exit.code, told.former_exit.known) == ("ended", 0, True)
    assert told.state == InstanceState.INSTANCE_STATE_SCHEDULED
    assert "s, 5 s after its last start at the earliest: run" in told.reason
    run = node.run("one")
    assert 3.0 < run.intent.due - node.supervision.services.clock.boottime() <= 6.25
    assert run.intent.crashes == ()
    assert "crash:0" not in await node.told("one")
    await node.stop("one", force=True)
    await node.settled("one")


@pytest.mark.parametrize(
    ("code", "fields", "outcome"),
    [
        (0, {"min_alive_ms": 60_000}, ("CRASHED", "clean")),
        (3, {}, ("CRASHED", "crashed")),
        (3, {"clean_exit_codes": (3,)}, ("STOPPED", "ended")),
        (0, {}, ("STOPPED", "ended")),
    ],
)
async def test_an_end_is_clean_by_its_code_and_after_its_time(node, code, fields, outcome):
    plan = base_plan(workloads.crashing(code=code), restart_on="failure", **fields)
    await node.begin("one", plan)
    run = await node.settled("one")
    assert (run.state, run.outcome.outcome) == outcome
    assert run.order.incarnation == FIRST  # nothing follows: no attempts, and `failure` after a clean end


async def test_with_never_a_crash_is_not_restarted_either(node):
    plan = base_plan(workloads.crashing(code=7), restart_on="never", restart={"attempts": 5})
    await node.begin("one", plan)
    run = await node.settled("one")
    assert (run.state, run.order.incarnation) == ("CRASHED", FIRST)


async def test_one_that_is_too_old_is_stopped_in_order_and_begins_again(node):
    await node.begin("one", base_plan(workloads.reading_commands(), max_lifetime_seconds=1))
    await eventually(lambda: node.run("one").order.incarnation == FIRST + 1)
    (told,) = await first_reports(node, "one")
    assert (told.former_exit.outcome, told.former_exit.rung) == ("stopped", "command stop")
    assert "STOPPING:0" in await node.told("one")
    await node.stop("one")
    run = await node.settled("one")
    assert (run.state, run.order.incarnation) == ("STOPPED", FIRST + 1)


async def test_a_failed_start_has_no_exit_code(node):
    await node.begin("one", base_plan(["/does/not/exist"]))
    await node.settled("one")
    status = await node.last_status("one")
    assert (status.exit.known, status.exit.outcome) == (False, "start_failed")
