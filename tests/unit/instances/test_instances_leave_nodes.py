"""Nodes that are emptied: what becomes of each instance there, and when the node is drained."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from draining_world import DrainingWorld

from corral.controller.instances.group_changes import scale_group
from corral.controller.instances.instance_changes import remove_instance, start_instance
from corral.controller.instances.plan_view import WorkspaceView
from corral.domain.events import EventType
from corral.domain.groups.group import PortSpec
from corral.domain.groups.instance_records import InstanceRecord, Readiness
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.groups.update_spec import UpdateSpec
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import Admission
from corral.domain.planning.planner import plan


def healthy(world: DrainingWorld, group: str = "lobby") -> int:
    return sum(
        each.state is InstanceState.RUNNING
        and each.wanted is Wanted.RUN
        and each.readiness is Readiness.READY
        for each in world.live(group)
    )


def sicken(world: DrainingWorld, id: str) -> None:
    """It is not ready any more."""
    record = world.record(id)
    world.report(record, InstanceState.RUNNING, readiness=Readiness.FAILED)
    assert world.record(id).readiness is Readiness.FAILED


def test_instances_leave_one_after_the_other_and_each_is_replaced_first() -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 3)
    world.drain("n1", reason="kernel update")
    assert world.admission("n1") is Admission.DRAINING
    most = 0
    for _ in world.passing(120):
        assert healthy(world) >= 3
        most = max(most, world.serving("lobby"))
    assert most == 4
    assert not world.on("n1")
    assert len(world.live()) == 3
    assert world.admission("n1") is Admission.DRAINED
    starts = [each for each in world.by_rule("drain.move") if each.kind == "start"]
    assert sorted(str(each.inputs["moves"]) for each in starts) == ["lobby-1", "lobby-2", "lobby-3"]
    assert len(world.told(EventType.NODE_DRAINED)) == 1


def test_as_many_move_at_once_as_the_group_has_surge() -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 4, update=UpdateSpec(max_surge=2))
    world.drain("n1")
    assert max(world.serving("lobby") for _ in world.passing(120)) == 6
    assert world.admission("n1") is Admission.DRAINED


def test_at_least_one_moves_at_a_time_though_the_group_has_no_surge() -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 2, update=UpdateSpec(max_surge=0, max_unavailable=1))
    world.drain("n1")
    assert max(world.serving("lobby") for _ in world.passing(120)) == 3
    assert world.admission("n1") is Admission.DRAINED


def test_a_replacement_has_to_be_healthy_for_a_while() -> None:
    world = DrainingWorld()
    [leaving] = world.placed("lobby", "n1", update=UpdateSpec(min_healthy_seconds=30))
    world.drain("n1")
    world.live_on(25)
    assert world.record(leaving).wanted is Wanted.RUN
    world.live_on(10)
    assert world.admission("n1") is Admission.DRAINED


def test_a_replacement_that_does_not_start_is_waited_for_whatever_the_floor_is() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 2, min_available=0)
    world.drain("n1")
    world.settle()
    world.connected -= {"n2", "n3"}  # they do nothing, and nobody has noticed it
    world.live_on(60)
    assert [world.record(id).wanted for id in ids] == [Wanted.RUN] * 2


def test_nothing_is_placed_on_a_node_that_is_emptied_or_empty() -> None:
    world = DrainingWorld(nodes=2)
    world.placed("lobby", "n1", 2)
    world.drain("n1")
    world.create("other", min=3)
    world.live_on(120)
    assert {each.node for each in world.live("other")} == {"n2"}
    assert world.admission("n1") is Admission.DRAINED
    world.ask(scale_group, "other", 5)
    world.live_on(10)
    assert [each.node for each in world.live("other")] == ["n2"] * 5


def test_players_are_waited_for() -> None:
    world = DrainingWorld()
    [leaving] = world.placed("lobby", "n1")
    world.count_players(leaving, 3)
    world.drain("n1")
    world.live_on(600)
    record = world.record(leaving)
    assert (record.state, record.wanted) == (InstanceState.DRAINING, Wanted.DRAIN)
    assert record.drain is not None
    assert record.drain.by == "drain.move"
    assert world.admission("n1") is Admission.DRAINING
    world.count_players(leaving, 0)
    world.live_on(1)
    assert world.record(leaving).state is InstanceState.STOPPED
    assert world.admission("n1") is Admission.DRAINED


def test_of_several_those_without_players_leave_first() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 3)
    for id, players in zip(ids, (5, 2, 0), strict=True):
        world.count_players(id, players)
    world.drain("n1")
    world.live_on(300)
    left = [each.subject for each in world.by_rule("drain.move") if each.kind == "drain"]
    assert left == [ids[2], ids[1], ids[0]]


def test_unhealthy_instances_stop_at_once_though_no_node_has_room() -> None:
    world = DrainingWorld(nodes=2)
    ids = world.placed("lobby", "n1", 2, memory_mb=300)
    world.create("filler", min=1, memory_mb=900, nodes=("n2",))
    world.live_on(20)
    sicken(world, ids[0])
    world.live_on(15)
    world.drain("n1")
    world.live_on(5)
    assert world.record(ids[0]).state is InstanceState.STOPPED
    assert world.record(ids[1]).state is InstanceState.RUNNING


def test_a_probe_that_fails_for_a_moment_stops_nothing() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 4)
    world.drain("n1")
    for id in ids:
        sicken(world, id)
    world.settle()
    world.live_on(2)
    for id in ids:
        world.report(world.record(id), InstanceState.RUNNING, readiness=Readiness.READY)
    assert all(world.record(id).wanted is Wanted.RUN for id in ids)
    world.live_on(300)
    assert not world.on("n1")


def test_unhealthy_ones_stop_one_after_the_other() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 4)
    for id in ids:
        sicken(world, id)
    world.live_on(15)
    world.drain("n1")
    world.settle()
    assert sum(world.record(id).wanted is not Wanted.RUN for id in ids) == 1
    for _ in world.passing(20, 0.5):
        gone = sum(world.record(id).wanted is not Wanted.RUN for id in ids)
        assert gone <= healthy(world) + 1
    world.live_on(120)
    assert not world.on("n1")


def test_a_static_one_that_is_not_healthy_goes_when_it_is_empty_like_others() -> None:
    world = DrainingWorld()
    [leaving] = world.placed("smp", "n1", 1, static=True)
    world.placed("lobby", "n1", 1)
    world.count_players(leaving, 0)
    sicken(world, leaving)
    world.live_on(15)
    world.drain("n1")
    world.settle()
    assert world.record(leaving).wanted is Wanted.RUN
    world.live_on(120)
    assert not world.on("n1")


def test_one_that_starts_there_stops_at_once() -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 1)
    world.create("slow", min=1, nodes=("n1", "n2"), node_labels={})
    world.settle()
    starting = world.live("slow")
    node = starting[0].node
    assert starting[0].state is InstanceState.SCHEDULED
    world.drain(node)
    world.live_on(60)
    assert not world.on(node)
    assert len(world.live("slow")) == 1


def test_known_players_keep_even_an_unhealthy_one() -> None:
    world = DrainingWorld()
    [leaving] = world.placed("lobby", "n1")
    world.count_players(leaving, 2)
    sicken(world, leaving)
    world.drain("n1")
    world.live_on(60)
    assert world.record(leaving).wanted is Wanted.DRAIN
    assert len([each for each in world.live() if each.node != "n1"]) == 1
    world.count_players(leaving, 0)
    world.live_on(6)
    assert world.admission("n1") is Admission.DRAINED


@pytest.mark.parametrize(("floor", "leaves"), [(None, False), (2, True), ("50%", True), (3, False)])
def test_so_many_stay_healthy_as_min_available_says(floor: int | str | None, leaves: bool) -> None:
    world = DrainingWorld()
    [leaving] = world.placed("lobby", "n1", 1, min_available=floor)
    world.ask(scale_group, "lobby", 3)
    world.live_on(30)
    sick = next(each for each in world.live() if each.node != "n1")
    world.drain("n1")
    sicken(world, sick.id)
    for stored in world.live():
        if stored.node == "n1" and stored.id != leaving:
            sicken(world, stored.id)
    world.live_on(60)
    assert (world.record(leaving).wanted is not Wanted.RUN) is leaves
    waits = world.group().drain_wait
    if not leaves:
        assert waits is not None
        assert "min_available" in waits.reason
        world.report(world.record(sick.id), InstanceState.RUNNING, readiness=Readiness.READY)
        world.live_on(60)
        assert world.admission("n1") is Admission.DRAINED
        assert world.group().drain_wait is None


def test_without_room_it_waits_and_says_which_nodes_refuse() -> None:
    world = DrainingWorld(nodes=2)
    [leaving] = world.placed("lobby", "n1", memory_mb=300)
    world.create("filler", min=1, memory_mb=900, nodes=("n2",))
    world.live_on(20)
    world.drain("n1", reason="kernel update")
    world.live_on(120)
    assert world.record(leaving).wanted is Wanted.RUN
    waits = world.group().drain_wait
    assert waits is not None
    assert (waits.instance, waits.room) == (leaving, True)
    assert not world.group().reason
    [refused] = world.by_rule("drain.wait")
    assert refused.kind == "refuse"
    assert {each.subject: each.code for each in refused.rejected} == {
        "node/n1": "ADMISSION",
        "node/n2": "MEMORY",
    }
    assert EventType.GROUP_SHORT not in {event.type for event in world.events}
    world.join("n3")
    world.live_on(60)
    assert world.admission("n1") is Admission.DRAINED
    assert world.group().drain_wait is None


def test_what_no_other_node_could_ever_take_is_stopped_when_empty_and_held() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 2, nodes=("n1",))
    world.count_players(ids[0], 4)
    world.drain("n1", reason="kernel update")
    world.live_on(60)
    assert world.record(ids[1]).state is InstanceState.STOPPED
    assert world.record(ids[0]).wanted is Wanted.DRAIN
    world.count_players(ids[0], 0)
    world.live_on(10)
    assert world.admission("n1") is Admission.DRAINED
    assert not world.live()
    assert "held until node 'n1' is open again" in world.group().reason
    [waited, *_] = [each for each in world.by_rule("drain.wait") if each.kind == "skip"]
    assert "ADMISSION" in {each.code for each in waited.rejected}
    world.undrain("n1")
    world.live_on(20)
    assert len(world.on("n1", "lobby")) == 2
    assert not world.group().reason


def test_the_only_node_can_be_emptied() -> None:
    world = DrainingWorld(nodes=2)
    world.drop("n2")
    world.forget("n2")
    world.placed("lobby", "n1", 2)
    world.drain("n1")
    world.live_on(30)
    assert world.admission("n1") is Admission.DRAINED


def test_static_instances_leave_last_when_empty_and_start_again_at_home() -> None:
    world = DrainingWorld()
    [moving] = world.placed("lobby", "n1")
    [first, second] = world.placed("world", "n1", 2, static=True)
    world.count_players(moving, 1)
    world.count_players(second, 3)
    world.drain("n1", reason="kernel update")
    world.live_on(60)
    assert {each.id for each in world.on("n1")} == {moving, first, second}
    assert world.record(first).wanted is Wanted.RUN
    waits = world.group("world").drain_wait
    assert waits is not None
    assert "last to leave" in waits.reason
    world.count_players(moving, 0)
    world.live_on(10)
    assert world.record(first).state is InstanceState.STOPPED
    assert world.record(second).wanted is Wanted.DRAIN
    world.count_players(second, 0)
    world.live_on(10)
    assert world.admission("n1") is Admission.DRAINED
    world.live_on(600)
    assert not world.live("world")
    assert "held until node 'n1' is open again" in world.group("world").reason
    world.undrain("n1")
    world.live_on(20)
    assert sorted(each.id for each in world.on("n1", "world")) == [first, second]


def test_a_group_with_a_fixed_port_waits_for_a_node_with_that_port() -> None:
    world = DrainingWorld(nodes=2)
    fixed = {"primary": PortSpec(port=30_000)}
    [leaving] = world.placed("lobby", "n1", ports=fixed)
    world.create("filler", min=1, nodes=("n2",), ports=fixed)
    world.live_on(20)
    world.drain("n1")
    world.live_on(60)
    waits = world.group().drain_wait
    assert waits is not None
    assert waits.room
    assert world.record(leaving).wanted is Wanted.RUN


def test_warm_instances_stop_at_once_and_are_started_elsewhere() -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 1, warm=0)
    world.create("ready", min=0, warm=2, nodes=("n1", "n2"))
    world.live_on(30)
    world.drain("n1")
    world.live_on(1)
    assert not world.on("n1", "ready")
    world.live_on(60)
    assert not any(each.moves for each in world.live("ready"))
    assert world.admission("n1") is Admission.DRAINED
    assert [each.node for each in world.live("ready")] == ["n2", "n2"]


def test_a_group_that_follows_its_players_keeps_its_number() -> None:
    world = DrainingWorld()
    scaling = ScalingSpec(mode=ScalingMode.DYNAMIC)
    ids = world.placed("lobby", "n1", 2, max=8, max_players=10, scaling=scaling)
    for id in ids:
        world.count_players(id, 4)
    world.drain("n1", deadline_seconds=None)
    most = max(world.serving("lobby") for _ in world.passing(200))
    assert most == 3
    assert len([each for each in world.live() if each.node != "n1"]) == 2
    assert not world.told(EventType.GROUP_SCALED)


def test_a_number_set_by_hand_meanwhile_is_kept() -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 2)
    world.drain("n1")
    world.live_on(2)
    assert world.serving("lobby") == 3
    world.ask(start_instance, "lobby")
    world.live_on(120)
    assert world.group().target == 3
    assert len(world.live()) == 3
    world.ask(scale_group, "lobby", 2)
    world.live_on(10)
    assert len(world.live()) == 2


def test_the_id_of_one_that_has_left_can_be_given_again() -> None:
    world = DrainingWorld()
    [first] = world.placed("lobby", "n1")
    world.drain("n1")
    world.live_on(60)
    [replacement] = world.live()
    assert replacement.moves == first
    world.undrain("n1")
    world.do(remove_instance, first)
    world.ask(scale_group, "lobby", 2)
    world.live_on(30)
    again = world.record(first)
    assert again.node != replacement.node
    world.drain(again.node)
    world.live_on(60)
    moved = [each for each in world.by_rule("drain.move") if each.inputs.get("moves") == first]
    assert [each.kind for each in moved] == ["start", "start"]
    assert len(world.live()) == 2


def test_a_replacement_is_no_surplus_while_what_it_replaces_serves() -> None:
    world = DrainingWorld()
    ids = world.placed("lobby", "n1", 3)
    for id in ids:
        world.count_players(id, 1)
    world.drain("n1")
    world.settle()
    [replacement] = [each for each in world.live() if each.moves]
    world.edit("lobby", min=2)
    world.live_on(60)
    assert world.record(replacement.id).state is InstanceState.RUNNING
    assert len([each for each in world.live() if each.wanted is Wanted.RUN]) == 2


def test_a_replacement_without_players_is_not_stopped_for_that() -> None:
    world = DrainingWorld()
    scaling = ScalingSpec(mode=ScalingMode.DYNAMIC)
    [leaving] = world.placed("lobby", "n1", max=8, max_players=10, scaling=scaling)
    world.count_players(leaving, 10)
    world.live_on(30)
    [other] = [each.id for each in world.live() if each.id != leaving]
    world.count_players(other, 4)
    world.count_players(leaving, 4)
    assert world.record(other).node != "n1"
    sicken(world, other)
    world.drain("n1", deadline_seconds=None)
    world.live_on(30)
    [replacement] = [each.id for each in world.live() if each.moves == leaving]
    world.count_players(replacement, 0)
    world.live_on(2000)
    assert world.record(leaving).wanted is Wanted.RUN, "too few others are healthy"
    assert world.record(replacement).state is InstanceState.RUNNING
    assert not any(each.rule == "idle.down" for each in world.made())


@pytest.mark.parametrize("drained", [False, True])
def test_a_drain_costs_only_the_groups_that_have_instances_there(drained: bool) -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 2)
    world.placed("games", "n2", 2)
    if drained:
        world.drain("n1", deadline_seconds=None)
    walked = []

    class Counting(WorkspaceView):
        def instances_of(self, group: str) -> Sequence[InstanceRecord]:
            walked.append(group)
            return super().instances_of(group)

    found = plan(Counting(world.workspace(), world.signals_of_term.now()), ["lobby", "games"])
    assert set(walked) == ({"lobby"} if drained else set())
    assert [each.rule for each in found.decisions] == (["drain.move"] if drained else [])


def test_unhealthy_ones_do_not_wait_for_room_that_there_is_none_of() -> None:
    world = DrainingWorld(nodes=2)
    ids = world.placed("lobby", "n1", 3, memory_mb=300)
    world.create("filler", min=1, memory_mb=900, nodes=("n2",))
    world.live_on(20)
    for id in ids:
        sicken(world, id)
    world.live_on(15)
    world.drain("n1")
    world.live_on(60)
    assert not world.on("n1")
