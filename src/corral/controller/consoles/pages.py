"""Console bytes as the API returns them: lines in pages, text in blocks, lines that match a pattern.

The bytes are untrusted: what is not UTF-8 is replaced, a line is cut after `LINE_BYTES`, and nothing is
interpreted. Escape codes stay in the text as plain characters; the code that displays it has to neutralise
them.
"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Final

import msgspec

from corral.controller.consoles.span import ConsoleSpan, MissingBytes, Piece, Times, runs
from corral.domain.ids import Incarnation
from corral.domain.patterns import compile_pattern

LINE_BYTES: Final = 16 * 1024
_LONGEST_CHARACTER: Final = 4


class ConsoleLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A line without its line break. A `partial` one continues in the next item."""

    offset: int
    time: dt.datetime | None
    line: str
    partial: Annotated[bool, msgspec.Meta(description="Cut at 16 KiB, or by a gap.")] = False


class ConsoleGapShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Missing bytes, and why. `late`: their node is disconnected; a follower that stays receives them when
    the node reconnects."""

    from_offset: int
    to_offset: int
    reason: str
    late: bool = False


class ConsolePage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines from an offset on. `gap`: bytes before or among them are lost; `tail` is a last line without an
    end, for information: it is repeated as an item once it is complete."""

    incarnation: int
    items: list[ConsoleLine]
    next_offset: int
    gap: bool
    gaps: list[ConsoleGapShape]
    first_offset: int
    end_offset: int
    tail: ConsoleLine | None


class ConsoleText(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive bytes as text, not split into lines."""

    offset: int
    time: dt.datetime | None
    text: str
    next_offset: int
    gap: bool


def page_of(
    span: ConsoleSpan,
    *,
    incarnation: Incarnation,
    after: int | None,
    limit: int,
    final: bool,
) -> ConsolePage:
    """Up to `limit` lines of a span that was read from `after` (None: from the oldest).

    `final`: nothing follows, so a last line without an end is a line.
    """
    items: list[ConsoleLine] = []
    times = Times(span.times)
    tail: ConsoleLine | None = None
    joined = runs(span.pieces)
    next_offset = span.next_offset
    for position, run in enumerate(joined):
        last = position == len(joined) - 1
        used = _cut_lines(run, times, items, limit=limit)
        left = run.data[used:]
        if len(items) == limit and left:
            next_offset = run.offset + used
            break
        if left and last and not final:
            tail = _line(run, used, len(run.data), times, partial=True)
            next_offset = tail.offset
        elif left:
            items.append(_line(run, used, len(run.data), times, partial=not last))
    gaps = _gaps(span, after, next_offset)
    return ConsolePage(
        incarnation=incarnation,
        items=items,
        next_offset=next_offset,
        gap=bool(gaps),
        gaps=gaps,
        first_offset=span.first_offset,
        end_offset=span.end_offset,
        tail=tail,
    )


def within(page: ConsolePage, *, since: dt.datetime | None, until: dt.datetime | None) -> ConsolePage:
    """Only the lines of this time; the page ends after the last one."""
    items = [item for item in page.items if since is None or item.time is None or item.time >= since]
    for at, item in enumerate(items):
        if until is not None and item.time is not None and item.time >= until:
            return msgspec.structs.replace(
                page, items=items[:at], next_offset=item.offset, end_offset=item.offset, tail=None
            )
    return msgspec.structs.replace(page, items=items)


def matches_of(span: ConsoleSpan, *, incarnation: Incarnation, limit: int) -> ConsolePage:
    """A page whose pieces are one matching line each."""
    times = Times(span.times)
    items = []
    for piece in span.pieces[:limit]:
        whole = piece.data.rstrip(b"\n")
        cut = whole_characters(whole[:LINE_BYTES])
        items.append(_line(Piece(piece.offset, whole), 0, cut, times, partial=cut < len(whole)))
    return ConsolePage(
        incarnation=incarnation,
        items=items,
        next_offset=span.next_offset,
        gap=bool(span.gaps),
        gaps=[_gap_shape(gap) for gap in span.gaps],
        first_offset=span.first_offset,
        end_offset=span.end_offset,
        tail=None,
    )


def texts_of(span: ConsoleSpan, *, after: int, final: bool) -> list[ConsoleText]:
    """The span as text, one piece for each contiguous part; an incomplete character is left for the next
    read."""
    times = Times(span.times)
    joined = runs(span.pieces)
    found: list[ConsoleText] = []
    end = after
    for position, run in enumerate(joined):
        waits = position == len(joined) - 1 and not final
        length = whole_characters(run.data) if waits else len(run.data)
        if not length:
            continue
        text = run.data[:length].decode("utf-8", "replace")
        found.append(
            ConsoleText(
                offset=run.offset,
                time=times.at(run.offset),
                text=text,
                next_offset=run.offset + length,
                gap=run.offset > end,
            )
        )
        end = run.offset + length
    return found


def whole_characters(data: bytes) -> int:
    """The number of bytes before a trailing incomplete UTF-8 character."""
    for back in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if needs > back else len(data)
    return len(data)


def _cut_lines(run: Piece, times: Times, items: list[ConsoleLine], *, limit: int) -> int:
    """Add the complete lines of contiguous bytes to `items`; returns the number of bytes used."""
    data = run.data
    at = 0
    while len(items) < limit:
        end = data.find(b"\n", at, at + LINE_BYTES + 1)
        if end >= 0:
            items.append(_line(run, at, end, times))
            at = end + 1
        elif len(data) - at > LINE_BYTES:
            end = at + whole_characters(data[at : at + LINE_BYTES])
            items.append(_line(run, at, end, times, partial=True))
            at = end
        else:
            break
    return at


def _line(run: Piece, start: int, end: int, times: Times, *, partial: bool = False) -> ConsoleLine:
    offset = run.offset + start
    raw = run.data[start:end]
    if not partial and raw.endswith(b"\r"):
        raw = raw[:-1]
    return ConsoleLine(
        offset=offset, time=times.at(offset), line=raw.decode("utf-8", "replace"), partial=partial
    )


def _gaps(span: ConsoleSpan, after: int | None, next_offset: int) -> list[ConsoleGapShape]:
    found = [
        _gap_shape(gap)
        for gap in span.gaps
        if gap.from_offset < next_offset and (after is None or gap.to_offset > after)
    ]
    if after is None or not span.pieces:
        return found
    begin = span.pieces[0].offset
    if begin > after and not any(gap.from_offset <= after and gap.to_offset >= begin for gap in found):
        missing = MissingBytes(after, begin, "not kept any more")
        found.insert(0, _gap_shape(missing))
    return found


def _gap_shape(gap: MissingBytes) -> ConsoleGapShape:
    return ConsoleGapShape(from_offset=gap.from_offset, to_offset=gap.to_offset, reason=gap.reason[:500])


PATTERN_MAX: Final = 1000


def check_pattern(pattern: str) -> str:
    """The pattern itself; INVALID_PATTERN with RE2's message when it is invalid."""
    compile_pattern(pattern, field="pattern")
    return pattern
