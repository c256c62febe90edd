"""Output of a command: a table for people, JSON or YAML for programs, names for pipes.

`-o json` of a list has the API's own shape, `{"items": […], "next": null}`; of a stream, one
object a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from corral.cli.failure import printable
from corral.cli.terminal.table import (
    ColumnLayout,
    Paint,
    colour_enabled,
    coloured,
    draw,
    paint_state,
    terminal_width,
)
from corral.cli.terminal.values import natural_order

F = TypeVar("F", bound=Callable[..., Any])
Item = Mapping[str, Any]

FORMATS: Final = ("table", "wide", "json", "yaml", "name")
_WIDE: Final = "corral.wide"


def output_option(command: F) -> F:
    """The `-o` every command takes."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        callback=_form,
        help="Form of the result; 'wide' is a table with every column, whatever the terminal's width.",
    )(command)


def _form(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    del parameter
    ctx.meta[_WIDE] = value == "wide"
    return "table" if value == "wide" else value


def _width() -> int | None:
    """The width that a table is fitted into; None: nothing is left out or cut."""
    return None if _is_wide() else terminal_width()


def _is_wide() -> bool:
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(_WIDE))


def limit_option(default: int) -> Callable[[F], F]:
    """The `-n` of lists that may be long."""
    return click.option(
        "-n",
        "--limit",
        type=click.IntRange(1, 100_000),
        default=default,
        show_default=True,
        help="At most so many.",
    )


class Column:
    """A title, where its text comes from, how it is coloured, and how it gives way on a narrow terminal
    (see `ColumnLayout`); with `wide` it is shown with '-o wide' only."""

    __slots__ = ("layout", "paint", "text", "title", "wide")

    def __init__(
        self,
        title: str,
        text: str | Callable[[Item], str],
        *,
        paint: Paint | None = None,
        rank: int = 0,
        stretched: bool = False,
        whole: bool = False,
        wide: bool = False,
    ) -> None:
        self.title = title
        self.wide = wide
        self.paint = paint
        self.layout = ColumnLayout(rank, stretched, whole)
        self.text: Callable[[Item], str] = (
            (lambda item: plain(item.get(text))) if isinstance(text, str) else text
        )


def state_column(title: str, key: str | Callable[[Item], str], *, rank: int = 0) -> Column:
    return Column(title, key, paint=paint_state, rank=rank)


def plain(value: Any) -> str:
    """A value as one cell; what is missing or empty is a dash."""
    if _missing(value):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={inner}" for key, inner in value.items())
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def details(fields: Any) -> str:
    """The fields of an event or a log record for people: none that is empty, of a nested one its summary
    if it has one."""
    if not isinstance(fields, Mapping):
        return plain(fields)
    return " ".join(f"{key}={_detail(value)}" for key, value in fields.items() if not _missing(value)) or "-"


def _detail(value: Any) -> str:
    if isinstance(value, Mapping):
        if not _missing(value.get("summary")):
            return _quoted(str(value["summary"]))
        return "{" + ", ".join(f"{k}: {_detail(v)}" for k, v in value.items() if not _missing(v)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_detail, value)) + "]"
    return _quoted(plain(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if " " in text else text


def _missing(value: Any) -> bool:
    return value is None or value == "" or value == [] or value == {}


def show_list(
    output: str,
    items: Sequence[Item],
    *,
    columns: Sequence[Column],
    name: str = "id",
    by_name: bool = False,
    page: Item | None = None,
) -> None:
    """`by_name`: a table, and a list of names, is sorted by it as people count, w-6 before w-10. `page`: what else an answer
    has, when it may not be all there is."""
    if output == "table":
        click.echo(list_table(items, columns, by=name if by_name else None))
    elif output == "name":
        _show_names(_sorted(items, name) if by_name else items, name)
    else:
        _show_document(output, {"items": list(items), "next": None, **(page or {})})


def _sorted(items: Sequence[Item], by: str) -> Sequence[Item]:
    return sorted(items, key=lambda item: natural_order(str(item.get(by, ""))))


def list_table(items: Sequence[Item], columns: Sequence[Column], *, by: str | None = None) -> str:
    if by is not None:
        items = _sorted(items, by)
    columns = [column for column in columns if _is_wide() or not column.wide]
    return draw(
        [column.title for column in columns],
        [[column.text(item) for column in columns] for item in items],
        paints=[column.paint for column in columns],
        layouts=[column.layout for column in columns],
        width=_width(),
        colour=colour_enabled(),
    )


def show_one(output: str, item: Item, *, rows: Sequence[tuple[str, str]], name: str = "id") -> None:
    if output == "table":
        widest = max(len(title) for title, _ in rows)
        for title, text in rows:
            shown = coloured(printable(text), paint_state(text)) if colour_enabled() else printable(text)
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
        click.echo(_as_json(item))
    else:
        click.echo("---")
        _show_document(output, item)


def _show_names(items: Iterable[Item], name: str) -> None:
    for item in items:
        click.echo(printable(str(item.get(name, ""))))


def _show_document(output: str, document: Any) -> None:
    if output == "json":
        click.echo(_as_json(document, indent=2))
        return
    import yaml  # half of our start-up budget, and few ask for it

    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    if not _is_harmless(text):
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=False)
    click.echo(text, nl=False)


def _as_json(document: Any, *, indent: int | None = None) -> str:
    """With escapes for what would steer a terminal: for programs it is the same value."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    if _is_harmless(text):
        return text
    return "".join(sign if _is_harmless(sign) else json.dumps(sign)[1:-1] for sign in text)


def _is_harmless(text: str) -> bool:
    return text.replace("\n", "").isprintable()
