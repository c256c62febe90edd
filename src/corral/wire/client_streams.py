"""Streams that this side opens. Every frame that the server sent is read, and the reason for the end is the server's,
also when a write fails because the server has ended the stream.

A call of `grpc.aio` alone does not do that: a write that fails replaces the server's status by INTERNAL, and `read` then
returns none of the frames that have arrived (grpc/grpc#36066).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

import grpc
import msgspec
from google.protobuf.message import DecodeError

from corral.errors import Bug, CorralError
from corral.wire.frames import Undecodable
from corral.wire.rpc_errors import from_rpc

_OVER: Final = (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError)
T = TypeVar("T")


class _Status(msgspec.Struct, frozen=True):
    code: grpc.StatusCode
    trailing: Any
    details: str


class ClientStream:
    """One call of a streaming method. One task may write while another one reads."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._frames = aiter(call)
        self._first: _Status | None = None
        call.add_done_callback(self._note_status)

    def _note_status(self, _: object) -> None:
        """gRPC calls this when there is a status: the server's, unless a write has failed before."""
        call = self._call
        if self._first is not None:
            return
        self._first = _Status(_now(call.code()), _now(call.trailing_metadata()), _now(call.details()))

    async def write(self, frame: Any) -> bool:
        """False when the stream is over: `read` still has what arrived before, and `ending` the reason."""
        try:
            await self._call.write(frame)
        except _OVER:
            return False
        return True

    async def read(self) -> Any:
        """The next frame, or None at the end of the stream."""
        try:
            return await anext(self._frames)
        except (StopAsyncIteration, *_OVER):
            return None

    async def ending(self, *, peer: str) -> CorralError | None:
        """Why the server ended the stream; None: without an error. Waits for the end, and drops unread frames."""
        while await self.read() is not None:
            pass
        call = self._call
        last = _Status(await call.code(), await call.trailing_metadata(), await call.details())
        if last.code is grpc.StatusCode.INTERNAL and self._first is not None:
            last = self._first
        if last.code is grpc.StatusCode.OK:
            return None
        error = grpc.aio.AioRpcError(last.code, grpc.aio.Metadata(), last.trailing, last.details, None)
        return from_rpc(error, peer=peer)

    def cancel(self) -> bool:
        """End the stream from this side; False when it was over."""
        return bool(self._call.cancel())

    async def over(self) -> None:
        """Wait for the end of the stream."""
        await self._call.code()


def _now(ready: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that does not wait for anything."""
    try:
        ready.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    raise Bug("gRPC reported a status that it does not have")


class StreamChannel:
    """A channel for stubs of streaming methods: their calls are `ClientStream`s, in which frames that cannot be decoded
    arrive as `Undecodable`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def stream_stream(
        self, method: str, *, response_deserializer: Callable[[bytes], Any], **fields: Any
    ) -> Callable[..., ClientStream]:
        """Called by a generated stub."""

        def decode(body: bytes) -> Any:
            try:
                return response_deserializer(body)
            except DecodeError as error:
                return Undecodable(str(error))

        stream_stream = cast(Any, self._channel).stream_stream  # the stubs lack `_registered_method`
        opened = stream_stream(method, response_deserializer=decode, **fields)
        return lambda **call: ClientStream(opened(**call))
