"""Reading the frames of a stream, on either side: bytes that are no message, or one of far too many parts, are an
error of the peer's, with a code, and never a traceback of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import grpc
import msgspec
from google.protobuf.message import DecodeError

from corral.errors import Code, Rejected
from corral.wire.parts import check_parts


class Undecodable(msgspec.Struct, frozen=True):
    """What a client's stream gives in place of a frame that cannot be decoded. gRPC itself would log a traceback
    and then say no more than if the stream had ended, which it has not."""

    reason: str


class DecodingChannel:
    """A channel for stubs of streams: frames that cannot be decoded arrive as `Undecodable`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def stream_stream(
        self, method: str, *, response_deserializer: Callable[[bytes], Any], **fields: Any
    ) -> Any:
        """What a generated stub asks its channel for."""

        def decode(body: bytes) -> Any:
            try:
                return response_deserializer(body)
            except DecodeError as error:
                return Undecodable(str(error))

        stream_stream = cast(Any, self._channel).stream_stream  # the stubs lack `_registered_method`
        return stream_stream(method, response_deserializer=decode, **fields)


class CountingServer:
    """A server to register services at whose frames are counted before they are decoded: nobody makes us build
    millions of objects out of one frame."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """What generated code calls as well; it says the same as the method below."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """What generated code calls with a service's methods."""
        counting = {
            name: handler._replace(request_deserializer=counted(handler.request_deserializer))
            for name, handler in handlers.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, counting),))


def counted(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """`decode`, the `FromString` of a message, for bytes that somebody else wrote."""
    descriptor = cast(Any, decode).__self__.DESCRIPTOR

    def checked(body: bytes) -> Any:
        check_parts(body, descriptor)
        return decode(body)

    return checked


async def read_frame(stream: Any) -> Any:
    """The next frame of a call or of a servicer's context, or gRPC's end of stream. BAD_REQUEST when it cannot be
    decoded: whatever follows it cannot be trusted, so the stream is over."""
    try:
        frame = await stream.read()
    except DecodeError as error:
        frame = Undecodable(str(error))
    if isinstance(frame, Undecodable):
        raise Rejected(
            Code.BAD_REQUEST,
            f"a frame cannot be decoded: {frame.reason[:200]}",
            hint="run the same release on controller and daemon",
        )
    return frame
