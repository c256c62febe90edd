"""Corners of scaling: what drains, is warm, held, static or restarted while the number of a group changes."""

from __future__ import annotations

import pytest
from test_scaled_groups import Scene, dynamic
from world import spec

from corral.controller.instances.group_changes import create_group, hold_group, patch_group
from corral.controller.instances.instance_changes import restart_instance, start_instance, stop_instance
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.instance_records import ScaleDirection
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.instance_states import InstanceState, Wanted

QUICK = ScalingSpec(mode=ScalingMode.DYNAMIC, idle_seconds=0, window_seconds=0, cooldown_seconds=0)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_warm_instance_with_players_drains(scene):
    scene.do(create_group, spec(min=1, warm=1, max_players=20))
    scene.pass_time(0)
    scene.pass_time(1, lobby_1=0, lobby_2=3)
    assert scene.record("lobby-2").warm
    scene.do(patch_group, "lobby", {"warm": 0})
    scene.pass_time(1)
    assert scene.record("lobby-2").state is InstanceState.DRAINING
    scene.pass_time(1, lobby_2=0)
    assert scene.record("lobby-2").state is InstanceState.STOPPED


def test_a_static_instance_that_drains_serves_again(scene):
    scene.do(create_group, spec(min=2, static=True, max_players=20))
    scene.pass_time(0)
    scene.pass_time(1, lobby_1=5, lobby_2=1)
    scene.do(patch_group, "lobby", {"min": 1})
    scene.pass_time(1)
    assert scene.record("lobby-2").state is InstanceState.DRAINING
    scene.do(patch_group, "lobby", {"min": 2})
    scene.pass_time(1)
    assert scene.serving() == ["lobby-1", "lobby-2"]


@pytest.mark.parametrize("when_empty", [True, False])
def test_a_hold_stops_what_drains(scene, when_empty):
    scene.do(create_group, spec(min=2, max_players=20))
    scene.pass_time(0)
    scene.pass_time(1, lobby_1=5, lobby_2=9)
    scene.do(patch_group, "lobby", {"min": 1})
    scene.pass_time(1)
    assert scene.record("lobby-1").state is InstanceState.DRAINING
    scene.do(hold_group, "lobby", by="ada", reason="test", when_empty=when_empty)
    scene.pass_time(1, lobby_1=0)
    assert scene.record("lobby-1").state is InstanceState.STOPPED


def test_load_stops_none_beside_a_surplus(scene):
    """Else fewer would be left than the players need, and one would be started again."""
    scene.do(create_group, dynamic(min=0, scaling=QUICK))
    for _ in range(4):
        scene.do(start_instance, "lobby")
    scene.run_all()
    scene.known.counts |= {"lobby-1": 17, "lobby-2": 17, "lobby-3": 0, "lobby-4": 0}
    scene.known.follow()
    scene.do(patch_group, "lobby", {"max": 3})
    scene.known.follow()
    stops = [each for each in scene.planned(["lobby"]).decisions if each.kind is DecisionKind.STOP]
    assert len(stops) == 1


def test_an_instance_that_is_restarted_goes_first_when_there_are_too_many(scene):
    scene.do(create_group, spec(min=2, max_players=20))
    scene.pass_time(0)
    scene.pass_time(1, lobby_1=5, lobby_2=1)
    scene.do(restart_instance, "lobby-1", reason="")
    scene.do(patch_group, "lobby", {"min": 1})
    scene.known.follow()
    scene.keep_all(["lobby"])
    assert scene.record("lobby-2").wanted is Wanted.RUN
    assert scene.planned(["lobby"]).decisions == ()


def test_warm_instances_that_serve_because_of_load_are_a_change_of_the_number(scene):
    scene.do(create_group, dynamic(min=1, warm=1))
    scene.pass_time(0)
    scene.pass_time(60, lobby_1=17, lobby_2=0)
    assert not scene.record("lobby-2").warm
    last = scene.group().last_scale
    assert (last.direction, last.need) == (ScaleDirection.UP, 2)
    scale = scene.last(DecisionKind.SCALE)
    assert (scale.rule, scale.inputs["from"], scale.inputs["to"]) == (Rule.LOAD_UP, 1, 2)
    assert scene.last(DecisionKind.PROMOTE).causes[0] == scale.id


def test_a_stop_because_of_load_counts_those_that_serve(scene):
    """One of a static group that stops beside it counts no more."""
    scene.do(create_group, dynamic(min=0, static=True, scaling=QUICK))
    for _ in range(3):
        scene.do(start_instance, "lobby")
    scene.run_all()
    scene.known.counts |= {"lobby-1": 1, "lobby-2": 0, "lobby-3": 0}
    scene.known.follow()
    scene.do(stop_instance, "lobby-3", reason="")
    scene.known.follow()
    scene.keep_all(["lobby"])
    assert scene.group().last_scale.need == 1
