"""Tables that fit the terminal, and the words in their cells."""

from __future__ import annotations

import datetime as dt
import time

import pytest

from corral.cli.terminal.output import details
from corral.cli.terminal.table import ColumnLayout, draw, text_width
from corral.cli.terminal.values import full_time, natural_order, short_time

TITLES = ["ID", "NODE", "PID", "REASON"]
LAYOUTS = [ColumnLayout(), ColumnLayout(rank=1), ColumnLayout(rank=3), ColumnLayout(rank=2, stretched=True)]
ROWS = [["lobby-1", "node-1", "4711", "ended by SIGKILL after 2.5 s, restarted by its node"]]


def table(width: int | None, rows: list[list[str]] = ROWS) -> list[str]:
    return draw(TITLES, rows, layouts=LAYOUTS, width=width).split("\n")


def test_a_wide_terminal_shows_everything() -> None:
    assert table(None) == table(200)
    assert table(200)[0].split() == TITLES
    assert table(200)[1].endswith("by its node")


def test_the_stretched_column_is_cut_before_another_is_left_out() -> None:
    head, row = table(60)
    assert head.split() == TITLES
    assert row.endswith("…")
    assert text_width(row) <= 60


def test_columns_are_left_out_by_rank() -> None:
    assert table(40)[0].split() == ["ID", "NODE", "REASON"]
    assert table(24)[0].split() == ["ID", "NODE"]
    assert table(8)[0].split() == ["ID"]


def test_an_empty_column_goes_first_whatever_its_rank() -> None:
    rows = [["lobby-1", "-", "4711", "ended by SIGKILL after 2.5 s"]]
    assert table(40, rows)[0].split() == ["ID", "PID", "REASON"]


@pytest.mark.parametrize("width", range(8, 100, 7))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    rows = [*ROWS, ["a-very-long-name-of-an-instance", "-", "1", "-"]]
    assert all(text_width(line) <= max(width, 8) for line in table(width, rows))


def test_what_other_commands_are_given_is_cut_last() -> None:
    layouts = [ColumnLayout(whole=True), ColumnLayout()]
    rows = [["tok-aaaaaaaaaaaa", "a name that is longer than that"]]
    assert (
        draw(["ID", "NAME"], rows, layouts=layouts, width=30).split("\n")[1]
        == "tok-aaaaaaaaaaaa  a name that…"
    )
    assert text_width(draw(["ID", "NAME"], rows, layouts=layouts, width=20).split("\n")[1]) == 20


def test_numbers_in_names_are_sorted_as_people_count() -> None:
    names = ["w-10", "w-6", "w", "w-6b", "lobby-2"]
    assert sorted(names, key=natural_order) == ["lobby-2", "w", "w-6", "w-6b", "w-10"]


def test_fields_of_an_event_are_told_without_empty_ones() -> None:
    data = {"exit": {"known": True, "code": 1, "summary": "exited with code 1"}, "reason": "", "run": 1024}
    assert details(data) == 'exit="exited with code 1" run=1024'
    assert details({"rung": {"command": "stop", "signal": None}}) == "rung={command: stop}"
    assert details({}) == "-"


def test_times_are_short_for_people() -> None:
    now = dt.datetime.now().astimezone()
    assert short_time(now.isoformat()) == now.strftime("%H:%M:%S")
    assert short_time("2001-02-03T04:05:06Z").startswith("2001-02-0")
    assert short_time(None) == full_time("") == "-"
    assert short_time("not a time") == "not a time"
    assert full_time((now - dt.timedelta(seconds=300)).isoformat()).endswith("(5m ago)")


def test_times_of_a_machine_that_is_not_in_utc_name_its_zone(monkeypatch):
    now = dt.datetime.now(dt.UTC)
    try:
        for zone, name in (("America/New_York", ("EST", "EDT")), ("UTC", ("UTC",))):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert full_time("2026-11-17T11:59:03Z").split(" (")[0].endswith(name)
            assert short_time(now.isoformat()).endswith(name) == (zone != "UTC")
    finally:
        monkeypatch.undo()
        time.tzset()
