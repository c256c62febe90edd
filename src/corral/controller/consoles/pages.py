"""Console bytes as the API returns them: lines in pages, text in blocks.

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

LINE_BYTES: Final = 16 * 1024
_LONGEST_CHARACTER: Final = 4


class ConsoleLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A line without its line break. A `partial` one continues in the next item, a `continued` one began before it."""

    offset: int
    time: dt.datetime | None
    line: str
    partial: Annotated[bool, msgspec.Meta(description="Cut at 16 KiB, by a gap, or by `before`.")] = False
    continued: Annotated[
        bool, msgspec.Meta(description="Its line began before this item, or the bytes before it are missing.")
    ] = False


class ConsoleGapShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Missing bytes, and why. `late`: their node is disconnected; a follower that stays receives them when
    the node reconnects."""

    from_offset: int
    to_offset: int
    reason: str
    late: bool = False


class ConsolePage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines from an offset on. `gap`: bytes before or among them are lost; `tail` is a last line without an
    end, for information: it is repeated as an item once it is complete. `previous_offset` is the `before` of the page
    before this one, 0 when there is none."""

    incarnation: int
    items: list[ConsoleLine]
    next_offset: int
    previous_offset: int
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
    continued: bool = False,
) -> ConsolePage:
    """Up to `limit` lines of a span that was read from `after` (None: from the oldest).

    `final`: nothing follows, so a last line without an end is a line. `continued`: the first line began earlier.
    """
    items: list[ConsoleLine] = []
    times = Times(span.times)
    tail: ConsoleLine | None = None
    joined = runs(span.pieces)
    next_offset = span.next_offset
    for position, run in enumerate(joined):
        last = position == len(joined) - 1
        used, begun = cut_lines(run, times, items, limit=limit, continued=continued or position > 0)
        left = run.data[used:]
        if len(items) == limit and left:
            next_offset = run.offset + used
            break
        if left and last and not final:
            tail = line_of(run, used, len(run.data), times, partial=True, continued=begun)
            next_offset = tail.offset
        elif left:
            items.append(line_of(run, used, len(run.data), times, partial=not last, continued=begun))
    gaps = _gaps(span, after, next_offset)
    begin = items[0].offset if items else next_offset
    return ConsolePage(
        incarnation=incarnation,
        items=items,
        next_offset=next_offset,
        previous_offset=begin if after is None else after,
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
                page,
                items=items[:at],
                next_offset=item.offset,
                previous_offset=items[0].offset,
                end_offset=item.offset,
                tail=None,
            )
    begin = items[0].offset if since is not None and items else page.previous_offset
    return msgspec.structs.replace(page, items=items, previous_offset=begin)


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


def cut_lines(
    run: Piece, times: Times, items: list[ConsoleLine], *, limit: int, continued: bool = False
) -> tuple[int, bool]:
    """Add the complete lines of contiguous bytes to `items`; returns the number of bytes used, and whether what follows
    continues a line. `continued`: the first of them does."""
    data, begin = run.data, run.offset
    at = 0
    while len(items) < limit:
        end = data.find(b"\n", at, at + LINE_BYTES + 1)
        if end >= 0:
            if continued:
                items.append(line_of(run, at, end, times, continued=True))
                continued = False
            else:  # nearly all lines: what `line_of` does, without the call
                text = data[at : end - 1 if data.endswith(b"\r", at, end) else end].decode("utf-8", "replace")
                items.append(ConsoleLine(offset=begin + at, time=times.at(begin + at), line=text))
            at = end + 1
        elif len(data) - at > LINE_BYTES:
            end = at + whole_characters(data[at : at + LINE_BYTES])
            items.append(line_of(run, at, end, times, partial=True, continued=continued))
            at, continued = end, True
        else:
            break
    return at, continued


def line_of(
    run: Piece, start: int, end: int, times: Times, *, partial: bool = False, continued: bool = False
) -> ConsoleLine:
    offset = run.offset + start
    raw = run.data[start:end]
    if not partial and raw.endswith(b"\r"):
        raw = raw[:-1]
    text = raw.decode("utf-8", "replace")
    return ConsoleLine(offset=offset, time=times.at(offset), line=text, partial=partial, continued=continued)


def _gaps(span: ConsoleSpan, after: int | None, next_offset: int) -> list[ConsoleGapShape]:
    found = [
        gap_shape(gap)
        for gap in span.gaps
        if gap.from_offset < next_offset and (after is None or gap.to_offset > after)
    ]
    if after is None or not span.pieces:
        return found
    begin = span.pieces[0].offset
    if begin > after and not any(gap.from_offset <= after and gap.to_offset >= begin for gap in found):
        missing = MissingBytes(after, begin, "not kept any more")
        found.insert(0, gap_shape(missing))
    return found


def gap_shape(gap: MissingBytes) -> ConsoleGapShape:
    return ConsoleGapShape(from_offset=gap.from_offset, to_offset=gap.to_offset, reason=gap.reason[:500])
