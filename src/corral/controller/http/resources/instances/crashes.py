"""Crashes: what their nodes reported, the newest first."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.messages.paging import (
    Page,
    TimedPageQuery,
    TimeRange,
    decode_cursor,
    encode_cursor,
)
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.resources.instances.instance_schemas import ExitShape, exit_shape
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.crash_records import CrashClass, CrashRecord
from corral.domain.permissions import Permission

NameFilter = Annotated[str, msgspec.Meta(max_length=63)]

_KIND: Final = "crashes"


class CrashShape(msgspec.Struct, frozen=True, kw_only=True):
    """A crash without its tail. `restarted_as` is the run that took its place, 0: none did."""

    id: str
    instance: str
    incarnation: int
    group: str
    node: str
    at: dt.datetime
    crash_class: str
    signature: str
    uptime_ms: int
    restarted_as: int
    exit: ExitShape


class CrashReportShape(CrashShape, frozen=True, kw_only=True):
    """A crash with the last lines of its console; the first of them is at `tail_offset`."""

    tail: list[str]
    tail_offset: int


class CrashQuery(TimedPageQuery, frozen=True, kw_only=True):
    group: NameFilter | None = None
    node: NameFilter | None = None
    instance: NameFilter | None = None
    crash_class: CrashClass | None = None


def crash_shape(record: CrashRecord) -> CrashShape:
    return CrashShape(
        id=record.id,
        instance=record.instance,
        incarnation=record.incarnation,
        group=record.group,
        node=record.node,
        at=record.at,
        crash_class=record.crash_class,
        signature=record.signature,
        uptime_ms=record.uptime_ms,
        restarted_as=record.restarted_as,
        exit=exit_shape(record.exit),
    )


def _order(record: CrashRecord) -> str:
    """A key that sorts by the time of arrival; the id separates crashes of one moment."""
    at = record.received_at or record.at
    return f"{at.astimezone(dt.UTC).isoformat(timespec='microseconds')} {record.id}"


async def list_crashes(state: ClusterState, call: ApiCall[None, CrashQuery]) -> Page[CrashShape]:
    query, access = call.query, call.caller.access
    before = decode_cursor(_KIND, query.cursor)
    span = TimeRange(query.since, query.until)

    def accepts(record: CrashRecord) -> bool:
        return (
            query.group in (None, record.group)
            and query.node in (None, record.node)
            and query.instance in (None, record.instance)
            and query.crash_class in (None, record.crash_class)
            and span.holds(record.at)
            and access.allows_on_instance(Permission.CRASHES_READ, record.group, record.node)
        )

    found = sorted(
        ((_order(stored.record), stored.record) for stored in state.crashes if accepts(stored.record)),
        key=lambda item: item[0],
        reverse=True,
    )
    left = [item for item in found if before is None or item[0] < before]
    shown = left[: query.limit]
    more = len(left) > len(shown)
    return Page(
        items=[crash_shape(record) for _, record in shown],
        next=encode_cursor(_KIND, shown[-1][0]) if more else None,
    )


async def get_crash(state: ClusterState, call: ApiCall[None, NoQuery]) -> CrashReportShape:
    record = state.crashes.require(call.path["id"]).record
    return CrashReportShape(
        **msgspec.structs.asdict(crash_shape(record)),
        tail=list(record.tail),
        tail_offset=record.tail_offset,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/crashes",
        permission=Permission.CRASHES_READ,
        scope=Scoping.FILTERS,
        summary="List crashes, the newest first",
        query=CrashQuery,
        response=Page[CrashShape],
        handler=list_crashes,
    ),
    Read(
        method="GET",
        path="/api/v1/crashes/{id}",
        permission=Permission.INSTANCES_CONSOLE,
        summary="Show a crash with the last lines of its console",
        response=CrashReportShape,
        handler=get_crash,
    ),
)
