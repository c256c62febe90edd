"""Searches of consoles: lines that match a pattern, with where they match; forwards or backwards, in one run or in all.

The nodes search, in RE2, and each request is bounded: by its lines, by the text that a node reads for it, and over
several runs by their number and a time. A cursor leads on from there.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec

from corral.controller.consoles.lookup import never_ran
from corral.controller.consoles.node_queries import ANSWER_BYTES, NodeConsoleQueries
from corral.controller.consoles.pages import LINE_BYTES, ConsoleGapShape, gap_shape, whole_characters
from corral.controller.consoles.run_list import InstanceRuns, node_of
from corral.controller.consoles.span import EMPTY, ConsoleSpan, Piece, Times
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import MAX_COUNTER, Incarnation
from corral.domain.patterns import BytesPattern, compile_line_search
from corral.errors import Code, CorralError, Rejected
from corral.system.clock import Clock
from corral.system.threads import check_cancelled, to_end
from corral.wire.v1.instance_pb2 import ConsoleQuery

AT_ONCE: Final = 2
"""Answers of nodes that are looked through on threads at once: the process's other work has the other threads."""
_RUNS: Final = 16
_SECONDS: Final = 5.0
"""What one request goes through of several runs."""
_RANGE_SECONDS: Final = 1.0
"""In which the ranges of an answer are found; lines behind that are shown without."""
_LINE_MATCHES: Final = 50
_LINE_TRIES: Final = 500
"""Matches of a line that are looked at, those of nothing included: `a*` has one of them at every byte."""
_MATCHES: Final = 10_000
_PLACE: Final = re.compile(r"([fb])([oa])-([1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18}|end)")

Range = tuple[int, int]


class ConsoleMatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A line that matches. `match` has where, as [start, end) in characters (Unicode code points) of `line`: the first 50
    of a line, none that are empty. Of many lines and an expensive pattern the last ones have none."""

    incarnation: int
    offset: int
    time: dt.datetime | None
    line: str
    match: list[Range] = msgspec.field(default_factory=list)
    partial: Annotated[
        bool, msgspec.Meta(description="Of a line over 16 KiB only a part that matches is here.")
    ] = False


class ConsoleMatches(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that match, in the order of the search: backwards the newest first. `next` is the cursor that goes on with it,
    also when there are no lines; null: everything was searched. The other fields are those of a page, of the run that
    was searched last; `notes` names what could not be."""

    items: list[ConsoleMatch]
    next: str | None
    notes: list[str]
    incarnation: int
    next_offset: int
    gap: bool
    gaps: list[ConsoleGapShape]
    first_offset: int
    end_offset: int


class SearchPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a search goes on, and how. `offset` None: at the end of the run."""

    backwards: bool
    every_run: bool
    incarnation: Incarnation
    offset: int | None

    def __str__(self) -> str:
        how = ("b" if self.backwards else "f") + ("a" if self.every_run else "o")
        return f"{how}-{self.incarnation}-{'end' if self.offset is None else self.offset}"

    @staticmethod
    def parse(text: str) -> SearchPlace:
        found = _PLACE.fullmatch(text)
        if (
            found is None
            or int(found[3]) > MAX_COUNTER
            or (found[4] != "end" and int(found[4]) > MAX_COUNTER)
        ):
            raise Rejected(Code.INVALID_CURSOR, "the cursor is not one of a search", field="cursor")
        return SearchPlace(
            backwards=found[1] == "b",
            every_run=found[2] == "a",
            incarnation=Incarnation(int(found[3])),
            offset=None if found[4] == "end" else int(found[4]),
        )


class ConsoleSearches:
    """Searches of all consoles of a term."""

    def __init__(self, *, history: NodeConsoleQueries, runs: InstanceRuns, clock: Clock) -> None:
        self._history = history
        self._runs = runs
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def first_place(self, record: InstanceRecord, *, backwards: bool) -> tuple[SearchPlace, list[str]]:
        """Where a search of all runs begins: at the end of the newest, or at the beginning of the oldest that is kept; and
        notes about what may lie before."""
        run = record.incarnation
        notes: list[str] = []
        if not backwards:
            run = await self._following(record, Incarnation(0), notes)
        place = SearchPlace(
            backwards=backwards, every_run=True, incarnation=run, offset=None if backwards else 0
        )
        return place, notes

    async def search(
        self,
        record: InstanceRecord,
        place: SearchPlace,
        *,
        pattern: str,
        limit: int,
        noted: Sequence[str] = (),
    ) -> ConsoleMatches:
        """Up to `limit` lines from `place` on, with what was `noted` already. INVALID_PATTERN is raised without a query; what a node answers, if the one
        run cannot be searched: of several runs such a one is left out and noted."""
        compiled = compile_line_search(pattern)
        items: list[ConsoleMatch] = []
        notes = list(noted)
        deadline = self._clock.monotonic() + _SECONDS
        room = _MATCHES
        for _ in range(_RUNS):
            span = await self._span(record, place, pattern, limit - len(items), notes)
            async with self._turns:
                found = await to_end(matches_of, span, place, compiled, room, self._over_in(_RANGE_SECONDS))
            items += found
            room -= sum(len(item.match) for item in found)
            place, over = _moved(place, span)
            full = (
                len(items) >= limit or room <= 0 or sum(len(item.line) for item in items) > ANSWER_BYTES // 2
            )
            if not over or full or not place.every_run:
                break
            following = await self._next_run(record, place, notes)
            if following is None:
                return _answer(items, notes, span, place, next=None)
            place = following
            if self._clock.monotonic() > deadline:
                break
        ended = over and not place.every_run
        return _answer(items, notes, span, place, next=None if ended else str(place))

    def _over_in(self, seconds: float) -> Callable[[], bool]:
        deadline = self._clock.monotonic() + seconds
        return lambda: self._clock.monotonic() > deadline

    async def _span(
        self, record: InstanceRecord, place: SearchPlace, pattern: str, limit: int, notes: list[str]
    ) -> ConsoleSpan:
        """What the node of the run finds from there on; nothing of a run that has not begun."""
        done = place.backwards and place.offset == 0
        if done or never_ran(record, place.incarnation):
            return EMPTY
        query = ConsoleQuery(
            instance_id=record.id,
            incarnation=place.incarnation,
            from_offset=0 if place.backwards else place.offset or 0,
            to_offset=place.offset or 0 if place.backwards else 0,
            pattern=pattern,
            max_lines=limit,
            max_bytes=ANSWER_BYTES,
            newest=place.backwards,
        )
        try:
            return await self._history.ask(node_of(record, place.incarnation), query)
        except CorralError as error:
            if not place.every_run or error.code is Code.INVALID_PATTERN:
                raise
            notes.append(f"run {place.incarnation} was not searched: {error.message}")
            return EMPTY

    async def _next_run(
        self, record: InstanceRecord, place: SearchPlace, notes: list[str]
    ) -> SearchPlace | None:
        if place.backwards:
            listed = await self._runs.listed(record, before=place.incarnation, limit=1)
            notes += [note for note in listed.notes if note not in notes]
            if not listed.runs:
                return None
            run, offset = Incarnation(listed.runs[0].incarnation), None
        elif place.incarnation >= record.incarnation:
            return None
        else:
            run, offset = await self._following(record, place.incarnation, notes), 0
        return msgspec.structs.replace(place, incarnation=run, offset=offset)

    async def _following(self, record: InstanceRecord, after: Incarnation, notes: list[str]) -> Incarnation:
        try:
            step = await self._runs.following(record, after)
        except CorralError as error:
            step = self._runs.held(record, after)
            between = f"between {after} and" if after else "before"
            notes.append(f"runs {between} {step.incarnation} may be missing: {error.message}")
        return step.incarnation


def _moved(place: SearchPlace, span: ConsoleSpan) -> tuple[SearchPlace, bool]:
    """Where the search of a run has come to, and whether that is all of it. A node that gets nowhere has ended it."""
    reached = span.next_offset
    if place.backwards:
        over = reached <= span.first_offset or (place.offset is not None and reached >= place.offset)
        return msgspec.structs.replace(place, offset=0 if over else reached), over
    over = reached >= span.end_offset or reached <= (place.offset or 0)
    return msgspec.structs.replace(place, offset=max(reached, place.offset or 0)), over


def _answer(
    items: list[ConsoleMatch], notes: list[str], span: ConsoleSpan, place: SearchPlace, *, next: str | None
) -> ConsoleMatches:
    return ConsoleMatches(
        items=items,
        next=next,
        notes=notes,
        incarnation=place.incarnation,
        next_offset=place.offset if place.offset is not None else span.next_offset,
        gap=bool(span.gaps),
        gaps=[gap_shape(gap) for gap in span.gaps],
        first_offset=span.first_offset,
        end_offset=span.end_offset,
    )


def matches_of(
    span: ConsoleSpan,
    place: SearchPlace,
    pattern: BytesPattern,
    room: int = _MATCHES,
    over: Callable[[], bool] = lambda: False,
) -> list[ConsoleMatch]:
    """The lines of a node's answer, one a piece, in the order of the search, with at most `room` ranges in all, and none
    once it is `over`."""
    times = Times(span.times)
    found = []
    for piece in reversed(span.pieces) if place.backwards else span.pieces:
        check_cancelled()
        item = _match(
            piece, times, pattern, place.incarnation, span.end_offset, min(room, _LINE_MATCHES), over
        )
        room -= len(item.match)
        found.append(item)
    return found


def _match(
    piece: Piece,
    times: Times,
    pattern: BytesPattern,
    run: Incarnation,
    end: int,
    room: int,
    over: Callable[[], bool],
) -> ConsoleMatch:
    partial = not piece.data.endswith(b"\n") and piece.end < end
    raw = piece.data.removesuffix(b"\n")
    raw = raw if partial else raw.removesuffix(b"\r")
    cut = whole_characters(raw[:LINE_BYTES]) if partial or len(raw) > LINE_BYTES else len(raw)
    return ConsoleMatch(
        incarnation=run,
        offset=piece.offset,
        time=times.at(piece.offset),
        line=raw[:cut].decode("utf-8", "replace"),
        match=_ranges(raw[:cut], pattern, room, over),
        partial=partial or cut < len(raw),
    )


def _ranges(raw: bytes, pattern: BytesPattern, room: int, over: Callable[[], bool]) -> list[Range]:
    """Where the pattern matches, in characters of the text that these bytes are shown as."""
    found: list[Range] = []
    at = characters = 0
    if over():
        return found
    for match in itertools.islice(pattern.finditer(raw), _LINE_TRIES):
        if len(found) >= room or over():
            break
        if match.end() == match.start():
            continue
        begin = characters + len(raw[at : match.start()].decode("utf-8", "replace"))
        at = match.end()
        characters = begin + len(raw[match.start() : at].decode("utf-8", "replace"))
        found.append((begin, characters))
    return found
