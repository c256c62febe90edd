"""What `corral apply`, `diff` and `group reload` print of the groups that a set changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import click

from corral.cli.failure import printable
from corral.cli.terminal.output import Item
from corral.cli.terminal.table import colour_enabled
from corral.errors import counted

_COLOURS: Final = {"created": "green", "changed": "yellow", "deleted": "red"}
_EFFECTS: Final = {"now": "at once", "next_start": "at the next placement", "restart": "with a restart"}
_SHOWN: Final = 5
_SIGNS: Final = {"created": "+", "changed": "~", "deleted": "-"}
_VALUE: Final = 100


def show_changes(answer: Item, *, values: bool = False) -> None:
    """The groups that a set changes, and the decisions that would follow."""
    for each in answer["groups"]:
        if each["action"] != "unchanged":
            show_group(each, values=values)
    for each in answer["decisions"]:
        where = f" on node '{each['node']}'" if each["node"] else ""
        what = f"{each['kind']} {each['instance'] or each['group']}{where}"
        click.echo(printable(f"  would follow: {what}: {each['reason']}"))
    more = answer["decisions_count"] - len(answer["decisions"])
    if more or answer["unfinished"]:
        click.echo("  … and more")


def show_group(each: Item, *, values: bool) -> None:
    action = str(each["action"])
    where = f"  ({each['path']})" if each["path"] else "  (inherits)" if action == "changed" else ""
    heading = f"{_SIGNS[action]} {each['name']}{where}"
    if each["adopted"]:
        heading += ": as it was, and now applied from here"
    text = printable(heading)
    click.echo(click.style(text, fg=_COLOURS[action]) if colour_enabled() else text)
    show_fields(each["changes"], values=values)
    if each["held"]:
        click.echo(printable(f"    it is held: nothing starts until 'corral group release {each['name']}'"))
    if count := each["stopped_count"]:
        what = f"{counted(count, 'instance')} ({listed(each['stopped'])})"
        click.echo(printable(f"    {what} {'is' if count == 1 else 'are'} stopped"))
    for kind, one, many in (
        ("outdated", "goes on as before", "go on as before"),
        ("placement", "stays where it is", "stay where they are"),
    ):
        if count := each[f"{kind}_count"]:
            verb = "deploy" if kind == "outdated" else "group restart"
            command = f"corral {verb} {each['name']}"
            what = f"{counted(count, 'instance')} ({listed(each[kind])}) {one if count == 1 else many}"
            click.echo(printable(f"    {what} until '{command}'"))


def show_fields(changes: Sequence[Item], *, values: bool = True) -> None:
    """The changed fields of a document, and when each acts."""
    for change in changes:
        effect = f"({_EFFECTS.get(change['effect'], change['effect'])})"
        for field, before, after in _parts(change) if values else ((change["field"], None, None),):
            known = values and (before is not None or after is not None)
            told = f": {_value(before)} -> {_value(after)}" if known else ""
            click.echo(printable(f"    {field} {effect}{told}"))


def _parts(change: Item) -> list[tuple[str, Any, Any]]:
    """A changed field with its values; of an object the entries that differ."""
    field, before, after = str(change["field"]), change["before"], change["after"]
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [(field, before, after)]
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return [(f"{field}.{key}", before.get(key), after.get(key)) for key in keys] or [(field, before, after)]


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
