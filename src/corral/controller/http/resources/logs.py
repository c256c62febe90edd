"""Logs of this controller and of nodes, in pages and as streams, and their levels."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Awaitable, Callable
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

import msgspec

from corral.controller.events.frames import frame, position_frame
from corral.controller.events.hub import EventHub
from corral.controller.http.messages.call import ApiCall, Query, RequestBody, TicketedQuery
from corral.controller.http.messages.paging import DEFAULT_LIMIT, Limit, Page, Since, TimeRange, Until
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.log_sources import JournalSource, LogSource, Numbered, RingSource
from corral.controller.http.pipeline.route_table import (
    Mutate,
    Read,
    Route,
    Stream,
)
from corral.controller.http.pipeline.scoping import Scoping, not_there
from corral.controller.http.pipeline.sse_stream import Pump, Write
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state import node_changes
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.access import ANY, Access
from corral.domain.causes import check_request_id
from corral.domain.events import Draft, EventType
from corral.domain.ids import MAX_COUNTER, NodeId
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import shown_to
from corral.errors import Code, Rejected
from corral.store.port import ReadEngine
from corral.system.log_context import REQUEST
from corral.system.logger import LEVELS

CONTROLLER: Final = "controller"

_NODE: Final = "node:"
_SCAN: Final = 500
_SCANS: Final = 20
_CHUNK_RECORDS: Final = 200

Source = Annotated[
    str,
    msgspec.Meta(
        max_length=80,
        description="`controller` or `node:ID`.",
        extra_json_schema={"examples": ["controller", "node:node-1"]},
    ),
]
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNTER, description="Only records above this number.")]

RequestIdFilter = Annotated[
    str,
    msgspec.Meta(
        description="Only records that were made for the request with this id, the `X-Request-Id` of its answer.",
        extra_json_schema={"maxLength": 128},
    ),
]


class LogLevel(enum.StrEnum):
    TRACE = "TRACE"
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class LogShape(msgspec.Struct, frozen=True, kw_only=True):
    """A log record; `dropped_before` counts those that were lost right before it."""

    number: int
    at: dt.datetime
    level: str
    logger: str
    message: str
    thread: str
    throwable: str
    fields: dict[str, str]
    dropped_before: int


class LogPage(Page[LogShape], frozen=True, kw_only=True):
    """Some records of a log. Those before `kept_since` are not there any more, or are of a former process."""

    kept_since: dt.datetime | None = None


class LogLevelShape(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    level: str


class LogQuery(Query, frozen=True, kw_only=True):
    source: Source
    after: Number | None = None
    limit: Limit = DEFAULT_LIMIT
    level: LogLevel | None = None
    since: Since | None = None
    until: Until | None = None
    request: RequestIdFilter | None = None

    never_empty: ClassVar[frozenset[str]] = frozenset({"request"})


class LogStreamQuery(TicketedQuery, frozen=True, kw_only=True):
    source: Source
    after: Number | None = None
    tail: Annotated[int, msgspec.Meta(ge=0, le=1000, description="Begin with this many old ones.")] = 0


class SetLogLevel(RequestBody, frozen=True, kw_only=True):
    source: Source
    level: Literal["TRACE", "DEBUG", "INFO", "WARN", "ERROR", ""]
    """Empty goes back to the configuration."""


def _node_of(source: str) -> NodeId | None:
    """The node whose log is meant, None for this controller's."""
    if source == CONTROLLER:
        return None
    if source.startswith(_NODE) and len(source) > len(_NODE):
        return NodeId(source.removeprefix(_NODE))
    raise Rejected(
        Code.INVALID_FIELD, f"unknown log source '{source}'", hint="use controller or node:ID", field="source"
    )


def _source(
    state: ClusterState,
    reads: ReadEngine,
    hub: EventHub,
    setting: ProcessContext,
    access: Access,
    text: str,
) -> LogSource:
    """NOT_FOUND for a node outside of the caller's scope; FORBIDDEN for the controller, which belongs to no scope."""
    node_id = _node_of(text)
    if not access.allows_everywhere(Permission.LOGS_READ):
        refuse_log_outside(access, node_id)
    if node_id is None:
        return RingSource(setting.log_ring)
    node = state.nodes.require(node_id)
    return JournalSource(node_id=node.record.id, reads=reads, hub=hub)


def refuse_log_outside(access: Access, node_id: NodeId | None) -> None:
    """The log of a node tells of all groups there, so a scope that names groups does not cover it."""
    permission = Permission.LOGS_READ
    if node_id is None:
        raise Rejected(
            Code.FORBIDDEN,
            f"'{permission}' is granted within a scope only, and the controller's log concerns the whole cluster",
            hint="use a token without a scope, or name a node within it",
            field="source",
        )
    whole = access.allows_on_instance(permission, ANY, node_id)
    if not whole or not access.allows_on_node(permission, node_id):
        raise not_there("node", node_id)


def _log_shape(numbered: Numbered) -> LogShape:
    number, record = numbered
    return LogShape(
        number=number,
        at=record.at,
        level=record.level,
        logger=record.logger,
        message=record.message,
        thread=record.thread,
        throwable=record.throwable,
        fields=record.fields,
        dropped_before=record.dropped_before,
    )


async def list_logs(
    state: ClusterState,
    reads: ReadEngine,
    hub: EventHub,
    setting: ProcessContext,
    call: ApiCall[None, LogQuery],
) -> LogPage:
    """After a number or a time: what follows it. Without either: the newest records, or the newest before a
    time. Oldest first always."""
    query = call.query
    if query.request is not None:
        check_request_id(query.request)
    source = _source(state, reads, hub, setting, call.caller.access, query.source)
    least = LEVELS[query.level] if query.level else 0
    filter = LogFilter(least, TimeRange(query.since, query.until), query.request)
    after = query.after
    if after is None and query.since is not None:
        after = await _number(source, filter.span.first_number) - 1
    if after is None:
        found, next = await _newest(source, filter, query.limit), None
    else:
        found, position, more = await _following(source, filter, after, query.limit)
        next = str(position) if more else None
    oldest = await source.read(after=0, limit=1)
    return LogPage(
        items=[_log_shape(item) for item in found], next=next, kept_since=oldest[0][1].at if oldest else None
    )


class LogFilter(NamedTuple):
    """Which records a reader asked for: of a level, of a time, and of a request."""

    least: int
    span: TimeRange
    request: str | None

    def accepts(self, numbered: Numbered) -> bool:
        record = numbered[1]
        if self.request is not None and record.fields.get(REQUEST) != self.request:
            return False
        return LEVELS.get(record.level, 0) >= self.least and self.span.holds(record.at)


async def _number(source: LogSource, bound: Callable[..., Awaitable[int]]) -> int:
    """The number of a record that bounds a range of time."""

    async def time_at(number: int) -> dt.datetime | None:
        records = await source.read(after=number - 1, limit=1)
        return records[0][1].at if records else None

    oldest = await source.read(after=0, limit=1)
    newest = await source.tail(before=None, limit=1)
    if not oldest or not newest:
        return 1
    return await bound(time_at, oldest=oldest[0][0], newest=newest[0][0])


async def _newest(source: LogSource, filter: LogFilter, limit: int) -> list[Numbered]:
    """The newest records that are wanted, looking back only so far."""
    found: list[Numbered] = []
    before = None if filter.span.until is None else await _number(source, filter.span.end_number)
    for _ in range(_SCANS):
        records = await source.tail(before=before, limit=_SCAN)
        found = [item for item in records if filter.accepts(item)] + found
        if len(found) >= limit or len(records) < _SCAN:
            break
        before = records[0][0]
    return found[-limit:]


async def _following(
    source: LogSource, filter: LogFilter, after: int, limit: int
) -> tuple[list[Numbered], int, bool]:
    """Records that are wanted after a number, how far was looked, and whether there may be more."""
    found: list[Numbered] = []
    position = after
    for _ in range(_SCANS):
        records = await source.read(after=position, limit=_SCAN)
        for item in records:
            if filter.span.is_after(item[1].at):
                return found, position, False
            if len(found) == limit:
                return found, position, True
            position = item[0]
            if filter.accepts(item):
                found.append(item)
        if len(records) < _SCAN:
            return found, position, False
    return found, position, True


async def stream_logs(
    state: ClusterState,
    reads: ReadEngine,
    hub: EventHub,
    setting: ProcessContext,
    call: ApiCall[None, LogStreamQuery],
) -> Pump:
    query = call.query
    source = _source(state, reads, hub, setting, call.caller.access, query.source)
    heartbeat, access = setting.heartbeat_seconds, call.caller.access
    resume = _resume_number(call.last_event_id)
    after = resume if resume is not None else query.after

    async def pump(write: Write) -> None:
        with source.watch() as watch:
            position = after if after is not None else await _begin(source, query.tail)
            await write(position_frame("following", str(position)))
            while True:
                mark = watch.mark()
                records = await source.read(after=position, limit=_CHUNK_RECORDS)
                if records:
                    position = records[-1][0]
                    await write(b"".join(_log_frame(item, access) for item in records))
                elif not await watch.changed(mark, timeout=heartbeat):
                    await write(position_frame("heartbeat", str(position)))

    return pump


async def _begin(source: LogSource, tail: int) -> int:
    """The number after which a follower starts that wants the last `tail` records first."""
    newest = await source.tail(before=None, limit=max(1, tail))
    if not newest:
        return 0
    return newest[0][0] - 1 if tail else newest[-1][0]


def _resume_number(last_event_id: str | None) -> int | None:
    if not last_event_id:
        return None
    if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) <= 18):
        raise Rejected(
            Code.INVALID_CURSOR, "this Last-Event-ID is not the number of a log record", field="Last-Event-ID"
        )
    return int(last_event_id)


def _log_frame(numbered: Numbered, access: Access) -> bytes:
    return frame(id=str(numbered[0]), event="log", data=shown_to(access, _log_shape(numbered)))


def set_log_level(state: ClusterState, call: ApiCall[SetLogLevel, Query]) -> Mutation:
    asked = call.body
    level = asked.level
    node_id = _node_of(asked.source)
    if node_id is None:
        data = {"source": CONTROLLER, "level": level}
        return Mutation(
            action="logs.level",
            subject=CONTROLLER,
            steps=(Draft(type=EventType.LOG_LEVEL_CHANGED, subject=CONTROLLER, data=data),),
            body=LogLevelShape(source=asked.source, level=level),
            after={"level": level},
        )
    stored = state.nodes.require(node_id)
    change = node_changes.set_log_level(stored, level=level)
    return Mutation(
        action="logs.level",
        subject=stored.record.id,
        steps=change.steps,
        body=LogLevelShape(source=asked.source, level=level),
        before={"level": stored.record.log_level},
        after={"level": level},
    )


def apply_log_level(nodes: LiveNodes, setting: ProcessContext, call: ApiCall[SetLogLevel, Query]) -> None:
    """Set the level in this process or on the node; a node that is away gets it when it reconnects."""
    node_id = _node_of(call.body.source)
    if node_id is None:
        setting.set_log_level(call.body.level)
    else:
        nodes.set_log_level(node_id, call.body.level)


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/logs",
        permission=Permission.LOGS_READ,
        scope=Scoping.FILTERS,
        summary="Read a log; without `after` its newest records",
        query=LogQuery,
        response=LogPage,
        handler=list_logs,
    ),
    Stream(
        method="GET",
        path="/api/v1/logs/stream",
        permission=Permission.LOGS_READ,
        scope=Scoping.FILTERS,
        summary="Follow a log",
        query=LogStreamQuery,
        handler=stream_logs,
    ),
    Mutate(
        method="PUT",
        path="/api/v1/logs/level",
        permission=Permission.LOGS_MANAGE,
        summary="Switch a log's level at run time",
        body=SetLogLevel,
        response=LogLevelShape,
        handler=set_log_level,
        effect=apply_log_level,
    ),
)
