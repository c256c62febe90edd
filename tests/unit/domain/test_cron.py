"""Schedules in five fields: what they mean, and what is refused."""

from __future__ import annotations

import datetime as dt
import zoneinfo

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


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
LORD_HOWE = zoneinfo.ZoneInfo("Australia/Lord_Howe")
"""Its clocks are changed by half an hour."""
ST_JOHNS = zoneinfo.ZoneInfo("America/St_Johns")
"""Its clocks were set back over midnight until 2011."""


@pytest.mark.parametrize(
    ("text", "zone", "after", "wanted"),
    [
        ("30 2 * * *", BERLIN, "2026-03-28T12:00:00", "2026-03-29T01:00:00"),  # in the gap: at its end
        ("0,30 2 * * *", BERLIN, "2026-03-29T01:00:00", "2026-03-30T00:00:00"),  # both at its end, once
        ("30 2 * * *", BERLIN, "2026-10-24T12:00:00", "2026-10-25T00:30:00"),  # the first of the two
        ("30 2 * * *", BERLIN, "2026-10-25T00:30:00", "2026-10-26T01:30:00"),  # and that only
        ("30 * * * *", BERLIN, "2026-10-25T00:30:00", "2026-10-25T01:30:00"),  # by elapsed time: both
        ("30 * * * *", BERLIN, "2026-03-29T00:30:00", "2026-03-29T01:30:00"),
        ("0 18 * * FRI", BERLIN, "2026-11-17T12:00:00", "2026-11-20T17:00:00"),
        ("0 0 1 1 *", BERLIN, "2026-11-17T12:00:00", "2026-12-31T23:00:00"),
        ("15 2 * * *", LORD_HOWE, "2026-10-03T00:00:00", "2026-10-03T15:30:00"),
        ("45 1 * * *", LORD_HOWE, "2026-04-04T12:00:00", "2026-04-04T14:45:00"),
        ("30 23 * * *", ST_JOHNS, "2010-11-06T12:00:00", "2010-11-07T02:00:00"),
        ("*/30 * * * *", ST_JOHNS, "2010-11-07T02:30:00", "2010-11-07T03:00:00"),
    ],
)
def test_the_next_time_in_a_zone(text: str, zone: dt.tzinfo, after: str, wanted: str) -> None:
    assert parse_cron(text).next_after(at(after), zone) == at(wanted)


schedules = st.builds(
    "{} {} {} * {}".format,
    st.sampled_from(["0", "30", "*/20", "15,45"]),
    st.sampled_from(["*", "2", "0", "23", "*/6", "1-3"]),
    st.sampled_from(["*", "1-7", "25"]),
    st.sampled_from(["*", "SUN", "MON-FRI"]),
)
zones = st.sampled_from([dt.UTC, BERLIN, LORD_HOWE, ST_JOHNS, zoneinfo.ZoneInfo("Africa/Casablanca")])
changes = st.sampled_from(
    ["2026-03-29", "2026-10-25", "2026-04-04", "2026-10-03", "2010-11-07", "2026-02-15"]
)
hours = st.integers(-72, 72).map(lambda hours: dt.timedelta(hours=hours))


@settings(max_examples=300, deadline=None)
@given(schedules, zones, changes, hours, st.integers(1, 240))
def test_the_last_time_is_the_one_that_the_next_times_come_to(text, zone, day, shift, length):
    """Forward and backward are two searches; they find the same occurrences."""
    cron, now = parse_cron(text), at(day) + shift
    within = dt.timedelta(hours=length)
    found, step = [], now - within
    while (step := cron.next_after(step, zone)) is not None and step <= now:
        found.append(step)
    assert cron.last_until(now, zone, within=within) == (found[-1] if found else None)
    assert found == sorted(set(found))


@settings(max_examples=100, deadline=None)
@given(schedules, zones, changes, hours)
def test_a_time_of_day_occurs_once_a_day_whatever_the_clocks_do(text, zone, day, shift):
    cron, step = parse_cron(text), at(day) + shift
    if cron.any_hour:
        return
    end = step + dt.timedelta(days=5)
    while (step := cron.next_after(step, zone)) is not None and step < end:
        local = step.astimezone(zone)
        before = (step - dt.timedelta(minutes=1)).astimezone(zone)
        in_gap = before.utcoffset() != local.utcoffset()
        assert cron.matches(local) or in_gap
        assert local.fold == 0


@pytest.mark.parametrize("zone", [BERLIN, LORD_HOWE, ST_JOHNS], ids=str)
@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24", "2026-04-03", "2026-10-02", "2010-11-06"])
def test_by_elapsed_time_every_minute_that_fits_is_one(zone: dt.tzinfo, day: str) -> None:
    cron, minute = parse_cron("*/5 * * * *"), dt.timedelta(minutes=1)
    every = [at(day) + number * minute for number in range(3 * 24 * 60)]
    fitting = [each for each in every if cron.matches(each.astimezone(zone))]
    found, step = [], at(day) - minute
    while (step := cron.next_after(step, zone)) is not None and step <= every[-1]:
        found.append(step)
    assert found == fitting


@pytest.mark.parametrize("zone", [dt.UTC, BERLIN, zoneinfo.ZoneInfo("Pacific/Kiritimati")], ids=str)
@pytest.mark.parametrize("now", ["0001-01-01T00:00:00", "9999-12-31T23:59:59"], ids=["first", "last"])
def test_a_clock_at_an_end_of_the_calendar_fails_nothing(zone: dt.tzinfo, now: str) -> None:
    cron = parse_cron("* * * * *")
    assert cron.next_after(at(now), zone) is None
    assert cron.last_until(at(now), zone, within=dt.timedelta(days=7)) is None
