"""Deployments of groups whose number follows their players: it goes on to do so, and no instance with players is missed."""

from __future__ import annotations

from typing import Any

from deployed_world import DeployedWorld, S

from corral.controller.instances import group_changes, instance_changes
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.instance_states import Wanted


def scaled_world(**scaling: Any) -> DeployedWorld:
    """A group with at least one instance of 20 places, of which 16 are to be taken at most."""
    spec = ScalingSpec(mode=ScalingMode.DYNAMIC, **scaling)
    return DeployedWorld(1, nodes=8, max_players=20, scaling=spec)


def serve(world: DeployedWorld, count: int, *, players: int) -> None:
    """So many instances with so many players each, by an operator's order whose time is over."""
    world.ask(group_changes.scale_group, "lobby", count, seconds=600)
    world.live_on(60)
    for each in world.there():
        world.count_players(each.id, players)
    world.live_on(900)
    assert len(world.there()) == count


def test_a_deployment_begins_with_the_number_that_serves() -> None:
    world = scaled_world(max_step=2)
    serve(world, 10, players=16)
    world.deploy()
    for _ in range(300):
        world.live_on(1)
        assert world.progress.wanted == 10
        assert len(world.there()) >= 10
    assert world.there(2)


def test_a_deployment_does_not_bring_back_what_an_operator_has_stopped() -> None:
    world = scaled_world(max_step=10)
    serve(world, 10, players=16)
    for each in world.there():
        world.count_players(each.id, 5)
    world.live_on(30)
    assert len(world.there()) == 10
    for each in world.there()[3:]:
        world.ask(instance_changes.stop_instance, each.id, reason="")
    world.live_on(30)
    world.deploy()
    world.live_on(30)
    assert world.progress.wanted == 3
    assert len(world.there()) <= 4


def test_the_number_follows_the_players_while_the_group_is_deployed() -> None:
    world = scaled_world()
    serve(world, 3, players=4)
    world.deploy(strategy="canary", canary_seconds=3600)
    world.until(S.GATE)
    for each in world.there():
        world.count_players(each.id, 20)
    world.live_on(60)
    assert world.progress.wanted == 4  # 60 players
    assert len(world.there()) == 4
    assert [each.rule for each in world.made() if each.kind == "scale"][-1] == "load.up"


def test_a_number_that_an_operator_asked_for_meanwhile_ends_with_what_the_players_need() -> None:
    world = scaled_world(max_step=1)
    serve(world, 2, players=4)
    world.deploy(strategy="canary", canary_seconds=3600)
    world.until(S.GATE)
    world.ask(group_changes.scale_group, "lobby", 6, seconds=600)
    world.live_on(60)
    for each in world.there():
        world.count_players(each.id, 16)
    for _ in range(700):
        world.live_on(1)
        assert len(world.there()) >= 6
    assert world.progress.wanted == 6


def test_new_instances_stay_while_the_players_that_need_them_are_on_retired_ones() -> None:
    world = scaled_world(idle_seconds=60, window_seconds=60, cooldown_seconds=0)
    serve(world, 5, players=16)
    world.deploy()
    retired = world.there(1)
    for _ in range(120):
        world.live_on(10)
        for each in world.there(2):
            world.count_players(each.id, 0)
    assert [each.id for each in world.alive() if each.wanted is Wanted.DRAIN] == [each.id for each in retired]
    assert len(world.there(2)) == 5
    for each in retired:  # they join again
        world.count_players(each.id, 0)
    for each in world.there(2):
        world.count_players(each.id, 16)
    world.until(S.COMPLETED)
    assert len(world.there(2)) == 5


def test_they_go_when_the_players_of_retired_ones_have_left_for_good() -> None:
    world = scaled_world(idle_seconds=60, window_seconds=60, cooldown_seconds=0)
    serve(world, 5, players=16)
    world.deploy()
    for _ in range(120):
        world.live_on(10)
        for each in world.there(2):
            world.count_players(each.id, 0)
    for each in world.alive():
        world.count_players(each.id, 0)
    world.live_on(600)
    assert world.state_now is S.COMPLETED
    assert len(world.there()) == 1


def test_starts_and_stops_by_hand_count_while_the_group_is_deployed() -> None:
    world = scaled_world()
    serve(world, 3, players=4)
    world.deploy(strategy="canary", canary_seconds=3600)
    world.until(S.GATE)
    world.ask(instance_changes.start_instance, "lobby")
    world.live_on(30)
    assert (world.progress.wanted, len(world.there())) == (4, 4)
    for each in world.there(1)[:2]:
        world.ask(instance_changes.stop_instance, each.id, reason="")
    world.live_on(30)
    assert (world.progress.wanted, len(world.there())) == (2, 2)
