"""Aligned columns without a library: `rich` alone would cost a third of our start."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from corral.cli.failure import printable

GREEN: Final = "32"
YELLOW: Final = "33"
RED: Final = "31"
GREY: Final = "2"

Paint = Callable[[str], str]
"""The colour code of a cell's text; empty for none."""

_STATE_COLOURS: Final = {
    "ONLINE": GREEN,
    "ENROLLED": YELLOW,
    "DISCONNECTED": YELLOW,
    "UNREACHABLE": RED,
    "REVOKED": RED,
    "RUNNING": GREEN,
    "SCHEDULED": YELLOW,
    "PREPARING": YELLOW,
    "STARTING": YELLOW,
    "DRAINING": YELLOW,
    "STOPPING": YELLOW,
    "OFFLINE": RED,
    "CRASHED": RED,
    "STOPPED": GREY,
    "ACTIVE": GREEN,
    "WAITING": YELLOW,
    "FAILED": RED,
    "ABSTRACT": "",
    "MET": GREEN,
    "SHORT": YELLOW,
    "PAUSED": RED,
    "open": "",
    "cordoned": YELLOW,
    "draining": YELLOW,
    "drained": YELLOW,
    "WARN": YELLOW,
    "ERROR": RED,
    "DEBUG": GREY,
    "TRACE": GREY,
}
_GAP: Final = "  "
_NARROWEST: Final = 8
_STRETCHED_NARROWEST: Final = 20
"""A column that takes the rest of the line is not cut below this while another can be left out."""


class ColumnLayout(NamedTuple):
    """How a column gives way on a narrow terminal. `rank` 0 always stays; of the others the highest goes
    first. A stretched one is cut to the room that is left, and a `whole` one last: it is what other commands are given."""

    rank: int = 0
    stretched: bool = False
    whole: bool = False


def paint_state(text: str) -> str:
    return _STATE_COLOURS.get(text, "")


def coloured(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def colour_enabled() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def draw(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    paints: Sequence[Paint | None] = (),
    layouts: Sequence[ColumnLayout] = (),
    width: int | None = None,
    colour: bool = False,
) -> str:
    """Columns as wide as their widest cell. With `width`: columns are left out by rank, empty ones first,
    then stretched ones are cut, then the widest ones, then those that should stay whole."""
    clean = [[_one_line(cell) for cell in row] for row in rows]
    widths = [max([len(title), *(text_width(row[at]) for row in clean)]) for at, title in enumerate(titles)]
    shown = list(range(len(titles)))
    if width is not None:
        layouts = [*layouts, *[ColumnLayout()] * (len(titles) - len(layouts))]
        empty = {at for at in shown if all(row[at] == "-" for row in clean)}
        shown = _fitting(widths, layouts, empty, width)
        _narrow(widths, shown, layouts, width)
    lines = [_line([titles[at] for at in shown], [widths[at] for at in shown])]
    for row in clean:
        codes = [
            paint(row[at]) if (paint := paints[at] if at < len(paints) else None) else "" for at in shown
        ]
        cells = [row[at] for at in shown]
        lines.append(_line(cells, [widths[at] for at in shown], codes if colour else ()))
    return "\n".join(lines)


def terminal_width() -> int | None:
    """The width to cut to; None when the output is not a terminal and must stay whole."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


def _one_line(cell: str) -> str:
    return printable(cell.replace("\n", " "))


def _line(cells: Sequence[str], widths: Sequence[int], codes: Sequence[str] = ()) -> str:
    parts: list[str] = []
    for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        cut = _cut(cell, width)
        padding = " " * (width - text_width(cut)) if at < len(cells) - 1 else ""
        parts.append(coloured(cut, codes[at] if at < len(codes) else "") + padding)
    return _GAP.join(parts).rstrip()


def _fitting(widths: list[int], layouts: Sequence[ColumnLayout], empty: set[int], limit: int) -> list[int]:
    """The columns to show: all, but for those that a narrow terminal has no room for."""
    shown = list(range(len(widths)))
    optional = sorted(
        (at for at in shown if layouts[at].rank), key=lambda at: (at in empty, layouts[at].rank), reverse=True
    )
    for at in optional:
        least = [
            min(widths[each], _STRETCHED_NARROWEST) if layouts[each].stretched else widths[each]
            for each in shown
        ]
        if _total(least) <= limit:
            break
        shown.remove(at)
    return shown


def _narrow(widths: list[int], shown: list[int], layouts: Sequence[ColumnLayout], limit: int) -> None:
    surplus = _total([widths[at] for at in shown]) - limit
    stretched = [at for at in shown if layouts[at].stretched]
    others = [at for at in shown if not layouts[at].whole]
    for candidates, least in ((stretched, _STRETCHED_NARROWEST), (others, _NARROWEST), (shown, _NARROWEST)):
        while surplus > 0 and candidates:
            widest = max(candidates, key=lambda at: widths[at])
            if widths[widest] <= least:
                break  # a terminal this narrow wraps; cutting further would leave nothing
            widths[widest] -= 1
            surplus -= 1


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _cut(text: str, width: int) -> str:
    if text_width(text) <= width:
        return text
    kept = text
    while kept and text_width(kept) > width - 1:
        kept = kept[:-1]
    return kept + "…"


def text_width(text: str) -> int:
    """Terminal cells a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)
