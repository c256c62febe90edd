"""Charts of a simulation in lines of text: players, wanted and ready instances over time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from corral.cli.terminal.table import GREEN, GREY, RED, YELLOW, coloured
from corral.simulation.measures import ChartColumn

BLOCKS: Final = " ▁▂▃▄▅▆▇█"
"""For terminals."""
SIGNS: Final = " .:-=+*#%@"
"""For files and pipes."""
_LABEL: Final = 10
_NARROWEST: Final = 20


def chart_lines(
    group: str, columns: Sequence[ChartColumn], *, width: int, colour: bool, span: str
) -> list[str]:
    """A line each for players, wanted and ready, with the highest value; and the time below. `colour`: for a terminal."""
    room = max(_NARROWEST, width - _LABEL - 16)
    merged = merged_columns(columns, room)
    instances = max((max(each.wanted, each.ready) for each in merged), default=0)
    short = [each.ready < each.wanted for each in merged]
    players = [each.players for each in merged]
    lines = [group]
    rows = (
        ("players", players, max(players, default=0), GREY, None),
        ("wanted", [each.wanted for each in merged], instances, YELLOW, None),
        ("ready", [each.ready for each in merged], instances, GREEN, short),
    )
    for label, values, top, code, marked in rows:
        drawn = bar(values, top, signs=BLOCKS if colour else SIGNS)
        if colour:
            codes = [RED if marked is not None and marked[number] else code for number in range(len(drawn))]
            drawn = "".join(
                coloured("".join(sign for sign, _ in part), each)
                for each, part in itertools.groupby(zip(drawn, codes, strict=True), key=lambda pair: pair[1])
            )
        lines.append(f"  {label:<{_LABEL}}{drawn} max {max(values, default=0)}")
    lines.append(f"  {'':<{_LABEL}}{'0s':<{max(1, len(merged) - len(span))}}{span}")
    return lines


def merged_columns(columns: Sequence[ChartColumn], most: int) -> list[ChartColumn]:
    """At most so many columns: several as one, with the most players and wanted, and the fewest ready."""
    count = min(most, len(columns))
    found = []
    for number in range(count):
        part = columns[number * len(columns) // count : (number + 1) * len(columns) // count]
        found.append(
            ChartColumn(
                players=max(each.players for each in part),
                wanted=max(each.wanted for each in part),
                ready=min(each.ready for each in part),
            )
        )
    return found


def bar(values: Sequence[int], top: int, *, signs: str) -> str:
    """A sign for each value; only 0 is a space."""
    steps = len(signs) - 1
    return "".join(signs[-(-value * steps // top) if top else 0] for value in values)
