"""Drains in the corners: refused replacements, orders meanwhile, records that cannot be read."""

from __future__ import annotations

from draining_world import DrainingWorld

from corral.controller.instances.instance_changes import restart_instance
from corral.controller.instances.order_answers import MAX_ATTEMPTS
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.instance_states import InstanceState
from corral.domain.node_states import Admission


def replacement(world: DrainingWorld) -> InstanceRecord:
    [found] = [each for each in world.live() if each.moves]
    return found


def test_a_replacement_that_is_refused_for_now_is_tried_elsewhere_in_the_same_place() -> None:
    world = DrainingWorld(nodes=4)
    [leaving] = world.placed("lobby", "n1")
    world.drain("n1")
    world.settle()
    first = replacement(world)
    world.refuse(first, permanent=False)
    world.settle()
    again = replacement(world)
    assert (again.id, again.moves, again.attempts) == (first.id, leaving, 1)
    assert again.node != first.node
    assert len(world.live()) == 2
    world.live_on(60)
    assert world.admission("n1") is Admission.DRAINED


def test_a_replacement_that_every_node_refuses_is_tried_a_few_times() -> None:
    world = DrainingWorld(nodes=4)
    world.placed("lobby", "n1")
    world.drain("n1")
    world.settle()
    id, refused = replacement(world).id, 0
    while (record := world.record(id)).state is InstanceState.SCHEDULED:
        world.refuse(record, permanent=False)
        world.settle()
        refused += 1
        assert refused <= MAX_ATTEMPTS
    assert refused == MAX_ATTEMPTS
    assert world.record(id).state is InstanceState.CRASHED


def test_a_replacement_that_is_restarted_by_hand_keeps_its_place() -> None:
    world = DrainingWorld(nodes=4)
    [leaving] = world.placed("lobby", "n1")
    world.count_players(leaving, 3)
    world.drain("n1")
    world.settle()
    began = replacement(world)
    world.obey(began.node)
    world.ask(restart_instance, began.id, reason="")
    world.live_on(60)
    assert replacement(world).id == began.id
    assert [each.id for each in world.live()] == [leaving, began.id]
    assert world.state.groups.require("lobby").record.target <= 1
