"""What a command prints: a table for people, JSON or YAML for programs, names for pipes.

`-o json` of a list has the API's own shape, `{"items": […], "next": null}`; of a stream, one
object a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from corral.cli.failure import printable
from corral.cli.table import Paint, coloured, draw, paint_state, terminal_width, wants_colour

F = TypeVar("F", bound=Callable[..., Any])
Item = Mapping[str, Any]

FORMATS: Final = ("table", "json", "yaml", "name")


def output_option(command: F) -> F:
    """The `-o` every command takes."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Form of the result.",
    )(command)


class Column:
    """A title, where its text comes from, and how it is coloured."""

    __slots__ = ("paint", "text", "title")

    def __init__(self, title: str, text: str | Callable[[Item], str], *, paint: Paint | None = None) -> None:
        self.title = title
        self.paint = paint
        self.text: Callable[[Item], str] = (
            (lambda item: plain(item.get(text))) if isinstance(text, str) else text
        )


def state_column(title: str, key: str | Callable[[Item], str]) -> Column:
    return Column(title, key, paint=paint_state)


def plain(value: Any) -> str:
    """A value as one cell; what is missing or empty is a dash."""
    if value is None or value == "" or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={inner}" for key, inner in value.items())
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def show_list(output: str, items: Sequence[Item], *, columns: Sequence[Column], name: str = "id") -> None:
    if output == "table":
        click.echo(list_table(items, columns))
    elif output == "name":
        _show_names(items, name)
    else:
        _show_document(output, {"items": list(items), "next": None})


def list_table(items: Sequence[Item], columns: Sequence[Column]) -> str:
    return draw(
        [column.title for column in columns],
        [[column.text(item) for column in columns] for item in items],
        paints=[column.paint for column in columns],
        width=terminal_width(),
        colour=wants_colour(),
    )


def show_one(output: str, item: Item, *, rows: Sequence[tuple[str, str]], name: str = "id") -> None:
    if output == "table":
        widest = max(len(title) for title, _ in rows)
        for title, text in rows:
            shown = coloured(printable(text), paint_state(text)) if wants_colour() else printable(text)
            click.echo(f"{title + ':':<{widest + 2}}{shown}")
    elif output == "name":
        _show_names([item], name)
    else:
        _show_document(output, item)


def show_done(output: str, item: Item, sentence: str, *, name: str = "id") -> None:
    """The result of a change: one sentence for people, the changed thing for programs."""
    if output == "table":
        click.echo(printable(sentence))
    elif output == "name":
        _show_names([item], name)
    else:
        _show_document(output, item)


def show_streamed(output: str, item: Item, line: Callable[[Item], str], *, name: str = "id") -> None:
    """One item of a stream, written out at once."""
    if output == "table":
        click.echo(line(item))
    elif output == "name":
        _show_names([item], name)
    elif output == "json":
        click.echo(json.dumps(item, ensure_ascii=False))
    else:
        click.echo("---")
        _show_document(output, item)


def _show_names(items: Iterable[Item], name: str) -> None:
    for item in items:
        click.echo(printable(str(item.get(name, ""))))


def _show_document(output: str, document: Any) -> None:
    if output == "json":
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    import yaml  # half of our start-up budget, and few ask for it

    click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
