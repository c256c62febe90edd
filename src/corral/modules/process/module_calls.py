"""Calls of the host to a module: numbered, bounded, each with a deadline; and streamed answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import msgspec

from corral.modules.process.call_failures import CallOverrun, ModuleBusy, ModuleRaised, ProcessGone
from corral.modules.process.channel import Channel
from corral.modules.process.exit_reasons import FLOOD
from corral.modules.process.process_values import Death
from corral.sdk.protocol.frames import (
    MAX_CALLS_TO_MODULE,
    MAX_CHUNK,
    STREAM_CREDIT,
    Answer,
    Call,
    Cancel,
    Chunk,
    Credit,
    Failure,
    FrameTooLarge,
    encode_body,
)
from corral.system.aio.tasks import set_within

T = TypeVar("T")

_GRANT: Final = STREAM_CREDIT // 4
"""Credit is returned in pieces of this size, not for each chunk."""
_KIND_LENGTH: Final = 200
_TEXT_LENGTH: Final = 4000
_TRACEBACK_LENGTH: Final = 32_000
"""Longest traceback that is kept of a failure: it is logged and stored."""
_SMALL: Final = 4096
"""Waiting chunks are joined up to this size: each has a fixed cost, however small it is."""


class _PendingCall:
    """One call that is under way."""

    __slots__ = ("answer", "broken", "chunks", "credit", "last", "method", "news", "streamed")

    def __init__(self, method: str, answer: asyncio.Future[msgspec.Raw]) -> None:
        self.method = method
        self.answer = answer
        self.streamed = False
        """The caller reads chunks."""
        self.chunks: deque[bytes] = deque()
        self.credit = STREAM_CREDIT
        self.last = True
        """Nothing follows the answer."""
        self.broken: Exception | None = None
        self.news = asyncio.Event()


class ModuleCalls:
    """Calls under way. `cut_off` is called when the module sends more than its credit."""

    def __init__(self, module_id: str, channel: Channel, cut_off: Callable[[str], None]) -> None:
        self._module_id = module_id
        self._channel = channel
        self._cut_off = cut_off
        self._pending: dict[int, _PendingCall] = {}
        self._number = 0
        self._death: Death | None = None

    async def call(self, method: str, body: object, *, answer: type[T], deadline: float) -> T:
        """CallOverrun, ModuleRaised, ProcessGone or ModuleBusy; a call that the caller abandons is
        cancelled."""
        number, pending = self._begin(method)
        try:
            return await self._answer(number, pending, body, answer, deadline)
        finally:
            self._end(number, pending)

    @asynccontextmanager
    async def stream(
        self, method: str, body: object, *, answer: type[T], deadline: float
    ) -> AsyncIterator[tuple[T, AsyncIterator[bytes]]]:
        """The answer, and the chunks that follow it; none unless the answer has `streamed`. The deadline
        applies to the answer, and to each pause between chunks. Leaving the context cancels the rest."""
        number, pending = self._begin(method)
        pending.streamed, pending.last = True, False
        try:
            head = await self._answer(number, pending, body, answer, deadline)
            pending.last = pending.last or not getattr(head, "streamed", True)
            yield head, self._chunks(number, pending, deadline)
        finally:
            self._end(number, pending)

    def take(self, message: Answer | Failure | Chunk) -> None:
        """Take in a message of the module; a late or unknown one is dropped."""
        pending = self._pending.get(message.id)
        if pending is None:
            return
        if isinstance(message, Chunk):
            self._take_chunk(pending, message)
        elif isinstance(message, Failure):
            self._break(pending, self._raised(pending.method, message))
        elif not pending.answer.done():
            pending.answer.set_result(message.body)

    def method(self, number: int) -> str:
        """Method of the call with this number; empty when no such call is under way."""
        pending = self._pending.get(number)
        return pending.method if pending is not None else ""

    def refuse(self, number: int, problem: str) -> None:
        """Fail a call whose answer is over its limit."""
        pending = self._pending.get(number)
        if pending is not None:
            self._break(pending, self._bad(pending.method, "BadAnswer", f"its answer {problem}"))

    def end(self, death: Death) -> None:
        """Fail all calls under way."""
        self._death = death
        for pending in self._pending.values():
            self._break(pending, ProcessGone(self._module_id, death))

    def _begin(self, method: str) -> tuple[int, _PendingCall]:
        if self._death is not None:
            raise ProcessGone(self._module_id, self._death)
        if len(self._pending) >= MAX_CALLS_TO_MODULE:
            raise ModuleBusy(self._module_id)
        self._number += 1
        pending = _PendingCall(method, asyncio.get_running_loop().create_future())
        self._pending[self._number] = pending
        return self._number, pending

    async def _answer(
        self, number: int, pending: _PendingCall, body: object, answer: type[T], deadline: float
    ) -> T:
        call = Call(number, pending.method, self._encoded(pending, body), max(1, int(deadline * 1000)))
        try:
            async with asyncio.timeout(deadline):
                await self._channel.room()
                self._channel.send(call)
                raw = await pending.answer
        except TimeoutError:
            raise CallOverrun(self._module_id, pending.method, deadline) from None
        except FrameTooLarge as error:
            raise self._bad(pending.method, "FrameTooLarge", str(error)) from error
        return self._decoded(pending, raw, answer)

    def _end(self, number: int, pending: _PendingCall) -> None:
        del self._pending[number]
        answered = pending.answer.done() and not pending.answer.cancelled()
        if self._death is None and pending.broken is None and not (answered and pending.last):
            self._channel.send(Cancel(number))  # also when no chunk has come yet, or none is pending
        if pending.answer.done() and not pending.answer.cancelled():
            pending.answer.exception()  # retrieved, also when we were cancelled meanwhile
        pending.answer.cancel()

    async def _chunks(self, number: int, pending: _PendingCall, deadline: float) -> AsyncIterator[bytes]:
        ungranted = 0
        while True:
            while pending.chunks:
                chunk = pending.chunks.popleft()
                ungranted += len(chunk)
                yield chunk
                if ungranted >= _GRANT:
                    pending.credit += ungranted
                    self._channel.send(Credit(number, ungranted))
                    ungranted = 0
            if pending.broken is not None:
                raise pending.broken
            if pending.last:
                return
            pending.news.clear()
            if not await set_within(pending.news, deadline):
                raise CallOverrun(self._module_id, pending.method, deadline)

    def _take_chunk(self, pending: _PendingCall, chunk: Chunk) -> None:
        pending.credit -= len(chunk.data)
        if pending.credit < 0 or len(chunk.data) > MAX_CHUNK:
            self._cut_off(FLOOD)
            return
        if chunk.data and pending.streamed:
            _append(pending.chunks, chunk.data)
        pending.last = pending.last or chunk.last
        pending.news.set()

    def _break(self, pending: _PendingCall, failure: Exception) -> None:
        if not pending.answer.done():
            pending.answer.set_exception(failure)
        pending.broken = failure
        pending.news.set()

    def _raised(self, method: str, failure: Failure) -> ModuleRaised:
        return ModuleRaised(
            self._module_id,
            method,
            kind=failure.code[:_KIND_LENGTH],
            message=failure.message[:_TEXT_LENGTH],
            traceback=failure.traceback[-_TRACEBACK_LENGTH:],
            hint=failure.hint[:_TEXT_LENGTH],
        )

    def _encoded(self, pending: _PendingCall, body: object) -> msgspec.Raw:
        try:
            return encode_body(body)
        except Exception as error:  # invalid text, a number that is too large, …
            raise self._bad(
                pending.method, "BadCall", f"it cannot be sent: {error}"[:_TEXT_LENGTH]
            ) from error

    def _decoded(self, pending: _PendingCall, raw: msgspec.Raw, answer: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(raw, type=answer)
        except Exception as error:  # its text may hold the value that does not fit
            raise self._bad(pending.method, "BadAnswer", str(error)[:_TEXT_LENGTH]) from error

    def _bad(self, method: str, kind: str, message: str) -> ModuleRaised:
        return ModuleRaised(self._module_id, method, kind=kind, message=message)


def _append(chunks: deque[bytes], data: bytes) -> None:
    if chunks and len(chunks[-1]) + len(data) <= _SMALL:
        chunks[-1] += data
    else:
        chunks.append(data)
