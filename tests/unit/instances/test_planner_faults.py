"""What the planner must not do: spin, starve, count warm instances as serving ones, or choose for one that has no choice."""

from __future__ import annotations

import msgspec
import pytest
from test_planner import alive, names, put, running
from world import N1, NOW, World, spec

from corral.controller.instances.group_changes import create_group, hold_group, scale_group
from corral.controller.instances.instance_changes import order_stop, restart_instance, stop_instance
from corral.controller.instances.report_values import RunReport
from corral.controller.instances.reports import fold_report
from corral.controller.reconcile.lost_nodes import forget_node
from corral.controller.state.collections import GROUPS, NODES, PLANS
from corral.domain.decisions import Rule
from corral.domain.groups.group import AffinitySpec, RestartOn, RestartSpec, SpreadSpec
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import Admission
from corral.domain.planning.planner import PassLimits
from corral.wire.v1.instance_pb2 import ExitStatus


@pytest.fixture
def world() -> World:
    return World()


def ended(world: World, id: str, *, outcome: str = "ended") -> None:
    """Its node reports that it ended by itself right after its start."""
    record = world.record(id)
    exit = ExitStatus(known=True, code=0, outcome=outcome, ended_at_ms=int(world.now.timestamp() * 1000))
    said = RunReport(
        id=id, incarnation=record.incarnation, state=InstanceState.STOPPED, started_at=world.now, exit=exit
    )
    world.do(fold_report, record.node, said)


def cordon(world: World, node: NodeId, admission: Admission = Admission.CORDONED) -> None:
    stored = world.state.nodes.require(node)
    changed = msgspec.structs.replace(stored.record, admission=admission)
    world.apply([NODES.put(node, changed, expect=stored.revision)])


def test_a_group_that_fails_while_it_is_carried_out_is_not_tried_again_at_once(world):
    put(world, min=12)
    world.keep()
    hash = world.record("lobby-1").plan_hash
    world.state.quarantine.add(PLANS.name, hash, 1, ValueError("damaged"))
    put(world, min=30)
    result = world.keep_all(["lobby"], PassLimits(starts_of_group=2))
    assert result.unfinished == ()


def test_worlds_of_one_node_that_is_away_cost_one_search_and_delay_no_other(world):
    world.add_node(NodeId("n2"))
    put(world, min=6, static=True, nodes=("n1",))
    world.keep()
    running(world, *alive(world, "lobby"))
    for id in alive(world, "lobby"):
        world.do(stop_instance, id, reason="")
        ended(world, id, outcome="stopped")
        record = msgspec.structs.replace(world.record(id), held="")
        world.do(lambda ws, record=record: ws.put_instance(record))
    cordon(world, N1)
    put(world, min=8, static=True)
    result = world.keep_all(["lobby"], PassLimits(searches=4))
    assert result.unfinished == ()
    assert alive(world, "lobby") == ["lobby-7", "lobby-8"]


def test_a_warm_instance_that_ends_by_itself_is_refilled_after_the_pause_and_lowers_no_target(world):
    rule = RestartSpec(on=RestartOn.FAILURE)
    put(world, warm=1, restart=rule, min_alive_ms=0)
    record = msgspec.structs.replace(world.group(), target=2)
    world.apply([GROUPS.put("lobby", record, expect=world.state.groups.revision("lobby"))])
    world.keep()
    [warm] = [id for id in alive(world, "lobby") if world.record(id).warm]
    running(world, warm)
    ended(world, warm)
    assert world.group().target == 2
    result = world.keep_all(["lobby"])
    assert [each.rule for each in result.decisions] == []
    assert result.wake_at is not None


def test_warm_instances_count_neither_for_scale_nor_for_a_stop_by_hand(world):
    world.do(create_group, spec(max=3, warm=2))
    world.do(scale_group, "lobby", 3)
    world.keep()
    world.keep()
    running(world, *alive(world, "lobby"))
    assert len(alive(world, "lobby")) == 5
    world.do(scale_group, "lobby", 3)
    assert [id for id in alive(world, "lobby") if world.record(id).wanted is not Wanted.RUN] == []
    serving = [id for id in alive(world, "lobby") if not world.record(id).warm]
    world.do(stop_instance, serving[0], reason="")
    assert world.group().target == 2
    assert Rule.WARM_PROMOTE not in [each.rule for each in world.planned(["lobby"]).decisions]


def test_an_instance_with_a_world_is_started_at_home_however_the_others_are_spread(world):
    world.add_node(NodeId("n2"))
    put(world, min=1, static=True, nodes=("n1",))
    world.keep()
    running(world, "lobby-1")
    put(
        world,
        min=1,
        static=True,
        spread=(SpreadSpec(max_skew=1),),
        affinity=(AffinitySpec(label="a=b", required=True),),
    )
    world.do(restart_instance, "lobby-1", reason="")
    ended(world, "lobby-1", outcome="stopped")
    assert world.record("lobby-1").state is InstanceState.SCHEDULED


def test_the_first_of_a_group_that_wants_to_be_together_is_anywhere(world):
    world.add_node(NodeId("n2"))
    put(world, min=3, affinity=(AffinitySpec(group="lobby", required=True),))
    world.keep()
    assert len({world.record(id).node for id in alive(world, "lobby")}) == 1
    assert len(alive(world, "lobby")) == 3


def test_a_static_name_is_used_again_for_the_next_start_and_keeps_what_ran_before(world):
    put(world, min=2, static_names=("hub",))
    world.keep()
    running(world, "hub", "lobby-2")
    first = world.record("hub").incarnation
    world.do(stop_instance, "hub", reason="")
    world.keep()
    assert sorted(alive(world, "lobby")) == ["hub", "lobby-2", "lobby-3"], "it still runs"
    ended(world, "hub", outcome="stopped")
    put(world, min=3, static_names=("hub",))
    world.keep()
    assert sorted(alive(world, "lobby")) == ["hub", "lobby-2", "lobby-3"]
    again = world.record("hub")
    assert (again.state, again.node, again.incarnation > first) == (InstanceState.SCHEDULED, "n1", True)
    assert [each.incarnation for each in again.earlier] == [first]


def test_a_static_name_is_not_used_again_if_its_run_may_live_on_a_removed_node(world):
    world.add_node(NodeId("n2"))
    put(world, min=1, static_names=("hub",), nodes=("n2",))
    world.keep()
    running(world, "hub")
    put(world, min=1, static_names=("hub",))
    world.apply([NODES.delete("n2", expect=world.state.nodes.revision("n2"))])
    world.do(forget_node, "n2", limit=10)
    world.keep()
    assert alive(world, "lobby") == ["lobby-2"]


def test_a_number_is_not_used_again_while_its_record_is_kept(world):
    put(world, min=2, static_names=("hub",))
    world.keep()
    running(world, "hub", "lobby-2")
    world.do(stop_instance, "lobby-2", reason="")
    ended(world, "lobby-2", outcome="stopped")
    world.keep()
    assert sorted(alive(world, "lobby")) == ["hub", "lobby-3"]


def test_a_held_group_restarts_nothing(world):
    world.do(create_group, spec(min=1))
    world.keep()
    running(world, "lobby-1")
    world.do(restart_instance, "lobby-1", reason="")
    world.do(hold_group, "lobby", by="ada", reason="update", when_empty=True)
    ended(world, "lobby-1", outcome="stopped")
    assert world.record("lobby-1").state is InstanceState.STOPPED
    assert "update" in world.record("lobby-1").reason


def test_a_group_that_was_not_reached_keeps_its_reason(world):
    put(world, name="short", min=1, memory_mb=5000, priority=0)
    put(world, name="first", min=2, priority=90)
    world.keep_all(["short"])
    reason = world.group("short").reason
    assert "NO_CAPACITY" in reason
    result = world.keep_all(["short", "first"], PassLimits(starts=1))
    assert "short" in result.unfinished
    assert world.group("short").reason == reason


def test_groups_take_turns_however_much_the_first_ones_need(world):
    for number in range(3):
        put(world, name=f"g{number}", min=20)
    world.keep_all(names(world), PassLimits(starts=4, starts_of_group=2))
    assert [len(alive(world, name)) for name in names(world)] == [2, 2, 0]
    world.keep_all(names(world), PassLimits(starts=4, starts_of_group=2))
    assert [len(alive(world, name)) for name in names(world)] == [4, 2, 2]


def test_a_restart_stays_on_its_node_whatever_speaks_against_it(world):
    world.add_node(N1, labels={"zone": "a"})
    world.add_node(NodeId("n2"), memory=100_000)
    put(world, name="other", min=4, nodes=("n1",), memory_mb=200)
    put(world, min=1, nodes=("n1",), memory_mb=10)
    world.keep_all(["lobby", "other"])
    running(world, "lobby-1")
    put(world, min=1, memory_mb=10, affinity=(AffinitySpec(label="zone=a", weight=-100),))
    failed = msgspec.structs.replace(world.group(), failed_on={"n1": NOW})
    world.apply([GROUPS.put("lobby", failed, expect=world.state.groups.revision("lobby"))])
    world.do(restart_instance, "lobby-1", reason="")
    ended(world, "lobby-1", outcome="stopped")
    assert (world.record("lobby-1").state, world.record("lobby-1").node) == (InstanceState.SCHEDULED, "n1")


def test_an_instance_that_is_restarted_is_not_promoted(world):
    put(world, min=1, warm=1)
    world.keep()
    running(world, "lobby-1", "lobby-2")
    world.do(restart_instance, "lobby-2", reason="")
    world.do(order_stop, world.record("lobby-1"), reason="test")
    assert Rule.WARM_PROMOTE not in [each.rule for each in world.planned(["lobby"]).decisions]
