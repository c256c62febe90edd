"""Charts of simulations: lines of text for terminals and for files."""

from __future__ import annotations

from corral.cli.simulate.chart import BLOCKS, SIGNS, bar, chart_lines, merged_columns
from corral.simulation.measures import ChartColumn

COLUMNS = [
    ChartColumn(players=players, wanted=2, ready=ready)
    for players, ready in ((0, 0), (5, 1), (10, 2), (10, 2))
]


def test_only_nothing_is_a_space_and_the_highest_is_the_fullest():
    assert bar([0, 1, 500, 1000], 1000, signs=SIGNS) == " .+@"
    assert bar([0, 0], 0, signs=BLOCKS) == "  "


def test_columns_that_do_not_fit_become_one_with_its_extremes():
    assert merged_columns(COLUMNS, 2) == [
        ChartColumn(players=5, wanted=2, ready=0),
        ChartColumn(players=10, wanted=2, ready=2),
    ]
    assert merged_columns(COLUMNS, 100) == COLUMNS


def test_a_chart_in_a_file_is_plain_text():
    assert chart_lines("lobby", COLUMNS, width=100, colour=False, span="1h") == [
        "lobby",
        "  players    +@@ max 10",
        "  wanted    @@@@ max 2",
        "  ready      +@@ max 2",
        "            0s1h",
    ]


def test_a_chart_on_a_terminal_is_red_where_fewer_are_ready_than_wanted():
    *_, ready, _ = chart_lines("lobby", COLUMNS, width=100, colour=True, span="1h")
    assert ready == "  ready     \x1b[31m \u2584\x1b[0m\x1b[32m\u2588\u2588\x1b[0m max 2"
