"""Schedules in five fields: what they mean, and what is refused."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.cron import Cron, parse_cron
from corral.errors import Code, Rejected


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def parsed(text: str) -> Cron | None:
    """None when it was refused; whatever else is raised is a failure."""
    try:
        return parse_cron(text)
    except Rejected:
        return None


@pytest.mark.parametrize(
    ("text", "after", "wanted"),
    [
        ("* * * * *", "2026-11-15T10:00:30", "2026-11-15T10:01:00"),
        ("*/5 * * * *", "2026-11-15T10:00:00", "2026-11-15T10:05:00"),
        ("5/20 * * * *", "2026-11-15T10:26:00", "2026-11-15T10:45:00"),
        ("5-5/20 * * * *", "2026-11-15T10:26:00", "2026-11-15T11:05:00"),
        ("0 3 * * *", "2026-11-15T03:00:00", "2026-11-16T03:00:00"),
        ("59 23 31 12 *", "2026-12-31T23:59:00", "2027-12-31T23:59:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 29 FEB */7", "2096-03-01T00:00:00", "2128-02-29T00:00:00"),
        ("0 0 31 * *", "2026-04-01T00:00:00", "2026-05-31T00:00:00"),
        ("0 9 * * MON-FRI", "2026-11-13T09:00:00", "2026-11-16T09:00:00"),
        ("0 9 * * sat,SUN", "2026-11-13T09:00:00", "2026-11-14T09:00:00"),
        ("0 9 * * 7", "2026-11-13T09:00:00", "2026-11-15T09:00:00"),
        ("0 9 * * FRI-SUN", "2026-11-14T09:00:00", "2026-11-15T09:00:00"),
        ("0 0 13 * FRI", "2026-11-01T00:00:00", "2026-11-06T00:00:00"),
        ("0 0 */2 * MON", "2026-11-15T00:00:00", "2026-11-23T00:00:00"),
        ("@hourly", "2026-11-15T10:00:00", "2026-11-15T11:00:00"),
        ("@weekly", "2026-11-16T00:00:00", "2026-11-22T00:00:00"),
    ],
)
def test_the_next_time_of_a_schedule(text: str, after: str, wanted: str) -> None:
    assert parse_cron(text).next_after(at(after)) == at(wanted)


def test_a_time_of_another_zone_is_taken_as_what_it_is_in_utc() -> None:
    there = dt.datetime(2026, 11, 15, 1, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert parse_cron("0 0 * * *").next_after(there) == at("2026-11-15T00:00:00")


def test_no_time_is_told_beyond_the_end_of_the_calendar() -> None:
    assert parse_cron("0 0 1 1 *").next_after(dt.datetime(9999, 6, 1, tzinfo=dt.UTC)) is None


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * *", "6 fields"),
        ("60 * * * *", "minute: '60' is not within 0-59"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of the month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of the week"),
        ("*/0 * * * *", "steps by nothing"),
        ("5-1 * * * *", "runs backwards"),
        ("a * * * *", "'a' is not a number"),
        ("1, * * * *", "'' is not a number"),
        ("-1 * * * *", "not a number"),
        ("٣ * * * *", "not a number"),
        ("1-2-3 * * * *", "not a number"),
        ("0 0 30 2 *", "no month of it has such a day"),
        ("0 0 31 4,6,9,11 *", "no month of it has such a day"),
        ("* " * 400, "longer than"),
        ("@reboot", "1 fields"),
        ("0 0 0 * * *", "6 fields"),
        ("0 0 L * *", "'L' is not a number"),
        ("0 0 LW * *", "'LW' is not a number"),
        ("0 0 * * 5L", "'5L' is not a number"),
        ("0 0 * * MON#2", "'MON#2' is not a number"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_field(text: str, fragment: str) -> None:
    with pytest.raises(Rejected) as caught:
        parse_cron(text)
    assert caught.value.code is Code.INVALID_FIELD
    assert fragment in caught.value.message


FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> tuple[str, set[int], bool]:
    """A field as text, the values it stands for, and whether it begins with a star."""
    kind = draw(st.sampled_from(["star", "step", "list", "range"]))
    if kind == "star":
        return "*", set(range(low, high + 1)), True
    if kind == "step":
        step = draw(st.integers(1, high))
        return f"*/{step}", set(range(low, high + 1, step)), True
    if kind == "list":
        values = draw(st.sets(st.integers(low, high), min_size=1, max_size=4))
        return ",".join(map(str, values)), values, False
    first = draw(st.integers(low, high))
    last = draw(st.integers(first, high))
    step = draw(st.integers(1, 5))
    return f"{first}-{last}/{step}", set(range(first, last + 1, step)), False


@given(
    parts=st.tuples(*(fields(low, high) for low, high in FIELDS)),
    minutes=st.integers(0, 6 * 366 * 1440),
)
@settings(max_examples=100, deadline=None)
def test_the_next_time_fits_and_no_day_before_it_does(
    parts: tuple[tuple[str, set[int], bool], ...], minutes: int
) -> None:
    start = at("2024-01-01T00:00:17") + dt.timedelta(minutes=minutes)
    cron = parsed(" ".join(part[0] for part in parts))
    if cron is None:
        return  # such as 31 February

    def fits(day: dt.date) -> bool:
        by_month, by_week = day.day in parts[2][1], {day.isoweekday() % 7, day.isoweekday()} & parts[4][1]
        either = not parts[2][2] and not parts[4][2]
        return day.month in parts[3][1] and bool(by_month or by_week if either else by_month and by_week)

    found = cron.next_after(start)
    assert found is not None
    assert found > start
    assert found.second == found.microsecond == 0
    assert found.minute in parts[0][1]
    assert found.hour in parts[1][1]
    assert fits(found.date())
    assert cron.matches(found)
    between = start.date() + dt.timedelta(days=1)
    while between < found.date():
        assert not fits(between)
        between += dt.timedelta(days=1)
    if found.date() == start.date() or fits(start.date()):
        minute = start.replace(second=0, microsecond=0) + dt.timedelta(minutes=1)
        while minute < found and minute.date() == start.date():
            assert not (minute.hour in parts[1][1] and minute.minute in parts[0][1] and fits(minute.date()))
            minute += dt.timedelta(minutes=1)


@given(text=st.text(alphabet="0123456789*/,- aMON@", max_size=30))
def test_any_text_is_a_schedule_or_is_refused(text: str) -> None:
    cron = parsed(text)
    assert cron is None or cron.next_after(at("2026-11-15T00:00:00")) is not None
