"""Aligned columns without a library: `rich` alone would cost a third of our start."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

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


def paint_state(text: str) -> str:
    return _STATE_COLOURS.get(text, "")


def coloured(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def wants_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def draw(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    paints: Sequence[Paint | None] = (),
    width: int | None = None,
    colour: bool = False,
) -> str:
    """Columns as wide as their widest cell; with `width`, the widest ones give way first."""
    clean = [[_one_line(cell) for cell in row] for row in rows]
    widths = [max([len(title), *(text_width(row[at]) for row in clean)]) for at, title in enumerate(titles)]
    if width is not None:
        _narrow(widths, width)
    lines = [_line(titles, widths)]
    for row in clean:
        codes = [paint(cell) if paint else "" for paint, cell in zip(paints, row, strict=False)]
        lines.append(_line(row, widths, codes if colour else ()))
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


def _narrow(widths: list[int], limit: int) -> None:
    surplus = sum(widths) + len(_GAP) * (len(widths) - 1) - limit
    while surplus > 0:
        widest = max(range(len(widths)), key=lambda at: widths[at])
        if widths[widest] <= _NARROWEST:
            return  # a terminal this narrow wraps; cutting further would say nothing
        widths[widest] -= 1
        surplus -= 1


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
