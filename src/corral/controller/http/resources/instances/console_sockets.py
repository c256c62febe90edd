"""Consoles over WebSockets: output, as fast as the viewer grants credit for it, and lines for the instance."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import msgspec

from corral.controller.consoles.stream_messages import ConsoleMessage
from corral.controller.http.messages.call import ApiCall, RequestBody
from corral.controller.http.messages.request_decoder import BodyDecoder
from corral.controller.http.messages.responses import ApiResponse, ErrorDetail, encode
from corral.controller.http.pipeline.attempts import Attempts
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.idempotency import line_guard
from corral.controller.http.pipeline.route_handlers import DialogueOver, WriteText
from corral.controller.http.pipeline.route_table import Route, Socket
from corral.controller.http.pipeline.scoping import Scoping, check_scope
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.instances import command_input as commanding
from corral.controller.http.resources.instances.console_pages import CONSOLE
from corral.controller.http.resources.instances.consoles import (
    MESSAGES,
    ConsoleView,
    FollowQuery,
    follow_console,
    reader_of,
)
from corral.controller.http.resources.instances.instances import CommandText
from corral.domain.ids import InstanceId
from corral.domain.permissions import Permission
from corral.errors import Code, CorralError, Rejected

MAX_CREDIT: Final = 1 << 30
"""The most that one message grants, and that counts of what was granted."""
_UNUSABLE: Final = 100
"""Messages one after the other that are none of ours, after which the socket is closed."""

_DESCRIPTION: Final = """Server and client send JSON texts.

The server sends pages and gaps of the console, or with `format=blocks` texts, as they are; all else under its name: `{"run": …}`,
`{"end": …}`, `{"late": …}` as on the stream of events, `{"command": …}` whenever anybody sends a line to the instance, and
`{"ack": …}` or `{"error": …}` to what the client sends. `x-messages` has their schemas.

The client sends:

- `{"command": "LINE", "id": "ID"}`: a line for the instance. The answer is
  `{"ack": {"command": "LINE", "id": "ID", "incarnation": N, "offset": BYTES}}`, where `offset` is the position of the run's
  console when the line was written, or null, or `{"error": {"code", "message", …}, "id": "ID"}`. With an `id`, which may be left out, it arrives
  once however often it is sent.
- `{"credit": BYTES}`: from the first such message on, the server sends no more bytes than were granted, counted as the UTF-8
  of its messages without `ack` and `error`. 0 stops the output. It is not answered. Credit of 128 KiB is enough for every message; a message that
  is larger than what is left waits.

A message that cannot be understood is answered by an error; after 100 of them in a row the socket is closed with 1008."""


class ConsoleInput(RequestBody, frozen=True, kw_only=True):
    """A line for the instance, or credit for more output. With an `id` a line may be sent again, also on another connection:
    it arrives once."""

    command: CommandText | None = None
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[!-~]+$")] | None = None
    credit: Annotated[int, msgspec.Meta(ge=0, le=MAX_CREDIT)] | None = None


class OutputCredit:
    """Bytes that the viewer has room for. There is no limit until it grants some for the first time."""

    def __init__(self) -> None:
        self.left: int | None = None
        self._granted = asyncio.Event()

    def grant(self, bytes: int) -> None:
        self.left = min(MAX_CREDIT, (self.left or 0) + bytes)
        self._granted.set()

    async def use(self, bytes: int) -> None:
        """Take so many bytes of it; waits until there are."""
        while self.left is not None and self.left < bytes:
            self._granted.clear()
            await self._granted.wait()
        if self.left is not None:
            self.left -= bytes


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
        self._credit = OutputCredit()
        self._unusable = 0
        self._reader = reader_of(view, call, room=lambda: self._credit.left)

    async def send_messages(self, write: WriteText) -> None:
        async def send(messages: list[ConsoleMessage]) -> None:
            for message in messages:
                await self._credit.use(message.socket_bytes)
                await write(message.socket_message())

        async def beat() -> None:
            """The protocol's own pings keep a socket alive."""

        await follow_console(self._view, self._id, self._reader, send=send, beat=beat)

    async def receive(self, text: str) -> bytes | None:
        try:
            asked = self._decoded(text)
        except CorralError as error:
            self._unusable += 1
            if self._unusable >= _UNUSABLE:
                raise DialogueOver(f"{_UNUSABLE} messages in a row could not be understood") from error
            return _refusal(error, None)
        self._unusable = 0
        if asked.credit is not None:
            self._credit.grant(asked.credit)
            return None
        try:
            self._refuse_without_permission()
            return encode({"ack": await self._send(asked.command or "", asked.id)})
        except CorralError as error:
            return _refusal(error, asked.id)

    def _decoded(self, text: str) -> ConsoleInput:
        asked: ConsoleInput = self._decoder.decode(text.encode("utf-8", "replace"))
        if asked.command is None and asked.credit is None:
            raise Rejected(
                Code.MISSING_FIELD, "there is no command in it", hint="or no credit", field="command"
            )
        if asked.credit is not None and (asked.command is not None or asked.id is not None):
            raise Rejected(
                Code.INVALID_FIELD, "credit is a message of its own", hint="send it alone", field="credit"
            )
        return asked

    def _refuse_without_permission(self) -> None:
        """FORBIDDEN, or NOT_FOUND where the permission to send lines does not hold for this instance."""
        permission = Permission.INSTANCES_COMMAND
        authorise(self._caller, permission)
        path = {"id": str(self._id)}
        check_scope(Scoping.INSTANCE, self._caller.access, permission, self._view.state, path)

    async def _send(self, line: str, id: str | None) -> dict[str, Any]:
        """The line as it is acknowledged. One with an id that was sent before is not sent again."""
        now = self._view.setting.clock.now()
        guard = line_guard(id, caller=self._caller, instance=self._id, line=line)
        async with self._attempts.in_turn(guard):
            attempt = self._attempts.attempt(caller=self._caller, now=now, guard=guard)
            if attempt.answered is not None and guard is not None:
                known = msgspec.json.decode(guard.open(attempt.answered.record) or b"{}")
                return {"command": line, **_named(id), **known}
            async with attempt.concluded():
                sent = await commanding.send(
                    self._view.state,
                    self._instances,
                    self._view.consoles,
                    self._id,
                    line,
                    attempt,
                    line_id=id,
                )
                place = {"incarnation": sent.target.incarnation, "offset": sent.offset}
                await attempt.finish(sent.event(), sent.entry(), answer=ApiResponse(body=encode(place)))
        return {"command": line, **_named(id), **place}


def _refusal(error: CorralError, id: str | None) -> bytes:
    detail = ErrorDetail(
        code=error.code.name,
        message=error.message,
        status=error.code.status,
        field=error.field,
        hint=error.hint,
    )
    return encode({"error": detail, **_named(id)})


def _named(id: str | None) -> dict[str, str]:
    return {"id": id} if id is not None else {}


async def open_console(
    view: ConsoleView, instances: InstanceControl, attempts: Attempts, call: ApiCall[None, FollowQuery]
) -> ConsoleDialogue:
    return ConsoleDialogue(view, instances=instances, attempts=attempts, call=call)


ROUTES: Final[tuple[Route, ...]] = (
    Socket(
        method="GET",
        path=f"{CONSOLE}/ws",
        permission=Permission.INSTANCES_CONSOLE,
        summary="Follow a console and send commands, over a WebSocket",
        description=_DESCRIPTION,
        messages=MESSAGES,
        query=FollowQuery,
        handler=open_console,
    ),
)
