"""Orders of operators while a schedule is active: what counts is what is in force, and refusals name the schedule."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from world import World, spec

from corral.controller.instances.group_changes import create_group, scale_group
from corral.controller.instances.instance_changes import start_instance
from corral.domain.decisions import DecisionKind
from corral.domain.groups.instance_records import DecisionRecord
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec, ScheduleSpec
from corral.errors import Code, Rejected

DYNAMIC = ScalingSpec(mode=ScalingMode.DYNAMIC)
NIGHT = dt.timedelta(hours=1)


def world_with(schedule: dict[str, object], **fields: object) -> World:
    """A group whose schedule 'night' is active from one o'clock on; now it is midnight."""
    world = World()
    night = ScheduleSpec(name="night", cron="0 1 * * *", duration_seconds=3600, **schedule)
    world.do(create_group, spec(ports={}, memory_mb=1, max_players=20, schedules=(night,), **fields))
    return world


def refusal(world: World, change, *args, **named) -> Rejected:
    with pytest.raises(Rejected) as caught:
        world.do(change, *args, **named)
    return caught.value


def test_a_fixed_number_is_one_while_its_schedule_lasts() -> None:
    world = world_with({"mode": ScalingMode.STATIC, "min": 1}, max=9)
    world.do(scale_group, "lobby", 2)
    world.now += NIGHT
    refused = refusal(world, scale_group, "lobby", 3)
    assert (refused.code, refused.field) == (Code.CONFLICT, "schedules")
    assert "schedule 'night' sets the mode STATIC now" in refused.message
    world.now += NIGHT
    assert world.do(scale_group, "lobby", 3).target == 3


def test_players_decide_while_a_schedule_says_so() -> None:
    world = world_with({"mode": ScalingMode.DYNAMIC}, max=9)
    assert refusal(world, scale_group, "lobby", 3, seconds=60).field == "for_seconds"
    world.now += NIGHT
    refused = refusal(world, scale_group, "lobby", 3)
    assert "--for 15m" in (refused.hint or "")
    assert world.do(scale_group, "lobby", 3, seconds=60).floor.count == 3


def test_a_start_by_hand_keeps_to_the_bound_that_is_in_force() -> None:
    world = world_with({"max": 1}, max=3)
    for _ in range(2):
        world.do(start_instance, "lobby")
    world.now += NIGHT
    refused = refusal(world, start_instance, "lobby")
    assert refused.code is Code.GROUP_FULL
    assert "its max is 1 by schedule 'night'" in refused.message


def test_a_start_by_hand_is_kept_while_a_schedule_leaves_the_number_to_operators() -> None:
    world = world_with({"mode": ScalingMode.MANUAL}, max=3, scaling=DYNAMIC)
    world.do(start_instance, "lobby")
    assert world.group("lobby").target == 0, "players decide"
    world.now += NIGHT
    world.do(start_instance, "lobby")
    assert world.group("lobby").target == 2


def test_a_start_that_a_schedule_asks_for_names_it() -> None:
    world = world_with({"min": 2}, max=3)
    world.now += NIGHT
    world.keep("lobby")
    made = [msgspec.json.decode(entry.body, type=DecisionRecord) for entry in world.decisions]
    starts = {each.reason for each in made if each.kind is DecisionKind.START and each.rule == "schedule.up"}
    assert any("2 are wanted, 0 are there (schedule 'night')" in each for each in starts)
