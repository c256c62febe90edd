"""Events: the log in pages, the log as a stream, and tickets for browsers."""

from __future__ import annotations

import collections
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Final, Literal

import msgspec

from corral.controller.events.frames import EventShape, event_shape, position_frame
from corral.controller.events.hub import EventHub
from corral.controller.events.ring import EventSelection
from corral.controller.http.messages.call import ApiCall, Caller, NoQuery, Query, TicketedQuery
from corral.controller.http.messages.paging import (
    DEFAULT_LIMIT,
    MOST_MISPLACED,
    Limit,
    Page,
    Since,
    TimeRange,
    Until,
)
from corral.controller.http.openapi_events import FRAME
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.route_table import Read, Route, Stream
from corral.controller.http.pipeline.scoping import Scoping, event_filter, only_in_scope
from corral.controller.http.pipeline.sse_stream import Pump, Write
from corral.controller.http.pipeline.tickets import Tickets
from corral.controller.http.resources.event_resources import SUMMARIES, EventResources, resource_filter
from corral.controller.http.resources.summary_view import SummaryView
from corral.domain.events import Cursor, Event, EventType, event_type
from corral.domain.field_classes.event_data import EVENT_PERMISSIONS
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import sees_all, unseen_types
from corral.errors import Code, CorralError, Retryable, unknown_choice
from corral.store.port import ReadEngine

_SCAN: Final = 500
_SCANS: Final = 20
_ATTEMPTS: Final = 5
_NAMES: Final = "|".join(EventType)

Types = Annotated[
    str,
    msgspec.Meta(
        max_length=4000,
        description="Event types, separated by commas; empty: all.",
        extra_json_schema={"pattern": f"^({_NAMES})(,({_NAMES}))*$"},
    ),
]
Subject = Annotated[str, msgspec.Meta(max_length=200, description="Only events about this id.")]
GroupFilter = Annotated[
    str, msgspec.Meta(max_length=200, description="Only events about this group, or whose data names it.")
]
NodeFilter = Annotated[
    str, msgspec.Meta(max_length=200, description="Only events about this node, or whose data names it.")
]
After = Annotated[
    str,
    msgspec.Meta(
        max_length=64,
        description="Only events after this one: EPOCH-SEQUENCE, as in an event's `id`.",
        extra_json_schema={"pattern": "^(0|[1-9][0-9]{0,17})-(0|[1-9][0-9]{0,17})$"},
    ),
]


_WITH: Final = (
    "`resource`: each event about an instance, group, node, deployment or module carries it in short, "
    "as of the event or later."
)


class EventQuery(Query, frozen=True, kw_only=True):
    types: Types | None = None
    subject: Subject | None = None
    group: GroupFilter | None = None
    node: NodeFilter | None = None
    after: After | None = None
    since: Since | None = None
    until: Until | None = None
    limit: Limit = DEFAULT_LIMIT
    newest: Annotated[bool, msgspec.Meta(description="The last ones instead of the first.")] = False


class EventStreamQuery(TicketedQuery, frozen=True, kw_only=True):
    types: Types | None = None
    subject: Subject | None = None
    group: GroupFilter | None = None
    node: NodeFilter | None = None
    after: After | None = None
    with_: Annotated[Literal["resource"], msgspec.Meta(description=_WITH)] | None = msgspec.field(
        name="with", default=None
    )


class TicketShape(msgspec.Struct, frozen=True, kw_only=True):
    """A credential for one stream, socket or download, soon."""

    ticket: str
    expires_at: dt.datetime


def event_selection(
    caller: Caller,
    types: str | None,
    subject: str | None,
    *,
    group: str | None = None,
    node: str | None = None,
) -> EventSelection:
    """The filter a caller asked for, and what his role may not see; UNKNOWN_EVENT_TYPE lists the types there
    are, FORBIDDEN names one that needs another permission."""
    access = caller.access
    unseen = unseen_types(access)
    selection = EventSelection(
        subject=subject,
        group=group,
        node=node,
        unseen=unseen,
        redacted=not sees_all(access),
        covers=event_filter(access),
    )
    if types is None:
        return selection
    known = EventType.__members__
    asked: set[EventType] = set()
    for name in types.split(","):
        type = event_type(name)
        if type is None:
            raise unknown_choice("event type", name[:80], known, code=Code.UNKNOWN_EVENT_TYPE, field="types")
        if type in unseen:
            needed = EVENT_PERMISSIONS[type]
            authorise(caller, needed)
            raise only_in_scope(needed)
        asked.add(type)
    return msgspec.structs.replace(selection, types=frozenset(asked))


async def list_events(reads: ReadEngine, hub: EventHub, call: ApiCall[None, EventQuery]) -> Page[EventShape]:
    """Events in their order, the oldest first. The search for rare ones is bounded: a page may be
    short, or even empty, and still have a `next`."""
    query = call.query
    selection = event_selection(call.caller, query.types, query.subject, group=query.group, node=query.node)
    span = TimeRange(query.since, query.until)
    if query.after:
        return await _forwards(
            reads, hub, selection, span, after=Cursor.parse(query.after), limit=query.limit
        )
    for _ in range(_ATTEMPTS):
        try:
            if query.newest:
                return await _newest(reads, hub, selection, span, limit=query.limit)
            first = await _number(reads, hub, span.first_number)
            begin = await reads.cursor_at(first - 1)
            return await _forwards(reads, hub, selection, span, after=begin, limit=query.limit)
        except CorralError as error:
            if error.code is not Code.RESYNC_REQUIRED:
                raise  # the oldest events were dropped between two reads: begin with what is left
    raise Retryable(
        Code.STORE_UNAVAILABLE, "the event log is being trimmed", hint="try again", retry_after=1.0
    )


async def _number(reads: ReadEngine, hub: EventHub, bound: Callable[..., Awaitable[int]]) -> int:
    """The number of an event that bounds a range of time."""

    async def time_at(number: int) -> dt.datetime | None:
        events = await reads.events(await reads.cursor_at(number - 1), limit=1)
        return events[0].at if events else None

    dropped = await reads.cursor_at(0)
    return await bound(time_at, oldest=dropped.sequence + 1, newest=hub.head.sequence)


async def _forwards(
    reads: ReadEngine, hub: EventHub, selection: EventSelection, span: TimeRange, *, after: Cursor, limit: int
) -> Page[EventShape]:
    cursor = after
    found: list[Event] = []
    for _ in range(_SCANS):
        events = await reads.events(cursor, limit=_SCAN)
        for event in events:
            if span.is_after(event.at):
                return _page(selection, found)
            cursor = event.cursor
            if selection.accepts(event) and span.holds(event.at):
                found.append(event)
            if len(found) == limit:
                break
        if len(found) == limit or len(events) < _SCAN:
            break
    more = cursor.sequence < hub.head.sequence
    return _page(selection, found, next=str(cursor) if more else None)


def _page(selection: EventSelection, events: Iterable[Event], *, next: str | None = None) -> Page[EventShape]:
    return Page(items=[event_shape(selection.shown(event)) for event in events], next=next)


async def _newest(
    reads: ReadEngine, hub: EventHub, selection: EventSelection, span: TimeRange, *, limit: int
) -> Page[EventShape]:
    """The last events that are wanted, in their order, searched for in a bounded stretch of the log."""
    last = await _number(reads, hub, span.end_number) - 1
    plain = selection.everything and not span.bounded
    scanned = limit if plain else limit + _SCAN if selection.all_seen else _SCAN * _SCANS
    scanned += MOST_MISPLACED if span.until is not None else 0
    cursor = await reads.cursor_at(last - scanned)
    found: collections.deque[Event] = collections.deque(maxlen=limit)
    while cursor.sequence < last:
        events = await reads.events(cursor, limit=_SCAN)
        if not events:
            break
        found.extend(
            event
            for event in events
            if event.cursor.sequence <= last and selection.accepts(event) and span.holds(event.at)
        )
        cursor = events[-1].cursor
    return _page(selection, found)


async def stream_events(
    hub: EventHub, setting: ProcessContext, view: SummaryView, call: ApiCall[None, EventStreamQuery]
) -> Pump:
    query = call.query
    selection = event_selection(call.caller, query.types, query.subject, group=query.group, node=query.node)
    if query.with_ is not None:
        selection = msgspec.structs.replace(
            selection,
            resources=EventResources(view),
            reads=resource_filter(call.caller.access),
        )
    after = _position(call.last_event_id, query.after)
    follower = hub.follow(after=after, selection=selection)
    heartbeat = setting.heartbeat_seconds

    async def pump(write: Write) -> None:
        if after is None:
            await write(position_frame("following", str(follower.cursor)))
        while not hub.closed:
            frames = follower.take()
            if frames is None:
                frames = await follower.page()
            elif not frames and not await hub.wakeup.wait(timeout=heartbeat):
                frames = position_frame("heartbeat", str(follower.cursor))
            if frames:
                await write(frames)

    return pump


def _position(last_event_id: str | None, after: str | None) -> Cursor | None:
    """Where to begin. A browser that reconnects knows better than the address it began with."""
    if last_event_id:
        return Cursor.parse(last_event_id, field="Last-Event-ID")
    return Cursor.parse(after) if after else None


async def issue_ticket(tickets: Tickets, call: ApiCall[None, NoQuery]) -> TicketShape:
    ticket, expires_at = tickets.issue(call.caller)
    return TicketShape(ticket=ticket, expires_at=expires_at)


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/events",
        permission=Permission.EVENTS_READ,
        scope=Scoping.FILTERS,
        summary="List events, the oldest first",
        query=EventQuery,
        response=Page[EventShape],
        handler=list_events,
    ),
    Stream(
        method="GET",
        path="/api/v1/events/stream",
        permission=Permission.EVENTS_READ,
        scope=Scoping.FILTERS,
        summary="Follow events",
        query=EventStreamQuery,
        frames=FRAME,
        schemas=SUMMARIES,
        handler=stream_events,
    ),
    # Not a mutation: a ticket is never stored, and a second one does no harm.
    Read(
        method="POST",
        path="/api/v1/events/tickets",
        permission=Permission.SELF_READ,
        scope=Scoping.NEUTRAL,
        summary="A ticket for one stream, socket or download",
        response=TicketShape,
        handler=issue_ticket,
    ),
)
