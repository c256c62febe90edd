"""Pages of a console read backwards: the lines that end before an offset, as far as a window of bytes reaches.

A page begins where a line does, unless one line is longer than the window: then its first item says so
(`continued`), and the page before it ends within that line (`partial`). Together, pages read backwards have the bytes
of pages read forwards.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from corral.controller.consoles.pages import ConsoleLine, ConsolePage, cut_lines, gap_shape, line_of
from corral.controller.consoles.span import ConsoleSpan, Piece, Times, runs
from corral.domain.ids import Incarnation

_NO_LIMIT: Final = 1 << 30
_CHARACTER_REST: Final = 3
"""The bytes of a character behind its first one, at most."""


class SpanStart(enum.Enum):
    """What lies before the first byte of a span."""

    LINE_END = "line end"
    """Nothing, or the end of a line."""
    GAP = "gap"
    """Missing bytes, so possibly the beginning of the first line."""
    SAME_LINE = "same line"
    """Bytes of the same line, which another page has."""


def page_before(
    span: ConsoleSpan,
    *,
    incarnation: Incarnation,
    before: int | None,
    limit: int,
    final: bool,
    start: SpanStart,
) -> ConsolePage:
    """Up to `limit` lines that end at `before` (None: at the end of the console); a line that `before` cuts ends with
    a `partial` item. `final`: nothing is written any more, so a last line without an end is a line."""
    end = span.end_offset if before is None else min(before, span.end_offset)
    times = Times(span.times)
    parts, start = _last_lines(_up_to(runs(span.pieces), end), limit, start)
    if parts and start is SpanStart.SAME_LINE:
        parts[0], start = _from_character(parts[0])
    items: list[ConsoleLine] = []
    tail: ConsoleLine | None = None
    for position, part in enumerate(parts):
        begun = position > 0 or start is not SpanStart.LINE_END
        used, begun = cut_lines(part, times, items, limit=_NO_LIMIT, continued=begun)
        if used == len(part.data):
            continue
        open_end = position == len(parts) - 1 and end == span.end_offset
        left = line_of(part, used, len(part.data), times, partial=not (open_end and final), continued=begun)
        if open_end and not final:
            tail = left
        else:
            items.append(left)
    return _page(span, incarnation, items[-limit:], tail, end=end)


def _page(
    span: ConsoleSpan,
    incarnation: Incarnation,
    items: list[ConsoleLine],
    tail: ConsoleLine | None,
    *,
    end: int,
) -> ConsolePage:
    first = items[0] if items else tail
    begin = first.offset if first is not None and first.offset > span.first_offset else 0
    gaps = [gap_shape(gap) for gap in span.gaps if gap.to_offset > begin and gap.from_offset < end]
    return ConsolePage(
        incarnation=incarnation,
        items=items,
        next_offset=tail.offset if tail is not None else end,
        previous_offset=begin,
        gap=bool(gaps),
        gaps=gaps,
        first_offset=span.first_offset,
        end_offset=span.end_offset,
        tail=tail,
    )


def _up_to(parts: Sequence[Piece], end: int) -> list[Piece]:
    return [
        part if part.end <= end else Piece(part.offset, part.data[: end - part.offset])
        for part in parts
        if part.offset < end
    ]


def _last_lines(parts: Sequence[Piece], limit: int, start: SpanStart) -> tuple[list[Piece], SpanStart]:
    """The last lines of contiguous parts, and what lies before them; `start`: before all of the parts."""
    kept: list[Piece] = []
    missing = limit
    for part in reversed(parts):
        data = part.data
        end = len(data) - data.endswith(b"\n")  # a last line break ends a line and begins none
        while (found := data.rfind(b"\n", 0, end)) >= 0:
            missing -= 1
            if not missing:
                kept.append(Piece(part.offset + found + 1, data[found + 1 :]))
                return kept[::-1], SpanStart.LINE_END
            end = found
        missing -= 1
        kept.append(part)
        if not missing:
            break
    return kept[::-1], start if len(kept) == len(parts) else SpanStart.GAP


def _from_character(part: Piece) -> tuple[Piece, SpanStart]:
    """The part from where a character begins in it; from behind a line break, if that is what comes there: the bytes
    before belong to the page before."""
    data, at = part.data, 0
    while at < min(_CHARACTER_REST, len(data) - 1) and data[at] & 0xC0 == 0x80:
        at += 1
    ends_line = data[at : at + 1] == b"\n" and at + 1 < len(data)
    at += ends_line
    start = SpanStart.LINE_END if ends_line else SpanStart.SAME_LINE
    return Piece(part.offset + at, data[at:]), start
