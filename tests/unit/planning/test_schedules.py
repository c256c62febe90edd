"""Schedules of a group: which one is active, and what it changes."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_checks import check_group
from corral.domain.groups.scaling_spec import (
    SCHEDULES,
    MaintenanceSpec,
    ScalingMode,
    ScalingSpec,
    ScheduleSpec,
)
from corral.domain.planning.schedules import scheduled
from corral.errors import Rejected
from corral.testing.counted_calls import counted_calls


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def group(*schedules: ScheduleSpec, **fields) -> GroupSpec:
    return GroupSpec(name="lobby", command=("true",), schedules=schedules, **fields)


EVENING = ScheduleSpec(
    name="evening", cron="0 18 * * FRI", time_zone="Europe/Berlin", duration_seconds=6 * 3600, min=5, warm=2
)


@pytest.mark.parametrize(
    ("now", "low", "warm", "changes_at"),
    [
        ("2026-11-20T16:59:59", 1, 0, "2026-11-20T17:00:00"),
        ("2026-11-20T17:00:00", 5, 2, "2026-11-20T23:00:00"),
        ("2026-11-20T22:59:59", 5, 2, "2026-11-20T23:00:00"),
        ("2026-11-20T23:00:00", 1, 0, "2026-11-27T17:00:00"),
    ],
)
def test_a_schedule_lasts_from_its_occurrence_for_its_duration(now, low, warm, changes_at) -> None:
    values = scheduled(group(EVENING, min=1), at(now))
    assert (values.min, values.warm, values.changes_at) == (low, warm, at(changes_at))
    assert values.by == ({"min": "evening", "warm": "evening"} if low == 5 else {})


def test_the_duration_is_elapsed_time_where_clocks_change() -> None:
    night = ScheduleSpec(
        name="night", cron="0 1 * * *", time_zone="Europe/Berlin", duration_seconds=2 * 3600, min=3
    )
    began = at("2026-03-29T00:00:00")
    assert scheduled(group(night), began + dt.timedelta(seconds=7199)).min == 3
    assert scheduled(group(night), began + dt.timedelta(seconds=7200)).min == 0


def test_of_two_the_later_start_counts_field_by_field_then_the_first_in_the_document() -> None:
    day = ScheduleSpec(name="day", cron="0 8 * * *", duration_seconds=12 * 3600, min=2, max=4)
    noon = ScheduleSpec(name="noon", cron="0 12 * * *", duration_seconds=3600, min=6)
    also = ScheduleSpec(name="also", cron="0 12 * * *", duration_seconds=3600, min=9, warm=1)
    values = scheduled(group(day, noon, also, min=1, max=20), at("2026-11-17T12:30:00"))
    assert values.by == {"min": "noon", "max": "day", "warm": "also"}
    assert (values.min, values.max, values.warm) == (6, 6, 1), "max is never below min"


def test_a_schedule_may_change_the_mode_and_close_the_group() -> None:
    closed = MaintenanceSpec(enabled=True, message="until noon")
    update = ScheduleSpec(
        name="update", cron="0 10 * * *", duration_seconds=7200, mode=ScalingMode.STATIC, maintenance=closed
    )
    spec = group(update, scaling=ScalingSpec(mode=ScalingMode.DYNAMIC), max_players=10)
    values = scheduled(spec, at("2026-11-17T11:00:00"))
    assert (values.mode, values.maintenance) == (ScalingMode.STATIC, closed)
    assert scheduled(spec, at("2026-11-17T12:00:00")).mode is ScalingMode.DYNAMIC


def test_a_schedule_that_overlaps_itself_never_ends() -> None:
    hourly = ScheduleSpec(name="always", cron="0 * * * *", duration_seconds=7200, min=1)
    assert scheduled(group(hourly), at("2026-11-17T11:59:59")).min == 1


@pytest.mark.parametrize(
    ("schedule", "field", "fragment"),
    [
        ({"cron": "61 * * * *"}, "schedules/0/cron", "minute"),
        ({"time_zone": "Europe/Berln"}, "schedules/0/time_zone", "not a time zone"),
        ({"time_zone": "../../etc/passwd"}, "schedules/0/time_zone", "not a time zone"),
        ({"time_zone": "localtime"}, "schedules/0/time_zone", "not a time zone"),
        ({"time_zone": "Factory"}, "schedules/0/time_zone", "not a time zone"),
        ({"name": ""}, "schedules/0/name", "not a valid schedule"),
        ({"min": None}, "schedules/0", "it changes nothing"),
        ({"mode": ScalingMode.DYNAMIC}, "schedules/0/mode", "max_players"),
        (
            {"maintenance": MaintenanceSpec(bypass=("ann", "bo\u202eb"))},
            "schedules/0/maintenance/bypass/1",
            "control character",
        ),
    ],
)
def test_what_is_refused(schedule, field, fragment) -> None:
    values = {"name": "a", "cron": "0 1 * * *", "duration_seconds": 60, "min": 1} | schedule
    with pytest.raises(Rejected) as caught:
        check_group(group(ScheduleSpec(**values)))
    assert caught.value.field == field
    assert fragment in caught.value.message


def test_the_names_of_all_bypass_lists_of_a_document_are_bounded_together() -> None:
    names = tuple(f"player-{number}" for number in range(1000))
    closed = MaintenanceSpec(enabled=True, bypass=names)
    schedules = [
        ScheduleSpec(name=name, cron="0 1 * * *", duration_seconds=60, maintenance=closed) for name in "ab"
    ]
    check_group(group(*schedules))
    with pytest.raises(Rejected, match="3000 names") as caught:
        check_group(group(*schedules, maintenance=closed))
    assert caught.value.field == "maintenance/bypass"


def test_two_schedules_of_one_name_are_refused() -> None:
    with pytest.raises(Rejected) as caught:
        check_group(group(EVENING, EVENING))
    assert caught.value.field == "schedules/1/name"


def test_a_group_that_follows_its_players_says_how_many_one_instance_takes() -> None:
    with pytest.raises(Rejected) as caught:
        check_group(group(scaling=ScalingSpec(mode=ScalingMode.DYNAMIC)))
    assert caught.value.field == "scaling/mode"


@given(st.lists(st.integers(0, 3 * 24 * 60), min_size=2, max_size=8))
def test_what_was_asked_before_changes_no_answer(minutes: list[int]) -> None:
    """What is kept between two questions is only as good as a fresh answer, also when the clock is set back."""
    begin = at("2026-03-28T00:00:00")
    for minute in minutes:
        now = begin + dt.timedelta(minutes=minute)
        spec = group(
            EVENING,
            ScheduleSpec(
                name="nights", cron="30 2 * * *", time_zone="Europe/Berlin", duration_seconds=5400, max=9
            ),
            ScheduleSpec(name="hours", cron="*/45 * * * *", duration_seconds=600, warm=2),
        )
        found = scheduled(spec, now)
        fresh = msgspec.structs.replace(
            spec,
            schedules=tuple(
                msgspec.structs.replace(each, name=f"{each.name}.{minute}") for each in spec.schedules
            ),
        )
        again = scheduled(fresh, now)
        named = {"by": {}, "active": ()}
        assert msgspec.structs.replace(found, **named) == msgspec.structs.replace(again, **named)


def many(cron: str) -> GroupSpec:
    """A group with as many schedules as it can have."""
    each = ScheduleSpec(name="", cron=cron, time_zone="Europe/Berlin", duration_seconds=SEVEN_DAYS, min=1)
    return group(*(msgspec.structs.replace(each, name=f"{cron}{number}") for number in range(SCHEDULES)))


SEVEN_DAYS = 7 * 86_400


@pytest.mark.parametrize("day", ["2026-11-17T15:30:00", "2026-10-25T00:30:00"], ids=["steady", "change"])
@pytest.mark.parametrize("cron", ["* * * * *", "0-59 0-23 * * *", "0 0 29 2 */7"])
def test_one_group_with_the_most_schedules_holds_nobody_up(cron: str, day: str) -> None:
    """A thousand such groups are looked at in one go, each minute."""
    spec = many(cron)
    scheduled(spec, at(day) - dt.timedelta(days=30))  # what is parsed once
    with counted_calls() as count:
        scheduled(spec, at(day))
    assert count.calls < 200 * SCHEDULES


def test_what_changes_in_years_only_is_computed_once_a_day() -> None:
    spec = many("0 0 29 2 */7")
    scheduled(spec, at("2026-11-17T00:00:00"))
    with counted_calls() as count:
        for minute in range(100):
            assert scheduled(spec, at("2026-11-17T00:00:00") + dt.timedelta(minutes=minute)).min == 0
    assert count.calls < 100 * SCHEDULES
    leap = at("2032-02-29T12:00:00")
    assert scheduled(spec, leap - dt.timedelta(days=300)).changes_at == at("2032-02-28T23:00:00")
    assert scheduled(spec, leap).min == 1


@pytest.mark.parametrize(
    ("message", "right"), [("two\nlines, §a", True), ("\x1b[2J", False), ("a\rb", False)]
)
def test_a_message_to_players_steers_no_terminal(message: str, right: bool) -> None:
    spec = group(maintenance=MaintenanceSpec(message=message))
    if right:
        check_group(spec)
        return
    with pytest.raises(Rejected) as caught:
        check_group(spec)
    assert caught.value.field == "maintenance/message"


def test_what_is_asked_again_before_anything_changes_is_not_computed_again() -> None:
    spec = many("* * * * *")
    first = scheduled(spec, at("2026-11-17T15:30:00"))
    with counted_calls() as count:
        assert scheduled(spec, at("2026-11-17T15:30:59")) == first
    assert count.calls < SCHEDULES
