"""Groups that are closed to players: what is told of it, and when."""

from __future__ import annotations

import datetime as dt

from world import World, spec

from corral.controller.instances.group_changes import create_group, patch_group
from corral.domain.events import EventType
from corral.domain.groups.scaling_spec import MaintenanceSpec, ScheduleSpec

CLOSED = MaintenanceSpec(enabled=True, message="a new map", bypass=("ann",))


def told(world: World) -> list[dict[str, object]]:
    """What was told since the last call."""
    found = [each.data for each in world.events if each.type is EventType.GROUP_MAINTENANCE_CHANGED]
    world.events.clear()
    return found


def test_a_document_that_closes_or_opens_a_group_is_told_once() -> None:
    world = World()
    world.do(create_group, spec(ports={}, min=0))
    world.keep("lobby")
    assert told(world) == []
    world.do(patch_group, "lobby", {"maintenance": {"enabled": True, "message": "a new map"}})
    world.keep("lobby")
    world.keep("lobby")
    assert told(world) == [{"enabled": True, "message": "a new map", "schedule": ""}]
    world.do(patch_group, "lobby", {"maintenance": {"enabled": False}})
    world.keep("lobby")
    assert told(world) == [{"enabled": False, "message": "", "schedule": ""}]


def test_the_begin_and_the_end_of_a_schedule_are_told_without_the_names_of_players() -> None:
    world = World()
    night = ScheduleSpec(name="night", cron="0 1 * * *", duration_seconds=3600, maintenance=CLOSED)
    world.do(create_group, spec(ports={}, min=0, schedules=(night,)))
    world.keep("lobby")
    assert told(world) == []
    world.now += dt.timedelta(hours=1)
    world.keep("lobby")
    assert told(world) == [{"enabled": True, "message": "a new map", "schedule": "night"}]
    world.now += dt.timedelta(hours=1)
    world.keep("lobby")
    assert told(world) == [{"enabled": False, "message": "", "schedule": ""}]


def test_a_controller_that_was_away_tells_what_has_changed_meanwhile() -> None:
    """What was told is in the record, so a new leader neither repeats nor misses it."""
    world = World()
    world.do(create_group, spec(ports={}, min=0, maintenance=CLOSED))
    world.keep("lobby")
    assert world.group("lobby").closed
    assert len(told(world)) == 1
    world.keep("lobby")
    assert told(world) == []
