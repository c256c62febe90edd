"""Nothing hangs and nothing spins: pauses, removals, wiped nodes and deaths in between."""

from __future__ import annotations

import asyncio

import pytest
from pretend_node import S

from corral.controller.instances.start_identity import Incarnations
from corral.domain.ids import RESTARTS_PER_START
from corral.testing.waiting import eventually
from corral.wire.v1 import instance_pb2 as wire


async def test_a_paused_group_that_is_deleted_does_not_keep_the_reconciler_busy(fleet):
    await fleet.begin(reconcile__floor_seconds=30.0)
    node = await fleet.node("n1")
    await fleet.group(min=2, crash_loop={"failures": 1, "pause_seconds": 1})
    await fleet.running(2)
    await node.crash("lobby-1")
    await eventually(lambda: fleet.group_record().paused)
    await node.drop()
    await fleet.reaches("lobby-2", "OFFLINE")
    await fleet.controller.call("DELETE", "/api/v1/groups/lobby?cascade=true&confirm=lobby")
    reconciler, clock = fleet.term.reconciler, fleet.controller.app.clock
    over = clock.monotonic() + 1.1
    await eventually(lambda: clock.monotonic() > over)
    assert fleet.group_record().deleting
    assert reconciler._pause() > 1, "its pause is over and there is nothing to do about it"
    await node.connect()
    await eventually(lambda: fleet.state.groups.find("lobby") is None, state=fleet.states)


async def test_a_restart_on_a_node_that_is_removed_does_not_make_a_second_copy_of_its_id(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.slow_stops = True
    await fleet.group(min=1)
    await fleet.running(1)
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/restart", {})
    await fleet.reaches("lobby-1", "STOPPING")
    other = await fleet.node("n2")
    await node.drop()
    await fleet.reaches("lobby-1", "OFFLINE")
    await fleet.controller.call("DELETE", "/api/v1/nodes/n1?confirm=n1")
    assert await fleet.running(1) == ["lobby-2"]
    assert [start.instance_id for start in other.ordered] == ["lobby-2"], "the first may be alive over there"


async def test_a_restart_is_finished_by_the_next_leader(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.slow_stops = True
    await fleet.group(min=1)
    await fleet.running(1)
    old = fleet.record("lobby-1").incarnation
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/restart", {})
    await fleet.reaches("lobby-1", "STOPPING")
    await node.drop()
    await fleet.controller.app.stop()
    await fleet.begin()
    node.address = fleet.controller.grpc_address
    await node.stopped("lobby-1")
    await node.connect()
    assert await fleet.running(1) == ["lobby-1"]
    assert fleet.record("lobby-1").incarnation > old
    assert [start.incarnation for start in node.ordered] == [old, fleet.record("lobby-1").incarnation]


async def test_the_instances_of_a_wiped_node_end_and_are_replaced(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.slow_stops = True
    await fleet.group(min=2)
    await fleet.running(2)
    await fleet.controller.call("POST", "/api/v1/instances/lobby-2/stop", {})
    await fleet.reaches("lobby-2", "STOPPING")
    await fleet.reaches("lobby-3", "RUNNING")
    await node.drop()
    await fleet.reaches("lobby-1", "OFFLINE")
    node.forget_everything()
    await node.connect(spool_id="another")
    assert (await fleet.reaches("lobby-1", "CRASHED")).exit.outcome == "unknown"
    await fleet.reaches("lobby-2", "STOPPED")
    await fleet.running(2)
    assert set(fleet.reservations()) == {record.id for record in fleet.alive()}
    assert fleet.group_record().failures == ()


@pytest.mark.trap("T10")
async def test_a_crash_during_an_outage_is_announced_though_its_node_had_restarted_it(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    first = fleet.record("lobby-1").incarnation
    await node.drop()
    await node.crash("lobby-1", code=9, restart=True)
    await node.report("lobby-1", S.INSTANCE_STATE_RUNNING)
    await node.connect()
    await eventually(lambda: len(fleet.state.crashes) == 1)
    told = await fleet.events("INSTANCE_CRASHED")
    assert [(e["data"]["incarnation"], e["data"]["restarted_as"]) for e in told] == [(first, first + 1)]
    assert fleet.record("lobby-1").incarnation == first + 1
    assert fleet.record("lobby-1").state == "RUNNING"


async def test_a_number_that_a_node_already_uses_is_never_given_out(fleet):
    """Also one that the present block holds: the store may have been put back to an earlier state."""
    await fleet.begin()
    numbers = fleet.term.instances.numbers
    coming = numbers.take() + 7 * RESTARTS_PER_START
    await numbers.step_over(coming)
    assert numbers.take() > coming
    before = numbers.take()
    await numbers.step_over(before)
    assert numbers.take() == before + RESTARTS_PER_START, "what was given out before is known"


async def test_two_blocks_reserved_at_once_leave_the_later_one(fleet):
    await fleet.begin()
    numbers = Incarnations(fleet.term.ledger, epoch=fleet.term.epoch, block=10)
    far = 5_000 * RESTARTS_PER_START
    await asyncio.gather(numbers.step_over(far), numbers.refill())
    assert numbers.take() > far


async def test_a_start_is_not_repeated_before_it_is_known_whether_it_has_run_already(fleet):
    """The answer was lost with the stream, and so was the run, whose end waits in the node's spool."""
    await fleet.begin()
    node = await fleet.node("n1")
    node.deaf = True
    await fleet.group(min=1)
    await eventually(lambda: node.starts)
    order = node.starts[0]
    await node.drop()
    run = wire.RunningInstance(
        instance_id="other-1", group="other", incarnation=900 * 1024, state=S.INSTANCE_STATE_RUNNING
    )
    node.runs["other-1"] = fleet.ticketed(node, run)
    sent = len(node.starts)
    await node.connect(head=node._written + 1)
    await fleet.reaches("other-1", "RUNNING")
    await fleet.controller.call("POST", "/api/v1/instances/other-1/kill", {})
    await eventually(lambda: node.stops)  # whatever was sent at the opening came before this
    assert len(node.starts) == sent
    node.deaf = False
    node.runs["lobby-1"] = wire.RunningInstance(
        instance_id="lobby-1", group="lobby", incarnation=order.incarnation
    )
    await node.crash("lobby-1", code=5)
    assert (await fleet.reaches("lobby-1", "CRASHED")).exit.code == 5
    assert await fleet.running(1) == ["lobby-2"]
    assert order.incarnation not in {start.incarnation for start in node.starts[sent:]}
