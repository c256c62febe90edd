"""The lines that were sent to an instance: who sent which one, and when."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.messages.paging import Page, TimedPageQuery, newest_entries
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import instance_commands
from corral.domain.permissions import Permission
from corral.store.port import ReadEngine


class SentCommandShape(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was written to the instance's input; `offset` is a position in the console of its run."""

    number: int
    at: dt.datetime
    line: str
    by: str
    by_name: str
    incarnation: int
    node: str
    offset: int | None


async def list_sent_commands(
    state: ClusterState, reads: ReadEngine, call: ApiCall[None, TimedPageQuery]
) -> Page[SentCommandShape]:
    journal = instance_commands(state.instances.require(call.path["id"]).record.id)
    entries, following = await newest_entries(reads, journal.name, call.query)
    items = []
    for entry in entries:
        record = journal.decode(entry.body)
        items.append(
            SentCommandShape(
                number=entry.number,
                at=entry.at,
                line=record.line,
                by=record.by,
                by_name=record.by_name,
                incarnation=record.incarnation,
                node=record.node,
                offset=record.offset,
            )
        )
    return Page(items=items, next=following)


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/instances/{id}/commands",
        permission=Permission.INSTANCES_CONSOLE,
        summary="List the lines that were sent to an instance, the newest first",
        query=TimedPageQuery,
        response=Page[SentCommandShape],
        handler=list_sent_commands,
    ),
)
