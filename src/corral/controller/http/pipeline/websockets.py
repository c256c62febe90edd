"""WebSockets: serving one, until either side ends it or whatever ends an event stream of its token does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.pipeline.caller_limits import OpenStream
from corral.controller.http.pipeline.route_handlers import Dialogue, DialogueOver, WriteText
from corral.system.aio.tasks import Tasks, failure_of, first_of

log = structlog.get_logger("corral.controller.http")

PROTOCOL: Final = "corral.console"
TICKET_PREFIX: Final = "ticket."
"""A browser cannot set headers on a socket, but it can offer subprotocols: `ticket.TEXT` is one."""

_GOODBYE_SECONDS: Final = 0.25
_ENDED: Final = 1000
_CLOSED_BY_US: Final = 1008
_FAILED: Final = 1011
_MAX_REASON: Final = 120
_MESSAGE_COST: Final = 0.2
"""Of a message that is not answered, such as credit, in requests."""

WaitTurn = Callable[[float], Awaitable[None]]


def ticket_of(request: HttpRequest) -> str | None:
    """The ticket among the offered subprotocols."""
    for offered in (request.header(b"sec-websocket-protocol") or "").split(","):
        if offered.strip().startswith(TICKET_PREFIX):
            return offered.strip().removeprefix(TICKET_PREFIX)
    return None


async def serve_socket(
    *, request: HttpRequest, stream: OpenStream, dialogue: Dialogue, wait_turn: WaitTurn
) -> None:
    """Send and receive until either side ends or `stream` is closed; nothing is left running. `wait_turn`: before a message
    is read, and for so much of a request."""
    assert (await request.receive())["type"] == "websocket.connect"
    await request.send({"type": "websocket.accept", "subprotocol": _chosen(request), "headers": []})

    async def write(message: str) -> None:
        await request.send({"type": "websocket.send", "text": message})

    async with Tasks() as tasks:
        sending = tasks.spawn(dialogue.send_messages(write), name="http/send", awaited=True)
        receiving = tasks.spawn(
            _receive_all(request, dialogue, write, wait_turn), name="http/receive", awaited=True
        )
        await first_of(sending, receiving, stream.closing)
        gone = receiving.done() and not receiving.cancelled() and receiving.exception() is None
    failures = [error for task in (sending, receiving) if (error := failure_of(task)) is not None]
    if gone or any(isinstance(failure, OSError) for failure in failures):
        return  # the client hung up, and one of the two noticed first
    refusal = next((failure for failure in failures if isinstance(failure, DialogueOver)), None)
    for failure in failures:
        if failure is refusal:
            continue
        log.warning("http_socket.failed", path=request.shown_path, error=str(failure), exc_info=failure)
    if stream.closing.done():
        await _close(request, _CLOSED_BY_US, stream.closing.result())
    elif refusal is not None:
        await _close(request, _ENDED if refusal.asked_for else _CLOSED_BY_US, str(refusal))
    elif failures:
        await _close(request, _FAILED, "something went wrong")
    else:
        await _close(request, _ENDED, "nothing more will come")


def _chosen(request: HttpRequest) -> str | None:
    offered = (request.header(b"sec-websocket-protocol") or "").split(",")
    return PROTOCOL if PROTOCOL in [name.strip() for name in offered] else None


async def _receive_all(
    request: HttpRequest, dialogue: Dialogue, write: WriteText, wait_turn: WaitTurn
) -> None:
    """Messages one after the other, until the client goes. What it sends meanwhile waits in its socket. One that is answered
    counts as a request, others as a part of one."""
    while True:
        message = await request.receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        if text is None:
            text = (message.get("bytes") or b"").decode("utf-8", "replace")
        await wait_turn(_MESSAGE_COST)
        answer = await dialogue.receive(text)
        if answer is not None:
            await write(answer.decode())
            await wait_turn(1 - _MESSAGE_COST)
        else:
            await asyncio.sleep(0)  # many messages may lie here: others have their turn between two of them


async def _close(request: HttpRequest, code: int, reason: str) -> None:
    """Close properly if the client takes it; one that has stopped reading is cut off."""
    try:
        async with asyncio.timeout(_GOODBYE_SECONDS):
            await request.send({"type": "websocket.close", "code": code, "reason": reason[:_MAX_REASON]})
    except TimeoutError:
        request.abort()
        await asyncio.sleep(0)  # the server learns of it in its next step, and must before we return
    except (OSError, RuntimeError):
        pass  # the server closed it while we were about to: a ping was left unanswered
