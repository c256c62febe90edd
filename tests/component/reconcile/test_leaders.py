"""Many at once, leaders that change, controllers that start again, and what time takes away."""

from __future__ import annotations

import asyncio
import collections
import datetime as dt

import pytest

from corral.cli.failure import CommandRefused
from corral.controller.instances.instance_changes import start_instance
from corral.controller.state.collections import instance_decisions
from corral.controller.term.housekeeping import Housekeeping
from corral.domain.ids import Epoch
from corral.store.store_errors import Fenced
from corral.testing.waiting import eventually
from corral.wire.v1 import instance_pb2 as wire

PORTS = {"primary": {"range": [30000, 30100]}, "query": {"range": [30000, 30100], "protocol": "udp"}}


@pytest.mark.trap("T21")
async def test_fifty_parallel_placements_share_no_port_and_overcommit_nothing(fleet):
    await fleet.begin()
    await fleet.node("n1", total_memory_mb=2048)
    await fleet.node("n2", total_memory_mb=2048)
    await fleet.node("n3", total_memory_mb=1024, advertise_address="n2.example")
    await fleet.group(ports=PORTS, memory_mb=100)

    calls = [fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"}) for _ in range(60)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(answer, dict) for answer in answers) == 20 + 20 + 10
    assert {answer.code for answer in answers if isinstance(answer, CommandRefused)} == {"NO_CAPACITY"}
    await fleet.running(50)
    address = {"n1": "n1", "n2": "n2", "n3": "n2"}
    taken = collections.Counter(
        (address[record.node], port.port, transport)
        for record in fleet.alive()
        for port in record.ports
        for transport in (["tcp", "udp"] if port.protocol == "both" else [port.protocol.value])
    )
    assert max(taken.values()) == 1
    used = collections.Counter()
    for record in fleet.alive():
        used[record.node] += record.memory_mb
    assert dict(used) == {"n1": 2000, "n2": 2000, "n3": 1000}


@pytest.mark.trap("T21")
async def test_two_placements_that_know_nothing_of_each_other_cannot_both_succeed(fleet):
    """Without taking turns: the store refuses the second, whoever asks."""
    await fleet.begin()
    await fleet.node("n1", advertise_address="host.example")
    await fleet.node("n2", advertise_address="host.example")
    await fleet.group("a", ports=PORTS)
    await fleet.group("b", ports=PORTS)
    one = fleet.term.instances.workspace(cause="one")
    two = fleet.term.instances.workspace(cause="two")
    first, second = start_instance(one, "a", node="n1"), start_instance(two, "b", node="n2")
    assert first.ports == second.ports
    outcomes = await asyncio.gather(
        fleet.term.ledger.commit(*one.steps()),
        fleet.term.ledger.commit(*two.steps()),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, Exception) for outcome in outcomes) == 1


@pytest.mark.trap("T27")
async def test_of_many_creates_at_the_last_place_exactly_one_succeeds(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(max=2)
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    calls = [fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"}) for _ in range(40)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(answer, dict) for answer in answers) == 1
    assert {answer.code for answer in answers if isinstance(answer, CommandRefused)} == {"GROUP_FULL"}


@pytest.mark.trap("T15")
async def test_a_deposed_leader_decides_nothing_and_sends_nothing(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    term = fleet.term
    store = fleet.controller.app.store
    row = await store.leases.read_lease("leader")
    await store.leases.raise_epoch(row, by=5)  # somebody else rules now; this leader has not noticed
    ws = term.instances.workspace(cause="late")
    start_instance(ws, "lobby")
    with pytest.raises(Fenced):
        await term.ledger.commit(*ws.steps())
    assert len(node.ordered) == 1
    await node.crash("lobby-1")
    await eventually(lambda: fleet.controller.app.role.term is not term)
    assert len(node.ordered) == 1


@pytest.mark.trap("T15")
async def test_the_reconciler_of_a_deposed_leader_sends_nothing_of_what_it_cannot_store(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1, crash_loop={"failures": 1, "pause_seconds": 2})
    await fleet.running(1)
    await node.crash("lobby-1")
    await eventually(lambda: fleet.group_record().paused)
    term, store = fleet.term, fleet.controller.app.store
    await store.leases.raise_epoch(await store.leases.read_lease("leader"), by=5)
    await eventually(lambda: fleet.controller.app.role.term is not term)  # the end of the pause told it
    assert term.fenced.is_set()
    assert len(node.ordered) == 1
    assert term.state.instances.find("lobby-2") is None


@pytest.mark.trap("T36")
async def test_a_restarted_controller_looks_before_it_acts_and_changes_nothing(fleet):
    await fleet.begin()
    nodes = [await fleet.node(name) for name in ("n1", "n2")]
    await fleet.group(min=4)
    names = await fleet.running(4)
    before = {record.id: record.incarnation for record in fleet.alive()}
    for node in nodes:
        await node.drop()
    await fleet.controller.app.stop()
    await fleet.begin()
    assert fleet.term.reconciler.observing
    for node in nodes:
        node.address = fleet.controller.grpc_address
        await node.connect()
    await eventually(lambda: not fleet.term.reconciler.observing)
    assert await fleet.running(4) == names
    assert {record.id: record.incarnation for record in fleet.alive()} == before
    assert sum(len(node.ordered) for node in nodes) == 4
    assert all(not node.stops for node in nodes)


@pytest.mark.trap("T36")
async def test_a_new_leader_starts_nothing_before_every_node_has_said_what_it_has(fleet):
    await fleet.begin()
    one, two = await fleet.node("n1"), await fleet.node("n2")
    await fleet.group(min=1, memory_mb=5000)
    await eventually(lambda: fleet.group_record().reason)
    await fleet.controller.app.stop()
    for node in (one, two):
        await node.drop()
    await fleet.begin()
    run = wire.RunningInstance(
        instance_id="lobby-7", group="lobby", incarnation=900 * 1024, state=wire.INSTANCE_STATE_RUNNING
    )
    one.runs["lobby-7"] = fleet.ticketed(one, run)
    one.address = two.address = fleet.controller.grpc_address
    await two.connect(total_memory_mb=8000)
    await eventually(lambda: fleet.term.reconciler._observation.awaited == {"n1"})
    await fleet.term.reconciler._turn()
    assert fleet.alive() == [], "there is a node for it, and another that has not said what it has"
    await one.connect(total_memory_mb=8000)
    assert await fleet.running(1) == ["lobby-7"]
    assert one.starts == []
    assert two.starts == []


async def test_a_start_that_was_decided_and_not_sent_is_sent_by_the_next_leader(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.deaf = True
    await fleet.group(min=1)
    await eventually(lambda: node.starts)
    decided = fleet.record("lobby-1")
    await node.drop()
    await fleet.controller.app.stop()
    await fleet.begin()
    node.deaf = False
    node.address = fleet.controller.grpc_address
    await node.connect()
    assert await fleet.running(1) == ["lobby-1"]
    assert fleet.record("lobby-1").incarnation == decided.incarnation
    assert node.starts[-1].plan_hash == decided.plan_hash


async def test_numbers_of_starts_are_never_given_out_twice(fleet):
    await fleet.begin()
    numbers = [fleet.term.instances.numbers.take() for _ in range(5)]
    await fleet.controller.app.stop()
    await fleet.begin()
    numbers += [fleet.term.instances.numbers.take() for _ in range(5)]
    assert len(set(numbers)) == 10
    assert numbers == sorted(numbers)


async def test_decisions_are_kept_with_cause_reason_and_what_was_passed_over(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.node("n2", total_memory_mb=10)
    await fleet.group(min=1, memory_mb=100)
    await fleet.running(1)
    journal = instance_decisions("lobby-1")
    entries = await fleet.controller.app.store.reads.entries(journal.name, limit=10)
    decision = journal.decode(entries[0].body)
    assert decision.id == fleet.record("lobby-1").decision
    assert decision.cause.startswith("GROUP_CREATED lobby")
    assert decision.epoch == Epoch(1)
    assert {other.subject for other in decision.rejected} == {"node/n2"}


async def test_the_past_is_bounded(fleet, clock):
    await fleet.begin(instances__ended_per_group=2, instances__crashes=1)
    node = await fleet.node("n1")
    await fleet.group(crash_loop={"failures": 100}, restart={"on": "never"})
    for number in range(1, 5):
        await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
        await fleet.running(1)
        await node.crash(f"lobby-{number}")
        await fleet.reaches(f"lobby-{number}", "CRASHED")
    keeper = Housekeeping(
        config=fleet.controller.app.config,
        store=fleet.controller.app.store,
        ledger=fleet.term.ledger,
        user_sessions=fleet.term.http.user_sessions,
        epoch=fleet.term.epoch,
        clock=clock,
    )
    while await keeper.sweep():
        pass
    assert set(fleet.states()) == {"lobby-3", "lobby-4"}
    assert len(fleet.state.crashes) == 1
    assert len(fleet.state.plans) == 1
    await keeper.forget_journals()
    why = await fleet.controller.call("GET", "/api/v1/instances/lobby-1/why")
    assert (why["state"], why["decisions"][0]["kind"]) == ("GONE", "start"), "for seven days"
    clock.step(7 * 86400)
    await keeper.forget_journals()
    journals = await fleet.controller.app.store.reads.journals("decisions:instance/")
    assert set(journals) == {"decisions:instance/lobby-3", "decisions:instance/lobby-4"}
    await fleet.controller.call("DELETE", "/api/v1/groups/lobby")
    while await keeper.sweep():
        pass
    assert fleet.states() == {}
    assert len(fleet.state.plans) == 0


@pytest.mark.trap("T28")
async def test_a_stepped_clock_does_not_move_a_pause(fleet, clock):
    fleet.controller = await fleet._cluster.controller(clock=clock)
    node = await fleet.node("n1")
    await fleet.group(min=1, crash_loop={"failures": 1, "pause_seconds": 600})
    await fleet.running(1)
    await node.crash("lobby-1")
    await eventually(lambda: fleet.group_record().paused)
    clock.step(3600)
    fleet.term.reconciler._floor_at = 0.0
    fleet.term.reconciler._wake.set()
    await eventually(lambda: fleet.term.reconciler._floor_at > 0)
    assert fleet.group_record().paused
    assert len(node.ordered) == 1
    assert fleet.group_record().paused.until - fleet.group_record().paused.since == dt.timedelta(minutes=10)


@pytest.mark.trap("T28")
@pytest.mark.parametrize("step", [3600, -3600])
async def test_a_pause_lasts_as_long_over_a_step_of_the_clock_and_a_restart_of_the_controller(
    fleet, clock, step
):
    fleet.controller = await fleet._cluster.controller(clock=clock)
    node = await fleet.node("n1")
    await fleet.group(min=1, crash_loop={"failures": 1, "pause_seconds": 600})
    await fleet.running(1)
    await node.crash("lobby-1")
    await eventually(lambda: fleet.group_record().paused)
    begun = clock.monotonic()
    await fleet.controller.app.stop()
    clock.step(step)
    fleet.controller = await fleet._cluster.controller(clock=clock)
    ends = fleet.term.instances.signals.pause_deadlines()["lobby"]
    assert begun + 590 < ends < clock.monotonic() + 600
    assert fleet.group_record().paused
