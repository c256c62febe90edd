"""The audit: who changed what, the newest first; and its export, the oldest first, with the hashes of its chain."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, Query, TicketedQuery
from corral.controller.http.messages.paging import (
    Page,
    Since,
    TimedPageQuery,
    TimeRange,
    Until,
    newest_entries,
)
from corral.controller.http.pipeline.audit_reads import AuditReads
from corral.controller.http.pipeline.route_table import Download, Read, Route
from corral.controller.http.pipeline.sse_stream import Content, Write
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import AUDIT
from corral.domain.audit_chain import ChainedEntry, ChainPoint, ChainState
from corral.domain.audit_export import MEDIA_TYPE, ExportWriter
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import sees_all
from corral.errors import Code, Rejected
from corral.store.port import Entry, ReadEngine

_PAGE: Final = 100
"""Entries that an export holds in memory."""

Filter = Annotated[str, msgspec.Meta(max_length=200)]


class AuditShape(msgspec.Struct, frozen=True, kw_only=True):
    """One change; `before` and `after` hold what it touched. `actor_name` is the name of the token that did it,
    empty in entries from before names were kept. An act with an effect outside the store has two entries."""

    number: int
    at: dt.datetime
    actor: str
    actor_name: str
    action: str
    subject: str
    address: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    request: str
    outcome: str
    attempt: str


class AuditQuery(TimedPageQuery, frozen=True, kw_only=True):
    actor: Annotated[
        Filter,
        msgspec.Meta(
            description="Only by this actor (`user:anna`, `token:…`, `host:root`), by what follows its first colon (`anna`), "
            "or by its name."
        ),
    ] = ""
    action: Annotated[
        Filter, msgspec.Meta(description="Only actions that begin so: `groups.`, `instances.command`.")
    ] = ""
    subject: Annotated[Filter, msgspec.Meta(description="Only what was done to this.")] = ""


class AuditExportQuery(TicketedQuery, frozen=True, kw_only=True):
    since: Since | None = None
    until: Until | None = None


async def list_audit(
    reads: ReadEngine, audit_reads: AuditReads, call: ApiCall[None, AuditQuery]
) -> Page[AuditShape]:
    query = call.query
    await audit_reads.record_list(
        call.caller, filters=_given(query, "actor", "action", "subject", "since", "until")
    )
    found, following = await newest_entries(reads, AUDIT.name, query, accepts=_filter(query))
    return Page(items=[_shape(entry) for entry in found], next=following)


def _filter(query: AuditQuery) -> Callable[[Entry], bool] | None:
    if not (query.actor or query.action or query.subject):
        return None

    def accepts(entry: Entry) -> bool:
        record = AUDIT.decode(entry.body)
        return (
            query.actor in ("", record.actor, record.actor.partition(":")[2], record.actor_name)
            and record.action.startswith(query.action)
            and query.subject in ("", record.subject)
        )

    return accepts


def _given(query: Query, *names: str) -> dict[str, object]:
    """The filters that were given, for the audit."""
    values = {name: getattr(query, name) for name in names}
    return {
        name: value.isoformat() if isinstance(value, dt.datetime) else value
        for name, value in values.items()
        if value
    }


def _shape(entry: Entry) -> AuditShape:
    record = AUDIT.decode(entry.body)
    return AuditShape(
        number=entry.number,
        at=entry.at,
        actor=record.actor,
        actor_name=record.actor_name,
        action=record.action,
        subject=record.subject,
        address=record.address,
        before=record.before,
        after=record.after,
        request=record.request,
        outcome=record.outcome,
        attempt=record.attempt,
    )


async def export_audit(
    state: ClusterState, reads: ReadEngine, audit_reads: AuditReads, call: ApiCall[None, AuditExportQuery]
) -> Content:
    query = call.query
    if not sees_all(call.caller.access):
        raise Rejected(
            Code.FORBIDDEN,
            "an export holds every value, or its hashes could not be verified",
            hint=f"it also takes the permission {Permission.INSTANCES_SENSITIVE.value}; GET /api/v1/audit hides values",
        )
    await audit_reads.record(call.caller, after={"read": "export", **_given(query, "since", "until")})
    span = await _span(reads, TimeRange(query.since, query.until))
    writer = ExportWriter()
    head = writer.begin(
        cluster=state.identity.id,
        at=call.now,
        since=query.since,
        until=query.until,
        chain=span.chain,
        after=span.after,
    )

    async def pump(write: Write) -> None:
        await write(head)
        async for page in _pages(reads, span):
            await write(b"".join(writer.add(entry) for entry in page))
        await write(writer.finish())

    return Content(
        pump=pump, content_type=MEDIA_TYPE.encode(), filename=f"audit-{call.now:%Y%m%dT%H%M%SZ}.ndjson"
    )


class _Span(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of an export: behind `after`, and below `end`."""

    chain: ChainState
    after: ChainPoint
    end: int


async def _span(reads: ReadEngine, times: TimeRange) -> _Span:
    """A span without gaps. Where a clock was set back, a few entries beside it may belong to the time, too."""

    async def time_at(number: int) -> dt.datetime | None:
        entries = await reads.chained_entries(after=number - 1, limit=1)
        return entries[0].at if entries else None

    while True:
        chain = await reads.chain()
        oldest, newest = chain.removed.number + 1, chain.head.number
        first = await times.first_at(time_at, oldest=oldest, newest=newest)
        end = await times.end_at(time_at, oldest=first, newest=newest)
        after = await _before(reads, first, chain)
        if (await reads.chain()).removed.number <= after.number:
            return _Span(chain=chain, after=after, end=end)
        # retention removed the first ones meanwhile: begin behind them


async def _before(reads: ReadEngine, first: int, chain: ChainState) -> ChainPoint:
    """The entry before this number."""
    found = await reads.entries(AUDIT.name, before=first, limit=1, newest=True)
    entries = await reads.chained_entries(after=found[0].number - 1, limit=1) if found else []
    return ChainPoint(number=entries[0].number, hash=entries[0].hash) if entries else chain.removed


async def _pages(reads: ReadEngine, span: _Span) -> AsyncIterator[list[ChainedEntry]]:
    after = span.after.number
    while page := await reads.chained_entries(after=after, before=span.end, limit=_PAGE):
        yield page
        after = page[-1].number


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/audit",
        permission=Permission.AUDIT_READ,
        summary="List changes, the newest first",
        query=AuditQuery,
        response=Page[AuditShape],
        handler=list_audit,
    ),
    Download(
        method="GET",
        path="/api/v1/audit/export",
        permission=Permission.AUDIT_READ,
        summary="Download the audit as lines of JSON, the oldest first, with the hashes of its chain",
        query=AuditExportQuery,
        handler=export_audit,
        media=MEDIA_TYPE,
    ),
)
