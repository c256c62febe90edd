"""The drain of a node from its order to its end: deadlines, orders that change it, leaders that go on, and undrain."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest
from draining_world import DrainingWorld
from reconciled_world import KeptReads, finished

from corral.controller.http.resources.why.cause_chains import ChainReader
from corral.controller.http.resources.why.decision_history import DecisionHistory
from corral.controller.http.resources.why.why_answer import ChainShape
from corral.controller.instances.drain_progress import drain_lines
from corral.controller.instances.group_changes import delete_group, scale_group
from corral.controller.reconcile.emptied_nodes import PROGRESS_SECONDS
from corral.domain.access import access_of_role
from corral.domain.events import EventType
from corral.domain.groups.instance_records import Readiness
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import Admission
from corral.domain.permissions import Role
from corral.testing.counted_calls import counted_calls


def test_at_the_deadline_the_rest_is_stopped_players_or_not() -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1")
    [static] = world.placed("world", "n1", static=True)
    for id in (moving, static):
        world.count_players(id, 3)
    world.drain("n1", reason="kernel update", deadline_seconds=600)
    world.live_on(590)
    assert {each.id for each in world.on("n1")} == {moving, static}
    world.live_on(20)
    assert world.admission("n1") is Admission.DRAINED
    ends = world.by_rule("drain.deadline")
    assert {each.subject for each in ends} == {moving, static}
    assert all("the time for that is over" in each.reason and each.node == "n1" for each in ends)


def test_without_a_deadline_players_are_waited_for_without_an_end() -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1")
    world.count_players(moving, 3)
    world.drain("n1", deadline_seconds=None)
    world.live_on(10_000)
    assert world.record(moving).wanted is Wanted.DRAIN


def test_a_deadline_of_0_stops_everything_at_once() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 2)
    for id in ids:
        world.count_players(id, 3)
    world.drain("n1", deadline_seconds=0)
    world.settle()
    assert [world.record(id).wanted for id in ids] == [Wanted.STOP] * 2
    world.live_on(20)
    assert world.admission("n1") is Admission.DRAINED
    assert len(world.live()) == 2


@pytest.mark.parametrize("set_by", [3600, -3600])
def test_a_wall_clock_that_is_set_moves_no_deadline(set_by: float) -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1")
    world.count_players(moving, 3)
    world.drain("n1", deadline_seconds=600)
    world.live_on(60)
    world.set_clock(set_by)
    world.live_on(530)
    assert world.record(moving).wanted is Wanted.DRAIN
    world.live_on(20)
    assert world.admission("n1") is Admission.DRAINED


def test_a_new_leader_does_not_wait_longer_than_the_whole_time() -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1")
    world.count_players(moving, 3)
    world.drain("n1", deadline_seconds=600)
    world.live_on(60)
    world.set_clock(-100_000)
    world.change_leader(told=True)
    world.live_on(610)
    assert world.admission("n1") is Admission.DRAINED


@pytest.mark.parametrize("set_by", [3600, -3600])
def test_a_clock_that_was_set_while_nobody_led_moves_no_deadline(set_by: float) -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1")
    world.count_players(moving, 3)
    world.drain("n1", deadline_seconds=1800)
    world.live_on(600)
    world.set_clock(set_by)
    world.change_leader(told=True)
    world.live_on(1190)
    assert world.record(moving).wanted is not Wanted.STOP
    world.live_on(20)
    assert world.admission("n1") is Admission.DRAINED


@pytest.mark.parametrize("set_by", [3600, -3600])
def test_a_leader_on_another_machine_waits_the_whole_time_again_and_stores_until_when(set_by: float) -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1")
    world.count_players(moving, 3)
    world.drain("n1", deadline_seconds=1800)
    world.live_on(600)
    world.set_clock(set_by)
    world.boot = "of another machine"
    world.change_leader(told=True)
    world.live_on(1)
    drain = world.node("n1").drain
    assert drain is not None
    assert drain.deadline_at is not None
    assert abs((drain.deadline_at - world.now).total_seconds() - 1800) < 5
    world.live_on(1000)
    world.change_leader(told=True)
    world.live_on(790)
    assert world.record(moving).wanted is not Wanted.STOP
    world.live_on(20)
    assert world.admission("n1") is Admission.DRAINED, "its own time goes on over its restart"


def test_a_node_that_is_away_is_waited_for() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 2)
    world.drain("n1")
    world.settle()
    world.drop("n1")
    world.live_on(50)
    assert {each.state for each in world.on("n1")} == {InstanceState.OFFLINE}
    assert {each.wanted for each in world.on("n1")} == {Wanted.RUN}
    assert world.admission("n1") is Admission.DRAINING
    world.live_on(600)
    assert {each.id for each in world.on("n1")} == set(ids), "lost ones are there as well"
    assert world.admission("n1") is Admission.DRAINING
    world.come_back("n1", with_runs=True)
    world.live_on(120)
    assert world.admission("n1") is Admission.DRAINED
    assert len(world.live()) == 2


def test_what_is_away_at_the_deadline_is_stopped_when_the_node_is_back() -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1")
    world.count_players(moving, 3)
    world.drain("n1", deadline_seconds=60)
    world.live_on(10)
    world.drop("n1")
    world.live_on(100)
    assert world.record(moving).wanted is Wanted.STOP
    assert world.admission("n1") is Admission.DRAINING
    world.come_back("n1", with_runs=True)
    world.live_on(5)
    assert world.admission("n1") is Admission.DRAINED


def test_the_end_waits_until_a_node_that_connects_has_reported_everything() -> None:
    world = DrainingWorld()
    world.drop("n1")
    world.drain("n1")
    world.live_on(1)
    assert world.admission("n1") is Admission.DRAINED, "every record there has ended"
    world.undrain("n1")
    world.create("lobby")
    world.drain("n1")
    world.come_back("n1", with_runs=True, adopted="lobby-7")
    adopted = world.record("lobby-7")
    assert adopted.node == "n1"
    assert world.admission("n1") is Admission.DRAINING
    world.live_on(400)
    assert world.admission("n1") is Admission.DRAINED
    assert not world.on("n1")


def test_an_equal_order_changes_nothing_and_another_replaces_what_it_says() -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1")
    world.count_players(moving, 3)
    world.drain("n1", reason="kernel update", deadline_seconds=600)
    first = world.node("n1").drain
    world.live_on(60)
    world.drain("n1", reason="kernel update", deadline_seconds=600)
    world.drain("n1", deadline_seconds=600)
    assert world.node("n1").drain == first
    assert len(world.told(EventType.NODE_DRAINING)) == 1
    world.drain("n1", reason="new disks", deadline_seconds=60, shutdown=True)
    second = world.node("n1").drain
    assert first is not None
    assert second is not None
    assert (second.id, second.total, second.started_at) == (first.id, 1, first.started_at)
    assert (second.reason, second.shutdown) == ("new disks", True)
    assert second.deadline_at == world.now + dt.timedelta(seconds=60)
    assert len(world.told(EventType.NODE_DRAINING)) == 2
    world.live_on(70)
    assert world.admission("n1") is Admission.DRAINED


@pytest.mark.parametrize("cordoned", [True, False])
def test_undrain_leads_back_to_what_the_node_was(cordoned: bool) -> None:
    world = DrainingWorld()
    if cordoned:
        world.cordon("n1", reason="fan is loud")
    world.drain("n1", reason="kernel update")
    world.live_on(1)
    assert world.admission("n1") is Admission.DRAINED
    world.undrain("n1")
    found = world.node("n1")
    assert found.admission is (Admission.CORDONED if cordoned else Admission.OPEN)
    assert found.admission_reason == ("fan is loud" if cordoned else "")
    assert found.drain is None
    [told] = world.told(EventType.NODE_UNDRAINED)
    assert told.data["admission"] == found.admission.value
    world.undrain("n1")
    assert len(world.told(EventType.NODE_UNDRAINED)) == 1


def test_undrained_midway_those_that_wait_serve_again_and_replacements_are_surplus() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 3, update={"max_surge": 2})
    for id in ids:
        world.count_players(id, 2)
    world.drain("n1")
    world.live_on(14)
    world.live_on(1)
    states = [world.record(id).state for id in ids]
    assert states.count(InstanceState.DRAINING) >= 2
    assert len(world.live()) > 3
    world.undrain("n1")
    assert [world.record(id).state for id in ids] == [InstanceState.RUNNING] * 3
    assert all(world.record(id).drain is None for id in ids)
    assert not any(each.moves for each in world.live())
    world.live_on(30)
    assert sorted(each.id for each in world.live()) == sorted(ids), "replacements have no players"
    assert not any(each.moves for each in world.live())


def test_undrained_midway_a_replacement_goes_though_others_have_fewer_players() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 2, max_players=20)
    for id in ids:
        world.count_players(id, 3)
    world.drain("n1", deadline_seconds=None)
    world.live_on(15)
    replacements = [each.id for each in world.live() if each.moves]
    for id in replacements:
        world.count_players(id, 5)
    world.undrain("n1")
    world.settle()
    assert [world.record(id).wanted for id in ids] == [Wanted.RUN, Wanted.RUN]
    assert {world.record(id).wanted for id in replacements} == {Wanted.DRAIN}


def test_what_drains_for_another_reason_goes_on_after_undrain() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 2)
    for id in ids:
        world.count_players(id, 2)
    world.ask(scale_group, "lobby", 2)
    world.edit("lobby", min=0)
    world.ask(scale_group, "lobby", 1)
    world.live_on(1)
    [surplus] = [each.id for each in world.live() if each.wanted is Wanted.DRAIN]
    world.drain("n1")
    world.live_on(30)
    world.undrain("n1")
    assert world.record(surplus).wanted is Wanted.DRAIN
    world.live_on(30)
    assert world.record(surplus).wanted is Wanted.DRAIN
    assert sum(each.wanted is Wanted.RUN for each in world.live()) == 1


def test_what_stops_ends_after_undrain_and_is_replaced() -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1")
    world.count_players(moving, 2)
    world.drain("n1", deadline_seconds=0)
    world.settle()
    assert world.record(moving).wanted is Wanted.STOP
    world.undrain("n1")
    world.live_on(20)
    assert world.record(moving).state is InstanceState.STOPPED
    assert len(world.live()) == 1


@pytest.mark.parametrize("second", range(0, 40, 3))
def test_another_leader_goes_on_wherever_the_drain_is(second: int) -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 2)
    [static] = world.placed("world", "n1", static=True)
    world.drain("n1", deadline_seconds=3600)
    world.live_on(second)
    world.change_leader(told=True)
    assert max(world.serving("lobby") for _ in world.passing(700)) <= 3
    assert world.admission("n1") is Admission.DRAINED
    assert len(world.live()) == 2
    assert world.record(static).state is InstanceState.STOPPED
    assert len(world.told(EventType.NODE_DRAINED)) == 1


def test_progress_is_published_at_a_bounded_rate() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 6, update={"max_surge": 6})
    for id in ids[:2]:
        world.count_players(id, 1)
    world.drain("n1", deadline_seconds=3600)
    world.live_on(60)
    told = world.told(EventType.NODE_DRAIN_PROGRESS)
    gaps = [(after.at - before.at).total_seconds() for before, after in itertools.pairwise(told)]
    assert told
    assert all(gap >= 5 for gap in gaps)
    last = told[-1].data
    assert {key: last[key] for key in ("total", "moved", "waiting_players", "waiting_room", "stopping")} == {
        "total": 6,
        "moved": 4,
        "waiting_players": 2,
        "waiting_room": 0,
        "stopping": 0,
    }
    assert last["deadline_at"]
    count = len(told)
    for readiness in (Readiness.FAILED, Readiness.READY, Readiness.FAILED):
        world.report(world.record(ids[0]), InstanceState.RUNNING, readiness=readiness)
        world.live_on(100)
    assert len(world.told(EventType.NODE_DRAIN_PROGRESS)) == count, "nothing has changed"


def test_the_progress_is_looked_for_no_more_often_than_it_is_published() -> None:
    """Each change of one of thousands of instances would look at all of them."""
    world = DrainingWorld()
    [busy] = world.placed("lobby", "n1")
    world.count_players(busy, 1)
    world.drain("n1", deadline_seconds=3600)
    world.live_on(10)
    with counted_calls() as count:
        for readiness in (Readiness.FAILED, Readiness.READY) * 20:
            world.report(world.record(busy), InstanceState.RUNNING, readiness=readiness)
            world.live_on(1)
    assert 0 < count.of(drain_lines) <= 40 / PROGRESS_SECONDS + 1


def test_a_paused_group_waits_and_says_so() -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1", crash_loop={"failures": 1, "pause_seconds": 3600})
    world.ask(scale_group, "lobby", 2)
    world.live_on(20)
    other = next(each for each in world.live() if each.id != moving)
    world.drain("n1")
    world.crash(world.record(other.id), restarted=False)
    world.live_on(60)
    assert world.record(moving).wanted is Wanted.RUN
    waits = world.group().drain_wait
    assert waits is not None
    assert "paused" in waits.reason


def test_a_dependency_that_is_not_met_is_waited_for() -> None:
    world = DrainingWorld()
    world.create("db", min=1, nodes=("n2",))
    world.live_on(20)
    [moving] = world.placed("lobby", "n1", depends_on=({"group": "db"},))
    world.ask(scale_group, "db", 0)
    world.edit("db", min=0)
    world.live_on(10)
    world.drain("n1")
    world.live_on(60)
    waits = world.group().drain_wait
    assert waits is not None
    assert "waits for 'db'" in waits.reason
    assert world.record(moving).wanted is Wanted.RUN
    world.edit("db", min=1)
    world.live_on(90)
    assert world.admission("n1") is Admission.DRAINED


def test_the_instances_of_a_group_that_is_deleted_just_go() -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 2)
    world.drain("n1")
    world.settle()
    world.ask(delete_group, "lobby", cascade=True, confirm="lobby")
    world.live_on(10)
    assert world.admission("n1") is Admission.DRAINED
    assert not world.live()


def test_two_nodes_can_be_emptied_at_once() -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 2)
    world.placed("games", "n2", 2)
    world.drain("n1")
    world.drain("n2")
    world.live_on(300)
    assert (world.admission("n1"), world.admission("n2")) == (Admission.DRAINED, Admission.DRAINED)
    assert {each.node for each in (*world.live(), *world.live("games"))} == {"n3"}


def test_every_decision_leads_back_to_the_order() -> None:
    world = DrainingWorld()
    moving, _ = world.placed("lobby", "n1", 2)
    world.drain("n1")
    world.live_on(60)
    [order] = [each for each in world.made() if each.kind == "phase" and "to be emptied" in each.reason]
    assert order.subject == "n1"
    assert all(order.id in each.causes for each in world.by_rule("drain.move") if each.kind == "start")
    for each in world.by_rule("drain.move"):
        assert order.id in each.causes or any(
            order.id in other.causes for other in world.made() if other.id in each.causes
        )
    leaving = [each for each in world.by_rule("drain.move") if each.subject == moving]
    assert [each.kind for each in leaving] == ["drain", "stop"]
    assert all(each.node == "n1" for each in leaving)


def test_why_leads_from_each_decision_to_the_order_also_after_undrain() -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1")
    world.placed("world", "n1", static=True)
    world.drain("n1")
    world.live_on(60)
    asked = sorted(world.requests, key=lambda each: int(each.removeprefix("req-")))[-1]
    decisions = world.by_rule("drain.move", "drain.wait")
    assert {each.kind.value for each in decisions} == {"start", "drain", "stop", "skip"}

    def led_back() -> None:
        for each in decisions:
            steps = finished(_chain(world, each.id, each.subject))
            assert (steps[0].kind, steps[0].id) == ("request", asked), (each, steps)

    led_back()
    world.undrain("n1")
    led_back()


async def _chain(world: DrainingWorld, id: str, subject: str) -> list[ChainShape]:
    reads = KeptReads(world)
    reader = ChainReader(world.state, reads, access_of_role(Role.VIEWER), DecisionHistory(reads), [])
    return await reader.chain(await reader.find(id, near=subject))


def test_why_leads_from_the_end_of_a_replacement_to_the_undrain() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 2)
    for id in ids:
        world.count_players(id, 2)
    world.drain("n1")
    world.live_on(15)
    world.undrain("n1")
    asked = sorted(world.requests, key=lambda each: int(each.removeprefix("req-")))[-1]
    world.live_on(30)
    ended = world.by_rule("surplus.stop")
    assert ended, "the replacements are too many"
    for each in ended:
        steps = finished(_chain(world, each.id, each.subject))
        assert (steps[0].kind, steps[0].id) == ("request", asked), steps


def test_an_instance_that_drains_keeps_its_reason_when_its_node_was_away() -> None:
    world = DrainingWorld()
    [id] = world.placed("lobby", "n1")
    world.count_players(id, 2)
    world.drain("n1", reason="kernel update")
    world.live_on(15)
    before = world.record(id)
    assert (before.state, bool(before.reason)) == (InstanceState.DRAINING, True)
    world.drop("n1")
    world.live_on(10)
    assert world.record(id).state is InstanceState.OFFLINE
    world.come_back("n1", with_runs=True)
    after = world.record(id)
    assert (after.state, after.reason) == (InstanceState.DRAINING, before.reason)
