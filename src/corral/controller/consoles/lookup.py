"""Parts of consoles by offset, time or pattern: from the ring in memory where it reaches, else from the node."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from corral.controller.consoles.back_pages import SpanStart, page_before
from corral.controller.consoles.node_queries import ANSWER_BYTES, NodeConsoleQueries, no_times, offline
from corral.controller.consoles.pages import ConsolePage, page_of, within
from corral.controller.consoles.rings import Rings
from corral.controller.consoles.run_list import node_of
from corral.controller.consoles.span import EMPTY, ConsoleSpan, MissingBytes, without_first_byte
from corral.controller.sessions.node_links import NodeLinks
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.ids import Incarnation
from corral.domain.instance_states import InstanceState
from corral.errors import Code, CorralError
from corral.wire.v1.instance_pb2 import ConsoleQuery

PAGE_BYTES: Final = 256 * 1024
_NOT_YET: Final = frozenset({InstanceState.SCHEDULED, InstanceState.PREPARING})


class ConsoleLookup:
    """Reads of all consoles of a term."""

    def __init__(self, *, rings: Rings, history: NodeConsoleQueries, links: NodeLinks) -> None:
        self._rings = rings
        self._history = history
        self._links = links

    async def page(
        self,
        record: InstanceRecord,
        incarnation: Incarnation,
        *,
        after: int | None,
        limit: int,
        newest: bool,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
    ) -> ConsolePage:
        """Lines of a run, from the ring or the node. `after` None: from the oldest that is kept. With `since`
        and `until`: the lines of that time; `newest` applies to a console as a whole."""
        if newest:
            return await self.before(record, incarnation, None, limit=limit)
        continued = False
        if since is not None or until is not None:
            span = await self._timed(record, incarnation, after or 0, since=since, until=until)
            after = None if since is not None else after
        elif after is None:
            span = await self.span(record, incarnation, 0, max_bytes=PAGE_BYTES)
            continued = bool(span.pieces) and span.pieces[0].offset > 0
        else:
            span, continued = await self._from(record, incarnation, after)
        final = has_ended(record, incarnation) and span.next_offset >= span.end_offset
        page = page_of(
            span, incarnation=incarnation, after=after, limit=limit, final=final, continued=continued
        )
        return within(page, since=since, until=until)

    async def _from(
        self, record: InstanceRecord, incarnation: Incarnation, after: int
    ) -> tuple[ConsoleSpan, bool]:
        """The bytes from an offset on, and whether a line goes on there, by the byte before it. Of the first byte in the
        ring that is not known; another query for it is not worth it."""
        ring = self._rings.find((record.id, incarnation))
        if after == 0 or (ring is not None and after == ring.begin):
            return await self.span(record, incarnation, after, max_bytes=PAGE_BYTES), False
        span = await self.span(record, incarnation, after - 1, max_bytes=PAGE_BYTES + 1)
        if not span.pieces or span.pieces[0].offset >= after:
            return span, bool(span.pieces)
        continued = not span.pieces[0].data.startswith(b"\n")
        rest = without_first_byte(span)
        if not rest.pieces and span.next_offset < span.end_offset:  # a node cuts behind the last line end
            rest = await self.span(record, incarnation, after, max_bytes=PAGE_BYTES)
        return rest, continued

    async def before(
        self,
        record: InstanceRecord,
        incarnation: Incarnation,
        before: int | None,
        *,
        limit: int,
    ) -> ConsolePage:
        """The lines that end before an offset; None: the last ones. They cost the same wherever they are."""
        found = self._held_before(record, incarnation, before, limit=limit)
        if found is None and (before == 0 or never_ran(record, incarnation)):
            found = EMPTY, SpanStart.LINE_END
        if found is None:
            found = await self._asked_before(record, incarnation, before, limit=limit)
        span, start = found
        final = has_ended(record, incarnation)
        return page_before(
            span, incarnation=incarnation, before=before, limit=limit, final=final, start=start
        )

    def _held_before(
        self, record: InstanceRecord, incarnation: Incarnation, before: int | None, *, limit: int
    ) -> tuple[ConsoleSpan, SpanStart] | None:
        """These lines from the ring; None: it does not have all of them, and the node can be asked for the rest."""
        ring = self._rings.find((record.id, incarnation))
        if ring is None or not (before is None or ring.begin < before <= ring.end):
            return None
        end = ring.end if before is None else before
        begin = ring.newest(limit, end)
        connected = self._links.find(node_of(record, incarnation)) is not None
        if begin <= ring.begin and ring.begin > 0 and connected:
            return None
        floor = end - _window_bytes(before)
        span = ring.span(max(begin, floor), max_bytes=end - max(begin, floor))
        if begin < floor:
            return _cut(span)
        return span, SpanStart.GAP if begin <= ring.begin and begin > 0 else SpanStart.LINE_END

    async def _asked_before(
        self, record: InstanceRecord, incarnation: Incarnation, before: int | None, *, limit: int
    ) -> tuple[ConsoleSpan, SpanStart]:
        """These lines from the node; the last ones from the ring if it cannot be asked."""
        max_bytes = _window_bytes(before)
        query = ConsoleQuery(
            instance_id=record.id,
            incarnation=incarnation,
            to_offset=before or 0,
            max_bytes=max_bytes,
            newest=True,
        )
        try:
            span = await self._ask(record, incarnation, query)
        except CorralError:
            ring = self._rings.find((record.id, incarnation))
            if ring is None or before is not None:
                raise
            return ring.span(ring.newest(limit), max_bytes=ANSWER_BYTES), SpanStart.GAP
        first = span.pieces[0] if span.pieces else None
        if first is None or first.offset == 0:
            return span, SpanStart.LINE_END
        if first.offset <= span.first_offset or any(gap.to_offset == first.offset for gap in span.gaps):
            return span, SpanStart.GAP
        if span.pieces[-1].end - first.offset < max_bytes:
            return span, SpanStart.LINE_END  # the node looked for one from where its window began
        return _cut(span)

    async def around(
        self, record: InstanceRecord, incarnation: Incarnation, at: dt.datetime, *, limit: int
    ) -> ConsolePage:
        """The lines before and from a time on, half of each where there are enough."""
        place = await self._offset_at(record, incarnation, at)
        later = await self.page(record, incarnation, after=place, limit=limit - limit // 2, newest=False)
        if limit < 2 or place == 0:
            return later
        earlier = await self.before(record, incarnation, place, limit=limit - len(later.items))
        gaps = [*earlier.gaps, *(gap for gap in later.gaps if gap not in earlier.gaps)]
        return msgspec.structs.replace(
            later,
            items=[*earlier.items, *later.items],
            previous_offset=earlier.previous_offset,
            gap=bool(gaps),
            gaps=gaps,
        )

    async def _offset_at(self, record: InstanceRecord, incarnation: Incarnation, at: dt.datetime) -> int:
        """Where the first line of that time or later begins; the end of the console when all are older."""
        if never_ran(record, incarnation):
            return 0
        node, ring = node_of(record, incarnation), self._rings.find((record.id, incarnation))
        link = self._links.find(node)
        if link is None or not link.facts.supports.run_lists:
            place = ring.since(_milliseconds(at)) if ring is not None else None
            if place is None:
                raise offline(node) if link is None else no_times(node)
            return place
        query = ConsoleQuery(
            instance_id=record.id, incarnation=incarnation, since_ms=_milliseconds(at), max_bytes=1
        )
        span = await self._ask(record, incarnation, query)
        return span.pieces[0].offset if span.pieces else span.end_offset

    async def _ask(
        self, record: InstanceRecord, incarnation: Incarnation, query: ConsoleQuery
    ) -> ConsoleSpan:
        """The node's answer, and what it keeps at all is noted."""
        span = await self._history.ask(node_of(record, incarnation), query)
        if (ring := self._rings.find((record.id, incarnation))) is not None:
            ring.oldest = span.first_offset
        return span

    async def _timed(
        self,
        record: InstanceRecord,
        incarnation: Incarnation,
        after: int,
        *,
        since: dt.datetime | None,
        until: dt.datetime | None,
    ) -> ConsoleSpan:
        """A span that covers the bytes between two times: found by an index, here or on the node; lines are
        compared later."""
        ring = self._rings.find((record.id, incarnation))
        if ring is not None:
            begin = ring.since(_milliseconds(since)) if since is not None else 0
            if begin is not None and ring.reaches(max(after, begin)):
                return ring.span(max(after, begin), max_bytes=PAGE_BYTES)
        if ring is None and never_ran(record, incarnation):
            return EMPTY
        query = ConsoleQuery(
            instance_id=record.id,
            incarnation=incarnation,
            from_offset=after,
            max_bytes=PAGE_BYTES,
            since_ms=_milliseconds(since) if since is not None else 0,
            until_ms=_milliseconds(until) if until is not None else 0,
        )
        return await self._ask(record, incarnation, query)

    async def span(
        self, record: InstanceRecord, incarnation: Incarnation, after: int, *, max_bytes: int
    ) -> ConsoleSpan:
        """Bytes of a run from an offset: from the ring when it reaches there, else from the node. For a
        daemon that does not answer queries: the content of the ring, and a gap before it."""
        ring = self._rings.find((record.id, incarnation))
        if ring is not None and ring.reaches(after):
            return ring.span(after, max_bytes=max_bytes)
        if ring is None and never_ran(record, incarnation):
            return EMPTY
        try:
            return await self.from_node(record, incarnation, after, max_bytes=max_bytes)
        except CorralError as error:
            ring = self._rings.find((record.id, incarnation))
            if error.code is not Code.NOT_SUPPORTED or ring is None or after >= ring.begin:
                raise
            held = ring.span(ring.begin, max_bytes=max_bytes)
            gap = MissingBytes(after, ring.begin, error.message)
            return msgspec.structs.replace(held, gaps=(gap, *held.gaps))

    async def from_node(
        self, record: InstanceRecord, incarnation: Incarnation, after: int, *, max_bytes: int
    ) -> ConsoleSpan:
        """The same, from the node only. Raises what `NodeConsoleQueries.ask` raises."""
        query = ConsoleQuery(
            instance_id=record.id, incarnation=incarnation, from_offset=after, max_bytes=max_bytes
        )
        return await self._ask(record, incarnation, query)

    async def everything(
        self, record: InstanceRecord, incarnation: Incarnation, *, after: int
    ) -> AsyncIterator[bytes]:
        """All bytes up to the present end of the console, piece by piece; lost ones are left out."""
        end: int | None = None
        while end is None or after < end:
            span = await self.span(record, incarnation, after, max_bytes=ANSWER_BYTES)
            end = span.end_offset if end is None else end
            for piece in span.pieces:
                yield piece.data[: max(0, end - piece.offset)]
            if span.next_offset <= after:
                return
            after = span.next_offset


def _milliseconds(time: dt.datetime) -> int:
    return max(1, int(time.timestamp() * 1000))


def has_ended(record: InstanceRecord, incarnation: Incarnation) -> bool:
    """Whether nothing is written to this console any more."""
    return record.incarnation != incarnation or not live(record.state)


def never_ran(record: InstanceRecord, incarnation: Incarnation) -> bool:
    """Whether this run has no console yet, so that no node has to be queried."""
    if record.incarnation != incarnation:
        return False
    started = record.started_at is not None or record.console_end > 0
    return record.state in _NOT_YET or not (started or live(record.state))


def _window_bytes(before: int | None) -> int:
    return ANSWER_BYTES if before is None else PAGE_BYTES


def _cut(span: ConsoleSpan) -> tuple[ConsoleSpan, SpanStart]:
    """A span that begins somewhere: its first byte tells whether a line begins behind it, and is left to the page
    before."""
    ends_line = span.pieces[0].data.startswith(b"\n")
    return without_first_byte(span), SpanStart.LINE_END if ends_line else SpanStart.SAME_LINE
