"""Drains in the corners: refused replacements, orders meanwhile, records that cannot be read."""

from __future__ import annotations

from typing import Any

from draining_world import DrainingWorld
from reconciled_world import finished

from corral.controller.instances.group_changes import scale_group
from corral.controller.instances.instance_changes import restart_instance, stop_instance
from corral.controller.instances.node_drains import DrainOrder, drain_node
from corral.controller.instances.order_answers import MAX_ATTEMPTS
from corral.controller.state.collections import NODE_LEDGERS
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, Wanted
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


class GuardedWorld(DrainingWorld):
    """Documents that cannot be read are not overwritten, as in a store."""

    async def _commit(self, *steps: Any) -> None:
        self.state.quarantine.check(steps)
        self.apply(steps)


def test_a_drain_that_cannot_be_recorded_delays_no_group() -> None:
    world = GuardedWorld()
    world.state.quarantine.add(NODE_LEDGERS.name, "n1", 1, ValueError("torn"))
    ws = world.workspace("token:ada", "r")
    drain_node(ws, NodeId("n1"), DrainOrder(reason="kernel update"))  # in an earlier term
    world.apply([each for each in ws.steps() if getattr(each, "collection", "") != NODE_LEDGERS.name])
    world.create("lobby", min=1)
    world.live_on(30)
    assert len(world.live()) == 1
    assert world.admission("n1") is Admission.DRAINING
    assert world.reconciler._pause() > 60


def test_a_drain_whose_progress_cannot_be_told_keeps_nobody_awake() -> None:
    world = DrainingWorld()
    world.placed("lobby", "n1", 2)
    world.drain("n1")
    drains = world.reconciler._emptied
    for _ in world.passing(60, 0.5):
        if drains._progress_at:
            break
    assert drains._progress_at

    def broken(_: str) -> int | None:
        raise ValueError("torn")

    world.signals_of_term.players = broken
    world.wait(10)
    finished(world.reconciler._turn())
    now = world.clock.monotonic()
    assert all(at > now for at in drains.moments())


def test_a_static_instance_that_goes_and_is_out_of_reach_keeps_its_place() -> None:
    world = DrainingWorld()
    world.create("s", min=1, static=True, max_players=20)
    world.ask(scale_group, "s", 2)
    world.live_on(20)
    for each in world.live("s"):
        world.count_players(each.id, 3)
    world.ask(scale_group, "s", 1)
    world.live_on(5)
    [leaving] = [each for each in world.live("s") if each.wanted is Wanted.DRAIN]
    world.drop(leaving.node)
    world.live_on(20)
    world.ask(scale_group, "s", 2)
    for seconds in (30, 300):
        world.live_on(seconds)
        assert {each.id for each in world.live("s")} == {"s-1", "s-2"}
        assert f"'{leaving.id}'" in world.state.groups.require("s").record.reason
    world.come_back(leaving.node, with_runs=True)
    world.live_on(60)
    assert {(each.id, each.wanted) for each in world.live("s")} == {("s-1", Wanted.RUN), ("s-2", Wanted.RUN)}
    assert not world.state.groups.require("s").record.reason


def test_a_stop_by_hand_of_one_that_is_being_moved_lowers_the_number() -> None:
    world = DrainingWorld(nodes=4)
    first, *_ = world.placed("lobby", "n1", max_players=20)
    world.ask(scale_group, "lobby", 3)
    world.live_on(20)
    for each in world.live():
        world.count_players(each.id, 3)
    world.drain("n1")
    world.live_on(3)
    assert replacement(world).moves == first
    world.ask(stop_instance, first, reason="")
    world.live_on(60)
    assert world.state.groups.require("lobby").record.target == 2
    assert len(world.live()) == 2
