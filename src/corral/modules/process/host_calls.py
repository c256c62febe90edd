"""Calls of a module to its host: each served by a task of its own, bounded in number and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from corral.errors import Code, CorralError
from corral.modules.process.channel import Channel
from corral.modules.process.exit_reasons import FLOOD
from corral.modules.process.process_values import Serve
from corral.sdk.protocol.frame_limits import shown
from corral.sdk.protocol.frames import (
    MAX_CALLS_FROM_MODULE,
    Answer,
    Call,
    Cancel,
    Failure,
    FrameTooLarge,
    encode_body,
)
from corral.system import log_context
from corral.system.aio.tasks import Tasks

_log = structlog.get_logger("corral.modules.process")

_MOST_SECONDS: Final = 600.0
"""Longest deadline, the SDK's own for the longest call: an index over all that a module has stored."""
_MOST_UNANSWERED: Final = 2 * MAX_CALLS_FROM_MODULE
"""Well above what the SDK allows: a module that exceeds it does not use the SDK."""


class HostCalls:
    """A call counts until its answer is queued, never longer: the SDK makes the next one as soon as it has
    the answer, so a module that uses it never has more calls open here than there."""

    def __init__(
        self, module_id: str, channel: Channel, serve: Serve, cut_off: Callable[[str, str], None]
    ) -> None:
        self._module_id = module_id
        self._channel = channel
        self._serve = serve
        self._cut_off = cut_off
        self._owned = Tasks()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._given_up: set[asyncio.Task[None]] = set()
        """Cancelled by the module, and not ended yet."""
        self._over = False

    def take(self, message: Call | Cancel) -> None:
        if self._over:
            return
        if isinstance(message, Cancel):
            task = self._tasks.pop(message.id, None)
            if task is not None:
                self._given_up.add(task)
                task.cancel()
            return
        if message.id in self._tasks:
            self._cut_off(
                FLOOD, f"it made a second call under the number {message.id} of one that is unanswered"
            )
            return
        if len(self._tasks) >= _MOST_UNANSWERED:
            self._cut_off(
                FLOOD,
                f"it had {_MOST_UNANSWERED} calls unanswered at once; {MAX_CALLS_FROM_MODULE} are allowed, "
                "which the SDK keeps to by itself",
            )
            return
        name = f"modules/serve/{self._module_id}/{shown(message.method)}"
        task = self._owned.spawn(self._run(message), name=name, awaited=True)
        self._tasks[message.id] = task
        task.add_done_callback(lambda done: self._done(message.id, done))
        self._pause()

    def refuse(self, number: int, method: str, problem: str) -> None:
        """Answer a call that was refused by its head."""
        if not self._over:
            why = f"what is sent under '{shown(method)}' {problem}"
            self._channel.send(_failure(number, Code.BODY_TOO_LARGE, why))

    def end(self) -> None:
        """Cancel all calls under way."""
        self._over = True
        self._owned.cancel()

    async def ended(self) -> None:
        """Wait until all of them have ended."""
        await self._owned.wait()

    def _forget(self, number: int, task: asyncio.Task[None] | None) -> None:
        """Forget a call, unless its number belongs to a later one already."""
        if self._tasks.get(number) is task:
            self._tasks.pop(number, None)

    def _done(self, number: int, task: asyncio.Task[None]) -> None:
        self._forget(number, task)
        self._given_up.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error(
                "module_call.failed", module=self._module_id, reason="no answer could be sent", exc_info=error
            )
        self._pause()

    def _pause(self) -> None:
        """Pause reading while cancelled calls that have not ended bring the number above the limit: a module
        cannot have more work done by cancelling. Without cancelled calls reading goes on: other messages,
        answers among them, do not wait behind the module's own calls."""
        if not self._over:
            under_way = len(self._tasks) + len(self._given_up)
            self._channel.pause(bool(self._given_up) and under_way > MAX_CALLS_FROM_MODULE)

    async def _run(self, call: Call) -> None:
        try:
            async with asyncio.timeout(min(call.deadline_ms / 1000 or _MOST_SECONDS, _MOST_SECONDS)):
                with log_context.bound(module=self._module_id):
                    answer = await self._serve(call.method, call.body)
        except CorralError as error:
            reply: Answer | Failure = _failure(call.id, error.code, error.message, error.hint or "")
        except TimeoutError:
            method = shown(call.method)
            reply = _failure(call.id, Code.TIMEOUT, f"'{method}' took longer than the module waits")
        except Exception as error:
            method = shown(call.method)
            _log.error("module_call.failed", module=self._module_id, method=method, exc_info=error)
            reply = _failure(call.id, Code.INTERNAL, f"'{method}' failed in the host")
        else:
            reply = self._reply(call, answer)
        await self._channel.room()
        if not self._over:
            self._forget(call.id, asyncio.current_task())
            self._send(call, reply)

    def _reply(self, call: Call, answer: object) -> Answer | Failure:
        try:
            return Answer(call.id, encode_body(answer))
        except Exception as error:  # a file name that is not text, a number that is too large, …
            method = shown(call.method)
            _log.error(
                "module_call.failed",
                module=self._module_id,
                method=method,
                reason="the answer cannot be encoded",
                exc_info=error,
            )
            return _failure(call.id, Code.INTERNAL, f"the host's answer to '{method}' cannot be sent")

    def _send(self, call: Call, reply: Answer | Failure) -> None:
        try:
            self._channel.send(reply)
        except FrameTooLarge as error:
            hint = "ask for less at once"
            self._channel.send(_failure(call.id, Code.BODY_TOO_LARGE, f"the answer: {error}", hint))


def _failure(number: int, code: Code, message: str, hint: str = "") -> Failure:
    return Failure(number, code.name, message, hint)
