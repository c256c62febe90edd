"""Consoles: in pages forwards, backwards and around a time, searched, and as a file."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Final, Literal

import msgspec

from corral.controller.consoles.pages import ConsolePage
from corral.controller.consoles.searches import ConsoleMatches, SearchPlace
from corral.controller.consoles.service import Consoles
from corral.controller.http.messages.call import ApiCall, Query, TicketedQuery
from corral.controller.http.messages.paging import PageCursor, Since, Until, decode_cursor, encode_cursor
from corral.controller.http.pipeline.caller_limits import OpenStreams
from corral.controller.http.pipeline.route_table import Download, Read, Route
from corral.controller.http.pipeline.sse_stream import Content, Write
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import MAX_COUNTER, Incarnation
from corral.domain.patterns import PATTERN_MAX, compile_line_search
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

CONSOLE: Final = "/api/v1/instances/{id}/console"
_SEARCH: Final = "console-search"
_SEARCH_COST: Final = 5
"""Of a search, in requests: a node reads megabytes for it."""
_DOWNLOAD: Final = b"application/octet-stream"

Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNTER, description="Byte offset to begin at.")]
Run = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNTER, description="Which run; without it the newest.")]
Lines = Annotated[int, msgspec.Meta(ge=1, le=5000, description="Most lines of a page.")]


class ConsoleQueryString(Query, frozen=True, kw_only=True):
    after: Offset | None = None
    before: (
        Annotated[
            int,
            msgspec.Meta(ge=0, le=MAX_COUNTER, description="The lines that end before this byte offset."),
        ]
        | None
    ) = None
    at: (
        Annotated[
            dt.datetime,
            msgspec.Meta(
                tz=True,
                description="The lines around this time, of the run that there was then or of the one that is named.",
            ),
        ]
        | None
    ) = None
    limit: Lines = 500
    incarnation: Run | None = None
    newest: Annotated[bool, msgspec.Meta(description="The last lines instead; `after` is ignored.")] = False
    since: Since | None = None
    until: Until | None = None


class SearchQuery(Query, frozen=True, kw_only=True):
    pattern: Annotated[
        str, msgspec.Meta(min_length=1, max_length=PATTERN_MAX, description="In RE2's syntax.")
    ]
    after: Offset = 0
    before: (
        Annotated[
            int,
            msgspec.Meta(ge=0, le=MAX_COUNTER, description="Search backwards from this byte offset."),
        ]
        | None
    ) = None
    newest: Annotated[bool, msgspec.Meta(description="Search backwards from the end.")] = False
    limit: Lines = 500
    incarnation: Run | None = None
    runs: Annotated[
        Literal["one", "all"],
        msgspec.Meta(
            description="`all`: one run after the other, from the oldest or with `newest` from the newest."
        ),
    ] = "one"
    cursor: PageCursor | None = None


class DownloadQuery(TicketedQuery, frozen=True, kw_only=True):
    after: Offset = 0
    incarnation: Run | None = None


def run_of(state: ClusterState, id: str, asked: int | None) -> tuple[InstanceRecord, Incarnation]:
    """The instance and the run that is meant; NOT_FOUND for one that was never started."""
    record = state.instances.require(id).record
    if asked is None:
        return record, record.incarnation
    if asked > record.incarnation:
        raise Rejected(
            Code.NOT_FOUND,
            f"instance '{record.id}' has no run {asked} yet",
            hint=f"the newest is {record.incarnation}",
            field="incarnation",
        )
    return record, Incarnation(asked)


async def read_console(
    state: ClusterState, consoles: Consoles, call: ApiCall[None, ConsoleQueryString]
) -> ConsolePage:
    query = call.query
    record, incarnation = run_of(state, call.path["id"], query.incarnation)
    _refuse_two_places(query)
    if query.before is not None:
        return await consoles.lookup.before(record, incarnation, query.before, limit=query.limit)
    if query.at is not None:
        if query.incarnation is None:
            incarnation = await consoles.runs.running_at(record, query.at)
        return await consoles.lookup.around(record, incarnation, query.at, limit=query.limit)
    return await consoles.lookup.page(
        record,
        incarnation,
        after=query.after,
        limit=query.limit,
        newest=query.newest,
        since=query.since,
        until=query.until,
    )


def _refuse_two_places(query: ConsoleQueryString) -> None:
    """BAD_REQUEST for a page that would have to be in two places."""
    timed = query.since is not None or query.until is not None
    if query.newest and timed:
        raise Rejected(
            Code.BAD_REQUEST,
            "newest is for a console as a whole: leave it out with since or until",
            field="newest",
        )
    for name in ("before", "at"):
        if getattr(query, name) is None:
            continue
        others = {
            "after": query.after,
            "before": query.before,
            "at": query.at,
            "newest": query.newest or None,
        }
        second = next((other for other in others if other != name and others[other] is not None), None)
        if second is not None or timed:
            raise Rejected(
                Code.BAD_REQUEST,
                f"{name} names the place of a page: leave out {second or 'since and until'}",
                field=name,
            )


async def search_console(
    state: ClusterState,
    consoles: Consoles,
    console_searches: OpenStreams,
    call: ApiCall[None, SearchQuery],
) -> ConsoleMatches:
    """RATE_LIMITED while the caller, or all callers, have too many under way."""
    with console_searches.opened(call.caller):
        return await _search(state, consoles, call)


async def _search(
    state: ClusterState, consoles: Consoles, call: ApiCall[None, SearchQuery]
) -> ConsoleMatches:
    query = call.query
    record, incarnation = run_of(state, call.path["id"], query.incarnation)
    compile_line_search(query.pattern)
    noted: list[str] = []
    position = decode_cursor(_SEARCH, query.cursor)
    if position is not None:
        place = SearchPlace.parse(position)
        run_of(state, call.path["id"], place.incarnation)
    elif query.runs == "all":
        if query.incarnation is not None or query.before is not None or query.after:
            raise Rejected(
                Code.BAD_REQUEST,
                "runs=all begins at one end: leave out incarnation, after and before",
                hint="newest=true begins at the other end, and a cursor leads on",
                field="runs",
            )
        place, noted = await consoles.searches.first_place(record, backwards=query.newest)
    else:
        backwards = query.newest or query.before is not None
        offset = query.before if backwards else query.after
        place = SearchPlace(backwards=backwards, every_run=False, incarnation=incarnation, offset=offset)
    found = await consoles.searches.search(
        record, place, pattern=query.pattern, limit=query.limit, noted=noted
    )
    following = encode_cursor(_SEARCH, found.next) if found.next is not None else None
    return msgspec.structs.replace(found, next=following)


async def download_console(
    state: ClusterState, consoles: Consoles, call: ApiCall[None, DownloadQuery]
) -> Content:
    record, incarnation = run_of(state, call.path["id"], call.query.incarnation)
    pieces = consoles.lookup.everything(record, incarnation, after=call.query.after)
    # Found before the answer begins: what is not there is a refusal, not half a file.
    first = await anext(pieces, b"")

    async def pump(write: Write) -> None:
        await write(first)
        async for piece in pieces:
            await write(piece)

    return Content(pump=pump, content_type=_DOWNLOAD, filename=f"{record.id}.{incarnation}.log")


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path=CONSOLE,
        permission=Permission.INSTANCES_CONSOLE,
        summary="Read a console, from an offset on or its newest lines",
        query=ConsoleQueryString,
        response=ConsolePage,
        handler=read_console,
    ),
    Read(
        method="GET",
        path=f"{CONSOLE}/search",
        permission=Permission.INSTANCES_CONSOLE,
        summary="Lines of a console that match a pattern, of one run or of all",
        query=SearchQuery,
        response=ConsoleMatches,
        cost=_SEARCH_COST,
        handler=search_console,
    ),
    Download(
        method="GET",
        path=f"{CONSOLE}/download",
        permission=Permission.INSTANCES_CONSOLE,
        summary="A console as it is, byte by byte",
        query=DownloadQuery,
        handler=download_console,
    ),
)
