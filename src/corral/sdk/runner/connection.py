"""One end of the socket between host and module: calls in both directions, notices, streams.

Both ends are alike; `corral.testing.module_bench` uses this as the host's end too. Everything but
`notify` belongs to the event loop it was made on.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from corral.sdk.errors import ContextMisused, HostError, HostTimeout, Refused, host_error
from corral.sdk.protocol.chunk_streams import ChunkReceiver, ChunkSender, Streamed
from corral.sdk.protocol.frame_limits import body_problem
from corral.sdk.protocol.frames import (
    MAX_CALLS_FROM_MODULE,
    MAX_CALLS_TO_MODULE,
    Answer,
    Call,
    Cancel,
    Chunk,
    Credit,
    Failure,
    FrameReader,
    FrameTooLarge,
    Message,
    Notice,
    encode_body,
    encode_frame,
)
from corral.sdk.runner.failures import CallRefused, failure_message
from corral.sdk.runner.outbox import RunnerOutbox

T = TypeVar("T")
Serve = Callable[[str, msgspec.Raw], Awaitable[object]]
OnNotice = Callable[[str, msgspec.Raw], None]
_READ: Final = 256 * 1024


class Connection:
    """`ended` is done when the other side is gone (result None) or its frames cannot be decoded
    (exception)."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        serve: Serve,
        on_notice: OnNotice,
        most_calls: int = MAX_CALLS_FROM_MODULE,
        limited: bool = True,
    ) -> None:
        """`most_calls` may be unanswered at once; further ones wait, and their deadline begins after the
        wait: a module that makes many calls at once waits only for its own. `limited`: this is a module's
        end, which sends no more than `corral.sdk.protocol.frame_limits` allows."""
        sock.setblocking(False)
        self._sock = sock
        self._serve = serve
        self._on_notice = on_notice
        self._loop = asyncio.get_running_loop()
        self.outbox = RunnerOutbox(sock, self._loop)
        self._reader = FrameReader()
        self._numbers = itertools.count(1)
        self._slots = asyncio.Semaphore(most_calls)
        self._limited = limited
        self._asked: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._receiving: dict[int, ChunkReceiver] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._sending: dict[int, ChunkSender] = {}
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(sock, self._on_readable)

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """Tasks that serve calls now."""
        return set(self._serving.values())

    # --- outgoing calls -------------------------------------------------------------------------

    async def call(self, method: str, body: object, answer: type[T], *, deadline: float = 30.0) -> T:
        self._check_loop()
        raw = encode_body(body)
        if problem := self._problem(method, raw):
            raise Refused(f"{method}: what is sent {problem}", code="BODY_TOO_LARGE")
        try:
            async with self._slots, asyncio.timeout(deadline):
                answered = await self._exchange(next(self._numbers), method, raw, deadline)
        except TimeoutError as error:
            raise _late(method, deadline) from error
        return _decoded(method, answered, answer)

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, body: object, answer: type[T], *, deadline: float = 30.0
    ) -> AsyncIterator[tuple[T, AsyncIterator[bytes]]]:
        """For calls whose answer may be followed by chunks. The deadline is that of the answer; leaving the
        context before the last chunk sends a cancel."""
        number = next(self._numbers)
        receiver = self._receiving[number] = ChunkReceiver(number, self._send)
        try:
            try:
                async with asyncio.timeout(deadline):
                    answered = await self._exchange(number, method, encode_body(body), deadline)
            except TimeoutError as error:
                raise _late(method, deadline) from error
            yield _decoded(method, answered, answer), receiver
        finally:
            if self._receiving.pop(number, None) is not None:
                self._send(Cancel(number))

    async def _exchange(self, number: int, method: str, raw: msgspec.Raw, deadline: float) -> msgspec.Raw:
        if self.ended.done():
            raise Refused(f"{method}: the connection is closed", code="UNREACHABLE")
        future: asyncio.Future[msgspec.Raw] = self._loop.create_future()
        self._asked[number] = future
        try:
            try:
                self._send(Call(number, method, raw, round(deadline * 1000)))
            except FrameTooLarge as error:
                raise Refused(f"{method}: {error}", code="BODY_TOO_LARGE") from error
            return await future
        except asyncio.CancelledError:
            self._send(Cancel(number))
            raise
        finally:
            del self._asked[number]

    def notify(self, method: str, body: object) -> None:
        self.offer_notice(method, body)

    def offer_notice(self, method: str, body: object) -> bool:
        """`notify`, returning whether it was sent; False: too much is waiting, or it is too large."""
        raw = encode_body(body)
        if self._problem(method, raw):
            return False
        return self.outbox.offer(encode_frame(Notice(method, raw)))

    def _problem(self, method: str, raw: msgspec.Raw) -> str:
        """Why the host would refuse it; empty when it would not."""
        return body_problem(method, raw) if self._limited else ""

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise ContextMisused(
                "the host was called from another event loop; use the module's own (`ctx.run` in a thread)"
            )

    # --- incoming calls -------------------------------------------------------------------------

    def _begin(self, call: Call) -> None:
        if len(self._serving) >= MAX_CALLS_TO_MODULE:
            refusal = CallRefused("TooManyCalls", f"{MAX_CALLS_TO_MODULE} calls are being answered already")
            self._send(failure_message(call.id, refusal))
            return
        task = self._loop.create_task(self._answer(call), name=f"corral/{call.method}")
        self._serving[call.id] = task
        task.add_done_callback(lambda _: self._serving.pop(call.id, None))

    async def _answer(self, call: Call) -> None:
        """Never raises, whatever the module does: an exception of this task, a SystemExit above all,
        would end the loop."""
        try:
            answer = await self._serve(call.method, call.body)
            if isinstance(answer, Streamed):
                await self._stream_out(call.id, answer)
            else:
                self._send(Answer(call.id, self._encoded(call.method, answer)))
        except asyncio.CancelledError:
            self._send(failure_message(call.id, CallRefused("Cancelled", f"{call.method} was cancelled")))
        except BaseException as error:
            self._send(failure_message(call.id, error))

    def _encoded(self, method: str, answer: object) -> msgspec.Raw:
        raw = encode_body(answer)
        if problem := self._problem(method, raw):
            raise CallRefused("BadAnswer", f"the answer {problem}")
        return raw

    async def _stream_out(self, number: int, streamed: Streamed) -> None:
        sender = self._sending[number] = ChunkSender(number, self._send)
        try:
            self._send(Answer(number, encode_body(streamed.answer)))
            await sender.send_all(streamed.chunks)
        finally:
            del self._sending[number]
            close = getattr(streamed.chunks, "aclose", None)
            if close is not None:
                await close()

    # --- reading --------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            data = self._sock.recv(_READ)
            if not data:
                self._end(None)
                return
            for message in self._reader.feed(data):
                self._take(message)
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:
            self._end(None)
        except BaseException as error:  # also MemoryError: what was read so far is lost, so is the rest
            self._end(error)

    def _take(self, message: Message) -> None:
        match message:
            case Call():
                self._begin(message)
            case Answer():
                self._settle(message.id, lambda future: future.set_result(message.body))
            case Failure():
                self._fail(message)
            case Cancel():
                if (task := self._serving.get(message.id)) is not None:
                    task.cancel()
            case Notice():
                self._on_notice(message.method, message.body)
            case Chunk():
                self._take_chunk(message)
            case Credit():
                if (sender := self._sending.get(message.id)) is not None:
                    sender.grant(message.bytes)

    def _settle(self, number: int, settle: Callable[[asyncio.Future[msgspec.Raw]], None]) -> None:
        """Complete a call with its answer; an answer without a call came too late."""
        future = self._asked.get(number)
        if future is not None and not future.done():
            settle(future)

    def _fail(self, failure: Failure) -> None:
        error = host_error(failure.code, failure.message, failure.hint)
        if failure.traceback:
            error.add_note(failure.traceback)
        if (receiver := self._receiving.pop(failure.id, None)) is not None:
            receiver.fail(error)
        self._settle(failure.id, lambda future: future.set_exception(error))

    def _take_chunk(self, chunk: Chunk) -> None:
        receiver = self._receiving.get(chunk.id)
        if receiver is None:
            return
        receiver.put(chunk)
        if chunk.last:
            del self._receiving[chunk.id]

    def _send(self, message: Message) -> None:
        self.outbox.put(encode_frame(message))

    # --- ending ---------------------------------------------------------------------------------

    def _end(self, error: BaseException | None) -> None:
        self._loop.remove_reader(self._sock)
        gone = Refused("the host is gone", code="UNREACHABLE")
        for future in self._asked.values():
            if not future.done():
                future.set_exception(gone)
        for receiver in self._receiving.values():
            receiver.fail(gone)
        if not self.ended.done():
            if error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)

    async def close(self) -> None:
        """Stop reading and serving; the socket is the caller's to close."""
        if not self.ended.done():
            self._end(None)
        tasks = self.tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.outbox.close()


def _late(method: str, deadline: float) -> HostTimeout:
    return HostTimeout(f"no answer to {method} within {deadline:g} s")


def _decoded(method: str, raw: msgspec.Raw, answer: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(raw, type=answer)
    except (ValueError, RecursionError) as error:
        raise HostError(f"the answer to {method} is not understood: {error}", code="BAD_FORMAT") from error
