"""Consoles live: readers that follow one, and streams of server-sent events. See `console_sockets` for WebSockets."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec

from corral.controller.consoles.lookup import has_ended
from corral.controller.consoles.pages import LINE_BYTES, ConsolePage, ConsoleText
from corral.controller.consoles.reader import ConsoleReader
from corral.controller.consoles.service import Consoles
from corral.controller.consoles.stream_messages import (
    ConsoleMessage,
    ConsolePlace,
    EndShape,
    RunShape,
    parse_place,
    repeats_tail,
)
from corral.controller.consoles.watchers import InputLine
from corral.controller.events.frames import position_frame
from corral.controller.events.hub import EventHub
from corral.controller.http.messages.call import ApiCall, TicketedQuery
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_table import (
    Route,
    Stream,
)
from corral.controller.http.pipeline.sse_stream import Pump, Write
from corral.controller.http.resources.instances.console_pages import CONSOLE, Run, run_of
from corral.controller.state.cluster_state import ClusterState
from corral.domain.ids import MAX_COUNTER, InstanceId
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import shown_to

MESSAGES: Final[Mapping[str, Any]] = {
    "page": ConsolePage,
    "text": ConsoleText,
    "gap": ConsolePage,
    "late": ConsolePage,
    "run": RunShape,
    "end": EndShape,
    "command": InputLine,
}
_CALM_TAIL_SECONDS: Final = 0.1
"""Between two writes of a line that has no end yet."""

Format = Annotated[
    Literal["lines", "blocks"],
    msgspec.Meta(description="Pages of lines, or text as it comes with no work per line."),
]


class FollowQuery(TicketedQuery, frozen=True, kw_only=True):
    after: (
        Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNTER, description="Begin with what came since there.")]
        | None
    ) = None
    incarnation: Run | None = None
    format: Format = "lines"
    resume: (
        Annotated[
            str,
            msgspec.Meta(
                max_length=40, description="As Last-Event-ID, for clients that cannot send headers."
            ),
        ]
        | None
    ) = None


@dataclass(frozen=True, kw_only=True)
class ConsoleView:
    """The parts that following a console takes."""

    state: ClusterState
    consoles: Consoles
    hub: EventHub
    setting: ProcessContext


def reader_of(
    view: ConsoleView, call: ApiCall[None, FollowQuery], *, room: Callable[[], int | None] | None = None
) -> ConsoleReader:
    """A reader at the place the caller wants. One that comes back knows it better than its address."""
    state, consoles, query = view.state, view.consoles, call.query
    record, incarnation = run_of(state, call.path["id"], query.incarnation)
    offset = query.after
    resumed = parse_place(call.last_event_id or query.resume)
    if resumed is not None:
        incarnation, offset = resumed[0] or incarnation, resumed[1]
    if offset is None:
        ring = consoles.ring((record.id, incarnation))
        offset = ring.open_line(LINE_BYTES) if ring else record.console_end
    if has_ended(record, incarnation) and incarnation > record.incarnation:
        incarnation, offset = record.incarnation, 0
    return ConsoleReader(
        consoles=consoles,
        state=state,
        id=record.id,
        place=ConsolePlace(incarnation, offset),
        following=query.incarnation is None,
        blocks=query.format == "blocks",
        shown=functools.partial(shown_to, call.caller.access),
        room=room,
    )


async def follow_console(
    view: ConsoleView,
    id: InstanceId,
    reader: ConsoleReader,
    *,
    send: Callable[[list[ConsoleMessage]], Awaitable[None]],
    beat: Callable[[], Awaitable[None]],
) -> None:
    """Everything the reader finds, as it comes; `beat` when nothing came for a while."""
    consoles, heartbeat = view.consoles, view.setting.heartbeat_seconds
    quiet_since = consoles.monotonic()
    with consoles.watching(id) as wakeup:
        while not view.hub.closed:
            turn, place = wakeup.turn, reader.place
            messages = await reader.take()
            if messages:
                await send(messages)
                quiet_since = consoles.monotonic()
            if reader.gone:
                return
            if repeats_tail(messages, moved=reader.place != place):
                await asyncio.sleep(_CALM_TAIL_SECONDS)
            elif not messages or reader.up_to_date:
                await wakeup.wait(timeout=min(heartbeat, reader.look_again_seconds or heartbeat), since=turn)
                if consoles.monotonic() - quiet_since >= heartbeat:
                    await beat()
                    quiet_since = consoles.monotonic()


async def stream_console(view: ConsoleView, call: ApiCall[None, FollowQuery]) -> Pump:
    reader = reader_of(view, call)
    id = InstanceId(call.path["id"])

    async def pump(write: Write) -> None:
        async def send(messages: list[ConsoleMessage]) -> None:
            frames = [message.sse_frame() for message in messages]
            await write(frames[0] if len(frames) == 1 else b"".join(frames))

        async def beat() -> None:
            await write(position_frame("heartbeat", str(reader.place)))

        await write(position_frame("following", str(reader.place)))
        await follow_console(view, id, reader, send=send, beat=beat)

    return pump


ROUTES: Final[tuple[Route, ...]] = (
    Stream(
        method="GET",
        path=f"{CONSOLE}/stream",
        permission=Permission.INSTANCES_CONSOLE,
        summary="Follow a console from run to run",
        messages=MESSAGES,
        query=FollowQuery,
        handler=stream_console,
    ),
)
