"""Points in time as people write them."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import click
import pytest

from corral.cli.failure import WrongUsage
from corral.cli.terminal.values import Moment, check_times, local_time, moment, rfc3339


@pytest.fixture(autouse=True)
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


NOW = dt.datetime(2026, 11, 15, 9, 30, tzinfo=dt.UTC)  # half past ten there


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2h", "2026-11-15T07:30:00.000Z"),
        ("1d", "2026-11-14T09:30:00.000Z"),
        ("1h30m", "2026-11-15T08:00:00.000Z"),
        ("now", "2026-11-15T09:30:00.000Z"),
        ("today", "2026-11-14T23:00:00.000Z"),
        ("Yesterday", "2026-11-13T23:00:00.000Z"),
        ("10:00", "2026-11-15T09:00:00.000Z"),
        ("9:05:30", "2026-11-15T08:05:30.000Z"),
        ("10:31", "2026-11-14T09:31:00.000Z"),  # not yet today: yesterday's
        ("2026-11-15", "2026-11-14T23:00:00.000Z"),
        ("2026-11-15T10:00", "2026-11-15T09:00:00.000Z"),
        ("2026-11-15 10:00:01.5", "2026-11-15T09:00:01.500Z"),
        ("2026-07-15T10:00", "2026-07-15T08:00:00.000Z"),  # summer has another offset
        ("2026-11-15T10:00Z", "2026-11-15T10:00:00.000Z"),
        ("2026-11-15T10:00-05:00", "2026-11-15T15:00:00.000Z"),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, utc: str) -> None:
    found = moment(text, NOW.astimezone())
    assert found is not None
    assert rfc3339(found) == utc


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1024",
        "soon",
        "25:00",
        "10:61",
        "2026-13-01",
        "2026-11-15T",
        "-2h",
        "9" * 40 + "d",
        "١٢",
        "0001-01-01",
    ],
)
def test_what_is_no_time_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write it like 2h"):
        Moment().convert(text, None, None)


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    early, late = "2026-11-15T08:00:00.000Z", "2026-11-15T09:00:00.000Z"
    check_times(early, late)
    check_times(None, early)
    with pytest.raises(WrongUsage, match="is not before"):
        check_times(late, early)


def test_a_time_of_the_api_is_shown_as_the_clock_here_shows_it() -> None:
    assert local_time("2026-11-15T09:00:00.25Z") == "2026-11-15T10:00:00.250+01:00"
    assert local_time("2026-07-15T09:00:00Z") == "2026-07-15T11:00:00.000+02:00"
    assert local_time(None) == "-"
    assert local_time("whenever") == "whenever"
