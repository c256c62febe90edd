"""A node goes away and comes back: grace, replacement, return, and two where one is to be."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from lossy_world import LossyWorld

from corral.controller.instances.group_changes import hold_group, patch_group, scale_group
from corral.controller.instances.instance_changes import restart_instance, start_instance, stop_instance
from corral.controller.state.collections import NODES
from corral.domain.decisions import DecisionKind
from corral.domain.groups.disconnect_spec import DisconnectSpec
from corral.domain.groups.group import PortSpec, RestartOn, RestartSpec
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, Wanted

PORTS = {"primary": PortSpec(range=(4000, 4100))}
MINECRAFT = (ProbeSpec(kind=ProbeKind.MINECRAFT, port="primary"),)


def settled(**fields: object) -> LossyWorld:
    """A group of three on three nodes, all ready."""
    world = LossyWorld()
    world.create("lobby", **{"min": 3, **fields})
    world.pass_time(10)
    assert sorted(each.node for each in world.there()) == ["n1", "n2", "n3"]
    world.mark()
    return world


@pytest.fixture
def world() -> LossyWorld:
    return settled()


def on_n2(world: LossyWorld) -> str:
    (id,) = world.home_of_group("n2")
    return id


def replacement_of(world: LossyWorld, id: str) -> InstanceRecord:
    (found,) = [each for each in world.there() if each.replaces == id]
    return found


def replaced(world: LossyWorld) -> tuple[str, str]:
    """Cut n2 until its instance is replaced, and the replacement is ready: the ids of both."""
    id = on_n2(world)
    world.cut("n2")
    world.until(70)
    return id, replacement_of(world, id).id


# the times


@pytest.mark.trap("T11")
def test_a_partition_of_five_minutes_whose_stream_is_cut(world: LossyWorld) -> None:
    id = on_n2(world)
    world.cut("n2")
    world.until(4)
    assert world.states()[id] == "RUNNING"
    world.until(6)
    assert world.states()[id] == "OFFLINE"
    world.until(59)
    assert world.states()[id] == "OFFLINE"
    assert len(world.there()) == 3
    world.until(61)
    assert world.states()[id] == "lost"
    assert len(world.there()) == 4
    world.until(299)
    assert id in world.alive(), "it runs on unseen"
    world.mend("n2")
    world.until(302)
    assert len(world.there()) == len(world.alive()) == 3


def test_a_silent_partition_is_noticed_ninety_seconds_later(world: LossyWorld) -> None:
    id = on_n2(world)
    world.cut("n2", silent=True)
    world.until(89)
    assert world.states()[id] == "RUNNING"
    world.until(96)
    assert world.states()[id] == "OFFLINE"
    world.until(149)
    assert world.states()[id] == "OFFLINE"
    world.until(151)
    assert world.states()[id] == "lost"


@pytest.mark.trap("T36")
def test_a_new_leader_waits_for_the_whole_time_again(world: LossyWorld) -> None:
    id = on_n2(world)
    world.cut("n2")
    world.until(40)
    world.lead()
    world.until(99)
    assert world.states()[id] == "OFFLINE"
    assert len(world.there()) == 3, "nothing that runs was stopped"
    world.until(101)
    assert world.states()[id] == "lost"
    assert len(world.there()) == 4


@pytest.mark.trap("T36")
def test_a_new_leader_knows_what_is_lost_and_replaced(world: LossyWorld) -> None:
    id, other = replaced(world)
    before = world.states()
    world.lead()
    world.pass_time(120)
    assert world.states() == before
    world.mend("n2")
    world.pass_time(3)
    assert id not in world.states()
    assert other in world.states()


@pytest.mark.trap("T28")
@pytest.mark.parametrize("hours", [-1, 1])
def test_a_step_of_the_wall_clock_changes_nothing_about_it(world: LossyWorld, hours: int) -> None:
    id = on_n2(world)
    world.cut("n2")
    world.until(30)
    world.clock.offset = dt.timedelta(hours=hours)
    world.until(59)
    assert world.states()[id] == "OFFLINE"
    world.until(61)
    assert world.states()[id] == "lost"


def test_a_node_is_given_three_of_its_own_longest_pauses(world: LossyWorld) -> None:
    id = on_n2(world)
    stored = world.state.nodes.require("n2")
    slow = msgspec.structs.replace(stored.record, reconnect_max_seconds=40.0)
    world.apply([NODES.put("n2", slow, expect=stored.revision)])
    world.cut("n2")
    world.until(119)
    assert world.states()[id] == "OFFLINE"
    world.until(121)
    assert world.states()[id] == "lost"


def test_a_node_that_comes_and_goes_is_waited_for_anew(world: LossyWorld) -> None:
    id = on_n2(world)
    world.cut("n2")
    world.until(50)
    world.mend("n2")
    world.until(52)
    world.cut("n2")
    world.until(110)
    assert world.states()[id] == "OFFLINE"
    world.until(113)
    assert world.states()[id] == "lost"


def test_where_the_document_says_never_it_counts_for_ever() -> None:
    world = settled(disconnect=DisconnectSpec(replace_after_seconds=None))
    id = on_n2(world)
    world.cut("n2")
    world.pass_time(4000)
    assert world.states()[id] == "OFFLINE"
    assert len(world.there()) == 3
    world.ask(patch_group, "lobby", {"disconnect": {"replace_after_seconds": 120}})
    world.pass_time(2)
    assert world.states()[id] == "lost", "a change of the document counts at once"
    assert len(world.there()) == 4


# loss and replacement


def test_a_lost_instance_keeps_its_reservation_and_is_replaced_under_another_id() -> None:
    world = settled(memory_mb=100)
    id, other = replaced(world)
    record = world.record(id)
    assert (record.lost, record.lost_at, record.state) == (
        True,
        world.state.nodes.require("n2").record.lost_at,
        "OFFLINE",
    )
    assert world.reserved("n2") == [id]
    assert other != id
    started = world.by_rule("lost.replace")[-1]
    assert started.reason.startswith(f"'{id}' is lost: its node 'n2' is away since")
    tally = world.workspace().tally("lobby")
    assert (tally.live, tally.serving, tally.lost, tally.away) == (4, 3, 1, 1)


def test_the_decisions_about_it_name_the_rule_and_follow_from_the_loss(world: LossyWorld) -> None:
    id, other = replaced(world)
    lost, started = world.by_rule("lost.replace")
    assert (lost.kind, lost.subject, lost.node) == (DecisionKind.PHASE, id, "n2")
    assert f"its node 'n2' is away since {world.record(id).lost_at:%Y-%m-%d %H:%M:%S} UTC" in lost.reason
    assert (started.kind, started.subject) == (DecisionKind.START, other)
    assert started.inputs["replaces"] == id
    (event,) = [each for each in world.events if each.type.value == "INSTANCE_LOST"]
    assert event.data["decision"] == lost.id
    assert f"event:{event.cursor}" in started.causes
    (offline,) = [each for each in world.events if each.type.value == "INSTANCE_OFFLINE"]
    assert lost.causes == (f"event:{offline.cursor}",)


def test_a_static_instance_is_held_with_a_reason() -> None:
    world = settled(static=True)
    id = on_n2(world)
    world.cut("n2")
    world.until(200)
    assert world.states()[id] == "lost"
    assert len(world.there()) == 3, "nothing is started in its place"
    (skipped,) = [each for each in world.by_rule("lost.replace") if each.kind is DecisionKind.SKIP]
    assert f"'{id}' is lost" in world.group().reason
    assert "a static instance runs only where its directory is" in skipped.reason
    world.mend("n2")
    world.pass_time(3)
    assert world.states()[id] == "RUNNING"
    assert world.group().reason == ""


def test_a_lost_one_that_nobody_needs_any_more_is_not_replaced(world: LossyWorld) -> None:
    id = on_n2(world)
    world.cut("n2")
    world.until(30)
    world.ask(patch_group, "lobby", {"min": 2})
    world.ask(scale_group, "lobby", 2)
    world.until(100)
    assert len([each for each in world.there() if each.wanted is Wanted.RUN]) <= 3
    assert not [each for each in world.there() if each.replaces == id]


def test_without_room_elsewhere_the_group_says_so_and_the_original_serves_on() -> None:
    world = LossyWorld()
    world.create("lobby", min=1, nodes=("n2",))
    world.pass_time(10)
    world.mark()
    world.cut("n2")
    world.until(70)
    (id,) = world.states()
    assert world.states() == {id: "lost"}
    assert world.group().reason.startswith("NO_CAPACITY: of 3 nodes: 1 not connected")
    (refused,) = world.by_rule("place.refuse")
    assert "1 is wanted, 0 are there" in refused.reason
    world.mend("n2")
    world.pass_time(3)
    assert (world.states(), world.group().reason) == ({id: "RUNNING"}, "")
    assert not world.by_rule("duplicate.stop")


def test_the_replacement_of_a_replacement_is_found_by_the_first(world: LossyWorld) -> None:
    id, other = replaced(world)
    away = world.record(other).node
    world.cut(away)
    world.pass_time(80)
    third = replacement_of(world, other)
    assert world.states()[other] == "lost"
    world.mend("n2")
    world.pass_time(3)
    assert id not in world.alive(), "it is empty, and the last replacement is ready"
    world.mend(away)
    world.pass_time(3)
    running = {name for name, state in world.states().items() if state == "RUNNING"}
    assert len(running) == 3
    assert third.id in running


def test_a_replacement_that_dies_is_replaced_again(world: LossyWorld) -> None:
    id, other = replaced(world)
    world.die(other)
    world.pass_time(20)
    assert replacement_of(world, id).id != other
    assert len([each for each in world.states().values() if each == "RUNNING"]) == 3


def test_a_warm_instance_is_refilled() -> None:
    world = LossyWorld()
    world.create("lobby", min=1, warm=2)
    world.pass_time(10)
    (warm,) = [each for each in world.there() if each.warm][:1]
    world.mark()
    world.cut(warm.node)
    world.until(70)
    assert len([each for each in world.there() if each.warm and not each.lost]) >= 2
    world.mend(warm.node)
    world.pass_time(5)
    assert len([each for each in world.there() if each.warm]) == 2
    assert len([each for each in world.there() if not each.warm]) == 1


def test_a_group_that_follows_its_load_counts_lost_ones_not() -> None:
    scaling = ScalingSpec(mode=ScalingMode.DYNAMIC)
    world = LossyWorld()
    world.create("lobby", min=2, max_players=10, scaling=scaling)
    world.pass_time(10)
    first, second = world.there()
    world.run_of(first.id).players = 15
    world.pass_time(5)
    assert len(world.there()) == 2
    world.mark()
    world.cut(second.node)
    world.until(70)
    assert world.states()[second.id] == "lost"
    assert len([each for each in world.there() if not each.lost]) == 2
    world.mend(second.node)
    world.pass_time(5)
    assert len(world.there()) == 2
    assert first.id in world.states()


# the return


def test_before_it_is_lost_it_is_as_its_node_reports(world: LossyWorld) -> None:
    id = on_n2(world)
    before = world.record(id)
    world.cut("n2")
    world.until(30)
    world.mend("n2")
    world.until(33)
    after = world.record(id)
    assert (after.state, after.incarnation, after.lost_at) == (
        InstanceState.RUNNING,
        before.incarnation,
        None,
    )
    assert len(world.there()) == 3
    assert not world.by_rule("lost.return")


def test_an_end_that_nobody_saw_is_taken_in_and_replaced(world: LossyWorld) -> None:
    id = on_n2(world)
    world.cut("n2")
    world.until(20)
    world.die(id)
    world.until(30)
    world.mend("n2")
    world.until(40)
    assert world.record(id).state is InstanceState.CRASHED
    assert len([state for state in world.states().values() if state == "RUNNING"]) == 3


@pytest.mark.parametrize("static", [False, True])
def test_one_that_is_absent_ended_in_an_unknown_way(static: bool) -> None:
    world = settled(static=static)
    id = on_n2(world)
    world.kill("n2")
    world.until(30)
    world.mend("n2")
    world.until(40)
    running = {each.id: each.node for each in world.there()}
    assert len(running) == 3
    if static:
        assert running[id] == "n2", "it is started where its directory is"
    else:
        record = world.record(id)
        assert record.exit is not None
        assert (record.exit.outcome, id in running) == ("unknown", False)
    assert not world.group().failures, "that is no fault of its program"


def test_the_end_of_a_lost_one_changes_nothing_more(world: LossyWorld) -> None:
    id, other = replaced(world)
    world.die(id)
    world.mend("n2")
    world.pass_time(20)
    assert world.record(id).state is InstanceState.CRASHED
    assert not world.record(id).lost
    assert other in world.alive()
    assert len(world.alive()) == 3
    assert not world.reserved("n2")


def test_a_match_that_ended_while_it_was_lost_gives_up_the_place_of_no_other() -> None:
    world = LossyWorld()
    world.create("lobby", restart=RestartSpec(on=RestartOn.FAILURE), min_alive_ms=0)
    world.ask(scale_group, "lobby", 3)
    world.pass_time(10)
    world.mark()
    id, other = replaced(world)
    world.die(id, cleanly=True)
    world.mend("n2")
    world.pass_time(10)
    assert world.record(id).state is InstanceState.STOPPED
    assert world.group().target == len(world.alive()) == 3
    assert other in world.alive()


def test_while_the_replacement_is_not_ready_the_original_serves(world: LossyWorld) -> None:
    id = on_n2(world)
    world.cut("n2")
    world.until(60)
    other = replacement_of(world, id)
    world.mend("n2")
    world.pass_time(3)
    assert world.states()[id] == "RUNNING"
    assert other.id not in world.alive()
    (stopped,) = world.by_rule("duplicate.stop")
    assert (stopped.kind, stopped.subject) == (DecisionKind.STOP, other.id)
    (back,) = world.by_rule("lost.return")
    assert (back.kind, back.subject, back.node) == (DecisionKind.ADOPT, id, "n2")


def test_once_the_replacement_is_ready_an_empty_original_goes(world: LossyWorld) -> None:
    id, other = replaced(world)
    world.mend("n2")
    world.pass_time(3)
    assert id not in world.alive()
    assert other in world.alive()
    (stopped,) = world.by_rule("duplicate.stop")
    assert (stopped.kind, stopped.subject) == (DecisionKind.STOP, id)
    assert f"'{other}', which replaced it, is ready" in stopped.reason


def test_with_players_on_the_original_an_empty_replacement_goes(world: LossyWorld) -> None:
    id, other = replaced(world)
    world.run_of(id).players = 4
    world.mend("n2")
    world.pass_time(3)
    assert other not in world.alive()
    assert world.states()[id] == "RUNNING"


def test_where_both_have_players_the_younger_drains(world: LossyWorld) -> None:
    id, other = replaced(world)
    world.run_of(id).players = world.run_of(other).players = 4
    world.mend("n2")
    world.pass_time(30)
    assert world.states()[id] == "RUNNING"
    assert (world.record(other).state, world.record(other).wanted) == (InstanceState.DRAINING, Wanted.DRAIN)
    (drained,) = world.by_rule("duplicate.stop")
    assert (drained.kind, drained.subject) == (DecisionKind.DRAIN, other)
    world.run_of(other).players = 0
    world.pass_time(10)
    assert other not in world.alive()
    assert len(world.alive()) == 3


def test_players_that_came_while_it_was_cut_off_are_not_overlooked() -> None:
    world = settled(probes=MINECRAFT, ports=PORTS)
    id, other = replaced(world)
    run = world.run_of(id)
    run.players = None  # the number of its players is not reported at once
    world.mend("n2")
    world.pass_time(20)
    assert {id, other} <= set(world.alive()), "neither goes before it is known which of them has players"
    run.players = 2
    world.pass_time(10)
    assert id in world.alive()
    assert other not in world.alive()


def test_a_number_that_stays_unknown_for_five_minutes_counts_as_none() -> None:
    world = settled(probes=MINECRAFT, ports=PORTS)
    id, other = replaced(world)
    world.run_of(id).players = None
    world.mend("n2")
    world.pass_time(290)
    assert {id, other} <= set(world.alive())
    world.pass_time(20)
    assert id not in world.alive()


def test_a_group_that_counts_no_players_decides_at_once() -> None:
    world = LossyWorld()
    world.counts_players = False
    world.create("lobby", min=3)
    world.pass_time(10)
    world.mark()
    id, other = replaced(world)
    world.mend("n2")
    world.pass_time(3)
    assert id not in world.alive()
    assert other in world.alive()


def test_a_new_leader_does_not_take_silence_for_emptiness(world: LossyWorld) -> None:
    id, other = replaced(world)
    world.lead()
    world.pass_time(20)
    world.run_of(id).players = None
    world.mend("n2")
    world.pass_time(20)
    assert {id, other} <= set(world.alive()), "it may have reported players to the leader before"


def test_nothing_is_decided_before_the_node_has_reported_everything(world: LossyWorld) -> None:
    id, other = replaced(world)
    world.holds_back.add("n2")
    world.mend("n2")
    world.pass_time(20)
    assert {id, other} <= set(world.alive()), "what it has not sent yet may be the end of its instance"
    world.reconciler.inventory_complete(NodeId("n2"))
    world.pass_time(1)
    assert id not in world.alive()


def test_one_whose_order_never_arrived_is_over_once_it_is_replaced() -> None:
    world = LossyWorld()
    world.create("lobby", min=0, nodes=("n2", "n3"))
    world.cut("n3")
    world.pass_time(1)
    world.ask(start_instance, "lobby")
    (first,) = world.there()
    world.cut("n2")  # before the order is sent
    world.mark()
    world.mend("n3")
    world.until(70)
    assert world.states()[first.id] == "lost"
    world.mend("n2")
    world.pass_time(3)
    assert world.record(first.id).exit is not None
    assert (world.record(first.id).state, len(world.there())) == (InstanceState.STOPPED, 1)
    assert first.id not in world.runs["n2"]
    assert not world.by_rule("lost.return")


def test_an_order_to_stop_explains_the_end_of_a_lost_one(world: LossyWorld) -> None:
    id, _ = replaced(world)
    world.ask(stop_instance, id, reason="no longer wanted")
    decided = world.record(id).decision
    world.mend("n2")
    world.pass_time(3)
    assert world.record(id).decision == decided
    (stopped,) = [
        each for each in world.events if (each.type.value, each.subject) == ("INSTANCE_STOPPED", id)
    ]
    assert stopped.data["decision"] == decided
    assert not world.by_rule("lost.return")


def test_a_restart_that_was_asked_for_while_it_was_away_leaves_one(world: LossyWorld) -> None:
    id = on_n2(world)
    world.cut("n2")
    world.until(20)
    world.ask(restart_instance, id, reason="new map")
    world.until(70)
    assert world.states()[id] == "lost"
    world.mend("n2")
    world.pass_time(10)
    assert len(world.alive()) == len(world.there()) == 3


def test_both_stay_where_both_are_needed(world: LossyWorld) -> None:
    id, other = replaced(world)
    world.ask(scale_group, "lobby", 4)
    world.pass_time(5)
    extra = [each for each in world.there() if not each.lost]
    assert len(extra) == 4
    world.ask(scale_group, "lobby", 5)
    world.mend("n2")
    world.pass_time(5)
    assert {id, other} <= set(world.alive())
    assert len(world.alive()) == 5


def test_what_was_to_stop_while_it_was_away_stops_on_return(world: LossyWorld) -> None:
    id = on_n2(world)
    world.cut("n2")
    world.until(20)
    world.ask(stop_instance, id, reason="no longer wanted")
    world.until(100)
    assert world.states()[id] == "OFFLINE"
    assert not [each for each in world.there() if each.replaces], "min keeps another, and it replaces nothing"
    assert len(world.alive()) == 4
    world.mend("n2")
    world.pass_time(3)
    assert world.record(id).state is InstanceState.STOPPED
    assert len(world.alive()) == 3


def test_a_held_group_stops_lost_ones_on_return(world: LossyWorld) -> None:
    id, _ = replaced(world)
    world.ask(hold_group, "lobby", by="ada", reason="broken map", when_empty=False)
    world.pass_time(5)
    assert set(world.alive()) == {id}
    world.mend("n2")
    world.pass_time(3)
    assert not world.alive()


def test_the_instances_of_a_removed_node_have_ended(world: LossyWorld) -> None:
    id, other = replaced(world)
    world.forget("n2")
    world.pass_time(5)
    record = world.record(id)
    assert record.exit is not None
    assert (record.state, record.exit.outcome, record.lost) == (InstanceState.CRASHED, "unknown", False)
    assert not world.reserved("n2")
    assert other in world.alive()
    assert len(world.there()) == 3


def test_a_start_by_hand_while_one_is_lost_is_kept(world: LossyWorld) -> None:
    id, _ = replaced(world)
    world.ask(start_instance, "lobby")
    world.pass_time(5)
    world.mend("n2")
    world.pass_time(5)
    assert len(world.alive()) == 4
    assert id not in world.alive()
