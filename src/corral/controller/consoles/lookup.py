"""Parts of consoles by offset, time or pattern: from the ring in memory where it reaches, else from the node."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from corral.controller.consoles.node_queries import ANSWER_BYTES, NodeConsoleQueries
from corral.controller.consoles.pages import ConsolePage, check_pattern, matches_of, page_of, within
from corral.controller.consoles.rings import ConsoleRing, Rings
from corral.controller.consoles.run_list import node_of
from corral.controller.consoles.span import EMPTY, ConsoleSpan, MissingBytes
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
            span, after = await self._newest(record, incarnation, limit)
        elif since is not None or until is not None:
            span = await self._timed(record, incarnation, after or 0, since=since, until=until)
            after = None if since is not None else after
        else:
            span = await self.span(record, incarnation, after or 0, max_bytes=PAGE_BYTES)
        final = has_ended(record, incarnation) and span.next_offset >= span.end_offset
        page = page_of(span, incarnation=incarnation, after=after, limit=limit, final=final)
        return within(page, since=since, until=until)

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
        return await self._history.ask(node_of(record, incarnation), query)

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
        return await self._history.ask(node_of(record, incarnation), query)

    async def _newest(
        self, record: InstanceRecord, incarnation: Incarnation, limit: int
    ) -> tuple[ConsoleSpan, int | None]:
        """The span that contains the last lines, and their offset in it."""
        ring = self._rings.find((record.id, incarnation))
        if ring is not None:
            begin = ring.newest(limit)
            if (
                begin > ring.begin
                or ring.begin == 0
                or self._links.find(node_of(record, incarnation)) is None
            ):
                return ring.span(begin, max_bytes=ANSWER_BYTES), begin
        elif never_ran(record, incarnation):
            return EMPTY, None
        query = ConsoleQuery(
            instance_id=record.id, incarnation=incarnation, max_bytes=ANSWER_BYTES, newest=True
        )
        try:
            return _last_lines(await self._history.ask(node_of(record, incarnation), query), limit)
        except CorralError:
            ring = self._rings.find((record.id, incarnation))
            if ring is None:
                raise
            begin = ring.newest(limit)
            return ring.span(begin, max_bytes=ANSWER_BYTES), begin

    async def search(
        self, record: InstanceRecord, incarnation: Incarnation, *, pattern: str, after: int, limit: int
    ) -> ConsolePage:
        """Lines that match, searched on the node. INVALID_PATTERN is raised without a query."""
        query = ConsoleQuery(
            instance_id=record.id,
            incarnation=incarnation,
            from_offset=after,
            pattern=check_pattern(pattern),
            max_lines=limit,
            max_bytes=ANSWER_BYTES,
        )
        if never_ran(record, incarnation):
            return matches_of(EMPTY, incarnation=incarnation, limit=limit)
        found = await self._history.ask(node_of(record, incarnation), query)
        return matches_of(found, incarnation=incarnation, limit=limit)

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


def _last_lines(span: ConsoleSpan, limit: int) -> tuple[ConsoleSpan, int | None]:
    """Cut a span from a node down to its last lines."""
    ring = ConsoleRing(begin=span.pieces[0].offset if span.pieces else 0, capacity=2 * ANSWER_BYTES)
    for piece in span.pieces:
        ring.append(piece.offset, piece.data, times=span.times, gaps=span.gaps)
    return ring.span(ring.newest(limit), max_bytes=2 * ANSWER_BYTES), None
