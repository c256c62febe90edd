"""Universe's logs of instances: the last lines, and a live log."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from corral.controller.consoles.pages import ConsolePage
from corral.controller.consoles.service import Consoles
from corral.controller.consoles.stream_messages import ConsoleMessage
from corral.controller.http.messages.call import ApiCall, Query, TicketedQuery
from corral.controller.http.pipeline.route_handlers import WriteText
from corral.controller.http.pipeline.route_table import Read, Route, Socket
from corral.controller.http.resources.instances.consoles import (
    ConsoleView,
    FollowQuery,
    follow_console,
    reader_of,
)
from corral.controller.http.resources.universe.universe_schemas import UniverseLog
from corral.controller.state.cluster_state import ClusterState
from corral.domain.ids import InstanceId
from corral.domain.permissions import Permission

_LINES: Final = frozenset({"page", "gap"})
"""Names of the messages that hold lines, or tell of missing ones."""
_PAGE: Final = msgspec.json.Decoder(ConsolePage)


class LogsQuery(Query, frozen=True, kw_only=True):
    lines: Annotated[int, msgspec.Meta(ge=1, le=5000, description="How many of the last lines.")] = 100


async def read_logs(state: ClusterState, consoles: Consoles, call: ApiCall[None, LogsQuery]) -> UniverseLog:
    record, asked = state.instances.require(call.path["id"]).record, call.query.lines
    page = await consoles.lookup.page(
        record, record.incarnation, after=None, limit=asked, newest=True, since=None, until=None
    )
    lines = [item.line for item in page.items]
    if page.tail is not None:
        lines = [*lines, page.tail.line][-asked:]
    return UniverseLog(instance_id=record.id, lines=lines, total_lines=len(lines), requested_lines=asked)


class LiveLog:
    """A console on a WebSocket as Universe has it: each line is a message, and what the client sends is ignored. A line
    without an end is sent once it has one."""

    def __init__(self, view: ConsoleView, call: ApiCall[None, TicketedQuery]) -> None:
        self._view = view
        self._id = InstanceId(call.path["id"])
        self._reader = reader_of(view, call.with_query(FollowQuery()))

    async def send_messages(self, write: WriteText) -> None:
        async def send(messages: list[ConsoleMessage]) -> None:
            for message in messages:
                if message.name in _LINES:
                    for line in _lines_of(_PAGE.decode(message.data)):
                        await write(line)

        async def beat() -> None:
            """The protocol's own pings keep a socket alive."""

        await follow_console(self._view, self._id, self._reader, send=send, beat=beat)

    async def receive(self, text: str) -> None:
        del text


def _lines_of(page: ConsolePage) -> list[str]:
    """The lines of a page; where bytes are missing one says so, in front of those that follow."""
    missing = [
        f"[corral: {gap.to_offset - gap.from_offset} bytes are missing: {gap.reason}]" for gap in page.gaps
    ]
    return [*missing, *(item.line for item in page.items)]


async def open_live_log(view: ConsoleView, call: ApiCall[None, TicketedQuery]) -> LiveLog:
    return LiveLog(view, call)


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/instances/{id}/logs",
        permission=Permission.INSTANCES_CONSOLE,
        summary="The last lines of an instance's console",
        query=LogsQuery,
        response=UniverseLog,
        handler=read_logs,
        lowered=frozenset({"id"}),
    ),
    Socket(
        method="GET",
        path="/api/instances/{id}/live-log",
        permission=Permission.INSTANCES_CONSOLE,
        summary="Follow an instance's console over a WebSocket, a message a line",
        handler=open_live_log,
        lowered=frozenset({"id"}),
    ),
)
