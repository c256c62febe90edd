"""The waits of scaling, by the real signals: what begins them, and what a wall clock that is set does to them."""

from __future__ import annotations

import pytest
from reconciled_world import ReconciledWorld

from corral.controller.instances.group_changes import patch_group, scale_group
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec

QUICK = ScalingSpec(mode=ScalingMode.DYNAMIC, idle_seconds=0, window_seconds=0, cooldown_seconds=0)


@pytest.fixture
def world() -> ReconciledWorld:
    made = ReconciledWorld()
    made.create("lobby", min=1, max_players=20, scaling=QUICK, memory_mb=10)
    made.live_on(0)
    return made


@pytest.mark.trap("T28")
def test_a_floor_lasts_its_time_whatever_the_wall_clock_says(world):
    world.ask(scale_group, "lobby", 3, seconds=900)
    world.live_on(1)
    for id in ("lobby-1", "lobby-2", "lobby-3"):
        world.count_players(id, 0)
    world.set_clock(3600)
    world.live_on(800)
    assert world.serving("lobby") == 3
    world.set_clock(-7200)
    world.live_on(200)
    assert world.serving("lobby") == 1, "and it is looked at when it ends"


@pytest.mark.trap("T28")
@pytest.mark.trap("T36")
def test_a_floor_that_is_over_stays_over_for_the_next_leader(world):
    """Whatever the wall clock is set to: I16."""
    world.ask(scale_group, "lobby", 3, seconds=900)
    world.live_on(1)
    for id in ("lobby-1", "lobby-2", "lobby-3"):
        world.count_players(id, 0)
    world.live_on(1000)
    assert world.serving("lobby") == 1
    world.set_clock(-3600)
    world.change_leader(told=True)
    world.live_on(100)
    assert world.serving("lobby") == 1


def test_stops_wait_until_the_load_is_known_for_the_whole_window(world):
    """Also after a window was made longer: what was before it is not known. A new leader begins with unknown players."""
    world.ask(scale_group, "lobby", 3, seconds=60)
    world.live_on(1)
    for id in ("lobby-1", "lobby-2", "lobby-3"):
        world.count_players(id, 0)
    world.live_on(40)
    world.ask(patch_group, "lobby", {"scaling": {"window_seconds": 300}})
    world.live_on(290)
    assert world.serving("lobby") == 3
    world.change_leader(told=True)
    world.live_on(290)
    assert world.serving("lobby") == 3
    world.live_on(20)
    assert world.serving("lobby") == 1


def test_an_edited_cooldown_applies_to_the_wait_that_has_begun(world):
    world.ask(patch_group, "lobby", {"scaling": {"cooldown_seconds": 3600}, "min": 1})
    world.ask(scale_group, "lobby", 3, seconds=60)
    world.live_on(1)
    for id in ("lobby-1", "lobby-2", "lobby-3"):
        world.count_players(id, 0)
    world.live_on(100)
    assert world.serving("lobby") == 2
    world.ask(patch_group, "lobby", {"scaling": {"cooldown_seconds": 0}})
    world.live_on(10)
    assert world.serving("lobby") == 1


def test_a_count_that_lowers_only_the_highest_need_is_looked_at(world):
    """One of three is unknown: with it as full 35 players need three, and 30 need two."""
    world.ask(patch_group, "lobby", {"scaling": {"window_seconds": 60}})
    world.ask(scale_group, "lobby", 3, seconds=60)
    world.live_on(1)
    world.count_players("lobby-1", 15)
    world.count_players("lobby-2", 0)
    world.live_on(500)
    assert world.serving("lobby") == 3
    world.count_players("lobby-1", 10)
    world.live_on(500)
    assert world.serving("lobby") == 2


def test_an_instance_is_not_idle_before_it_runs(world):
    world.ask(patch_group, "lobby", {"scaling": {"idle_seconds": 300}})
    world.ask(scale_group, "lobby", 2, seconds=60)
    world.count_players("lobby-1", 1)
    world.settle()
    world.wait(400)
    world.vitals.players("lobby-2", world.record("lobby-2").incarnation, count=0, maximum=20)
    world.live_on(200)
    assert world.serving("lobby") == 2
    world.live_on(200)
    assert world.serving("lobby") == 1


@pytest.mark.trap("T28")
@pytest.mark.parametrize("seconds", [3600, -3600])
def test_failures_count_within_their_time_whatever_the_wall_clock_says(world, seconds):
    world.ask(patch_group, "lobby", {"crash_loop": {"failures": 2, "within_seconds": 60}})
    world.crash(world.record("lobby-1"), restarted=False)
    world.live_on(50)
    world.set_clock(seconds)
    world.crash(world.record("lobby-2"), restarted=False)
    assert world.group("lobby").paused is not None
    world.live_on(100)
    world.set_clock(-seconds)
    world.live_on(70)
    world.crash(world.record("lobby-3"), restarted=False)
    assert world.group("lobby").paused is None, "the others are older than a minute"


@pytest.mark.trap("T28")
@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_place_is_taken_again_after_its_time_whatever_the_wall_clock_says(world, seconds):
    world.ask(patch_group, "lobby", {"restart": {"on": "failure"}})
    world.end(world.record("lobby-1"))
    world.set_clock(seconds)
    world.live_on(1)
    assert world.serving("lobby") == 0
    world.live_on(6)
    assert world.serving("lobby") == 1


@pytest.mark.trap("T28")
@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_cooldown_lasts_its_time_whatever_the_wall_clock_says(world, seconds):
    world.ask(patch_group, "lobby", {"scaling": {"cooldown_seconds": 100}})
    world.ask(scale_group, "lobby", 3, seconds=60)
    world.live_on(1)
    for id in ("lobby-1", "lobby-2", "lobby-3"):
        world.count_players(id, 0)
    world.live_on(60)
    assert world.serving("lobby") == 2
    world.set_clock(seconds)
    world.live_on(90)
    assert world.serving("lobby") == 2
    world.live_on(15)
    assert world.serving("lobby") == 1
