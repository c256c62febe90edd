"""Consoles live: followed by server-sent events, and in both directions over a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

from corral.controller.consoles.lookup import has_ended
from corral.controller.consoles.reader import ConsoleReader
from corral.controller.consoles.service import Consoles
from corral.controller.consoles.stream_messages import (
    ConsoleMessage,
    ConsolePlace,
    parse_place,
    repeats_tail,
)
from corral.controller.events.frames import position_frame
from corral.controller.events.hub import EventHub
from corral.controller.http.messages.call import ApiCall, TicketedQuery
from corral.controller.http.messages.request_decoder import BodyDecoder
from corral.controller.http.messages.responses import ApiResponse, ErrorDetail, encode
from corral.controller.http.pipeline.api_context import InstanceControl, ProcessContext
from corral.controller.http.pipeline.attempts import Attempts
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.idempotency import line_guard
from corral.controller.http.pipeline.route_table import (
    Route,
    Socket,
    Stream,
    WriteText,
)
from corral.controller.http.pipeline.scoping import Scoping, check_scope
from corral.controller.http.pipeline.sse_stream import Pump, Write
from corral.controller.http.resources.instances import command_input as commanding
from corral.controller.http.resources.instances.console_pages import CONSOLE, Run, run_of
from corral.controller.http.resources.instances.instances import CommandLine
from corral.controller.state.cluster_state import ClusterState
from corral.domain.ids import MAX_COUNTER, InstanceId
from corral.domain.permissions import Permission
from corral.errors import CorralError

_CALM_TAIL_SECONDS: Final = 0.1
"""Between two writes of a line that has no end yet."""
_DOWNLOAD: Final = b"application/octet-stream"

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


def _reader(state: ClusterState, consoles: Consoles, call: ApiCall[None, FollowQuery]) -> ConsoleReader:
    """A reader at the place the caller wants. One that comes back knows it better than its address."""
    query = call.query
    record, incarnation = run_of(state, call.path["id"], query.incarnation)
    offset = query.after
    resumed = parse_place(call.last_event_id or query.resume)
    if resumed is not None:
        incarnation, offset = resumed[0] or incarnation, resumed[1]
    if offset is None:
        ring = consoles.ring((record.id, incarnation))
        offset = ring.end if ring else record.console_end
    if has_ended(record, incarnation) and incarnation > record.incarnation:
        incarnation, offset = record.incarnation, 0
    return ConsoleReader(
        consoles=consoles,
        state=state,
        id=record.id,
        place=ConsolePlace(incarnation, offset),
        following=query.incarnation is None,
        blocks=query.format == "blocks",
    )


@dataclass(frozen=True, kw_only=True)
class ConsoleView:
    """The parts that following a console takes."""

    state: ClusterState
    consoles: Consoles
    hub: EventHub
    setting: ProcessContext


async def _follow(
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
    reader = _reader(view.state, view.consoles, call)
    id = InstanceId(call.path["id"])

    async def pump(write: Write) -> None:
        async def send(messages: list[ConsoleMessage]) -> None:
            frames = [message.sse_frame() for message in messages]
            await write(frames[0] if len(frames) == 1 else b"".join(frames))

        async def beat() -> None:
            await write(position_frame("heartbeat", str(reader.place)))

        await write(position_frame("following", str(reader.place)))
        await _follow(view, id, reader, send=send, beat=beat)

    return pump


class ConsoleInput(CommandLine, frozen=True, kw_only=True):
    """A line for the instance. With an `id` it may be sent again, also on another connection: it arrives once."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[!-~]+$")] | None = None


class ConsoleDialogue:
    """A console on a WebSocket: pages out, commands in. Each command is answered, in order."""

    _decoder: Final = BodyDecoder(ConsoleInput)

    def __init__(
        self,
        view: ConsoleView,
        *,
        instances: InstanceControl,
        attempts: Attempts,
        call: ApiCall[None, FollowQuery],
    ) -> None:
        self._view = view
        self._instances = instances
        self._attempts = attempts
        self._caller = call.caller
        self._id = InstanceId(call.path["id"])
        self._reader = _reader(view.state, view.consoles, call)

    async def send_messages(self, write: WriteText) -> None:
        async def send(messages: list[ConsoleMessage]) -> None:
            for message in messages:
                await write(message.socket_message())

        async def beat() -> None:
            """The protocol's own pings keep a socket alive."""

        await _follow(self._view, self._id, self._reader, send=send, beat=beat)

    def _refuse_without_permission(self) -> None:
        """FORBIDDEN, or NOT_FOUND where the permission to send lines does not hold for this instance."""
        permission = Permission.INSTANCES_COMMAND
        authorise(self._caller, permission)
        path = {"id": str(self._id)}
        check_scope(Scoping.INSTANCE, self._caller.access, permission, self._view.state, path)

    async def receive(self, text: str) -> bytes:
        asked: ConsoleInput | None = None
        try:
            self._refuse_without_permission()
            asked = self._decoder.decode(text.encode())
            await self._send(asked)
        except CorralError as error:
            detail = ErrorDetail(
                code=error.code.name,
                message=error.message,
                status=error.code.status,
                field=error.field,
                hint=error.hint,
            )
            return encode({"error": detail, **_named(asked)})
        return encode({"ack": {"command": asked.command, **_named(asked)}})

    async def _send(self, asked: ConsoleInput) -> None:
        """A line with an id that was sent before is acknowledged, and not sent again."""
        now = self._view.setting.clock.now()
        guard = line_guard(asked.id, caller=self._caller, instance=self._id, line=asked.command)
        async with self._attempts.in_turn(guard):
            attempt = self._attempts.attempt(caller=self._caller, now=now, guard=guard)
            if attempt.answered is not None:
                return
            async with attempt.concluded():
                event = await commanding.send(
                    self._view.state, self._instances, self._view.consoles, self._id, asked.command, attempt
                )
                await attempt.finish(event, answer=ApiResponse())


def _named(asked: ConsoleInput | None) -> dict[str, str]:
    return {"id": asked.id} if asked is not None and asked.id is not None else {}


async def open_console(
    view: ConsoleView, instances: InstanceControl, attempts: Attempts, call: ApiCall[None, FollowQuery]
) -> ConsoleDialogue:
    return ConsoleDialogue(view, instances=instances, attempts=attempts, call=call)


ROUTES: Final[tuple[Route, ...]] = (
    Stream(
        method="GET",
        path=f"{CONSOLE}/stream",
        permission=Permission.INSTANCES_CONSOLE,
        summary="Follow a console from run to run",
        query=FollowQuery,
        handler=stream_console,
    ),
    Socket(
        method="GET",
        path=f"{CONSOLE}/ws",
        permission=Permission.INSTANCES_CONSOLE,
        summary="Follow a console and send commands, over a WebSocket",
        query=FollowQuery,
        handler=open_console,
    ),
)
