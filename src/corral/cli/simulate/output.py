"""The result of a simulation for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from corral.cli.failure import printable
from corral.cli.simulate.chart import chart_lines
from corral.cli.terminal.output import Column, Item, list_table, show_list, show_one
from corral.cli.terminal.table import colour_enabled, terminal_width
from corral.errors import counted
from corral.simulation.results import SimulationResult, column_seconds
from corral.simulation.timeline import TimelineEntry
from corral.system.spans import span_text

_COLUMNS: Final = (
    Column("GROUP", "group"),
    Column("STARTS", "starts"),
    Column("STOPS", "stops"),
    Column("CRASHES", "crashes"),
    Column("FLAPS", "flaps"),
    Column("SHORT", lambda item: f"{item['short_minutes']:g} min"),
    Column("FULL", lambda item: f"{item['full_minutes']:g} min"),
    Column("UNUSED SLOTS", lambda item: f"{item['unused_slots']:g}"),
    Column("REFUSED", "refused_players"),
    Column("CUT", "cut_players"),
    Column("MOST", "most_instances"),
)


def show_result(
    result: SimulationResult, *, output: str, scenario: str, groups: Sequence[str], quiet: bool, limit: int
) -> None:
    """`limit`: lines of the timeline in a table, 0 for all."""
    if output == "name":
        show_list(output, [{"id": name} for name in groups], columns=_COLUMNS)
        return
    if output != "table":
        show_one(output, _document(result, scenario, groups, quiet=quiet), rows=())
        return
    if not quiet:
        _show_timeline(result, groups, limit)
        for name in groups:
            lines = chart_lines(
                name,
                result.columns[name],
                width=terminal_width() or 100,
                colour=colour_enabled(),
                span=span_text(result.seconds),
            )
            click.echo("\n".join(lines) + "\n")
    click.echo(list_table([_row(result, name) for name in groups], _COLUMNS))
    for each in result.expect:
        if each.met:
            click.echo(printable(f"as expected: {each}"))


def _row(result: SimulationResult, name: str) -> Item:
    return {"group": name, **msgspec.to_builtins(result.groups[name])}


def _show_timeline(result: SimulationResult, groups: Sequence[str], limit: int) -> None:
    shown = [each for each in result.timeline if not each.group or each.group in groups]
    for each in shown[: limit or None]:
        click.echo(printable(timeline_line(each)))
    more = len(shown) - len(shown[: limit or None]) + result.left_out
    if more:
        click.echo(f"… {counted(more, 'more entry', 'more entries')}; -n 0, --until and --group show others")
    if shown:
        click.echo("")


def timeline_line(entry: TimelineEntry) -> str:
    """`1h5m  lobby-2 start on n-3: 2 are wanted, 1 is there`."""
    subject = entry.instance or entry.group or entry.node
    where = f" on {entry.node}" if entry.node and entry.node != subject else ""
    whole = span_text(entry.seconds)
    rule = f" [{entry.rule}]" if entry.rule else ""
    named = f"{subject} " if subject else ""
    return f"{whole:>10}  {named}{entry.kind}{where}: {entry.reason}{rule}"


def _document(
    result: SimulationResult, scenario: str, groups: Sequence[str], *, quiet: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "scenario": scenario,
        "seed": result.seed,
        "start": result.start.isoformat().replace("+00:00", "Z"),
        "seconds": result.seconds,
        "groups": {name: msgspec.to_builtins(result.groups[name]) for name in groups},
        "expect": msgspec.to_builtins(result.expect),
    }
    if quiet:
        return found
    found["chart"] = {
        "column_seconds": column_seconds(result),
        "groups": {
            name: {
                row: [getattr(each, row) for each in result.columns[name]]
                for row in ("players", "wanted", "ready")
            }
            for name in groups
        },
    }
    entries = [each for each in result.timeline if not each.group or each.group in groups]
    found["timeline"] = msgspec.to_builtins(entries)
    found["timeline_left_out"] = result.left_out
    return found
