"""Frames of a stream, read on either side: bytes that are no message, or one of far too many parts, are an
error of the peer, with a code, and never a traceback of ours.

The parts of a message are counted in its bytes, without building it: an empty part takes two bytes of a frame
and a hundred times that in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import grpc
import msgspec
from google.protobuf.message import DecodeError

from corral.errors import Code, Rejected

MOST_MESSAGES: Final = 100_000
"""Messages within one frame. The largest legitimate one is a handshake of 5,000 runs with their ports and
changes."""
MOST_FIELDS: Final = 250_000
"""Fields of all of them, flat ones left out; this also bounds the cost of the counting."""
CONSOLE_BLOCKS: Final = 2000
"""Blocks in one ConsoleBatch."""
_ENTRY: Final = 5
"""An entry of a map costs as much as so many messages."""
_UNCOUNTED_BYTES: Final = 128 * 1024
"""A field has at least two bytes, an entry with a key of its own eight: fewer bytes cannot hold too many."""

_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
Layout = dict[int, tuple[int, Any]]
"""For a kind of message, by tag: the cost of each message that it holds, and their layout, None where there
is nothing to count in them."""
_layouts: dict[str, Layout] = {}


def check_parts(body: bytes, descriptor: Any) -> None:
    """Raise DecodeError when `body` has more parts than any peer of ours sends, or is no message."""
    if len(body) <= _UNCOUNTED_BYTES:
        return
    try:
        _count(body, _layout(descriptor))
    except _TooMany as error:
        raise DecodeError(f"{_kind(body, descriptor)} has {error}") from None
    except IndexError:
        raise DecodeError(f"{_kind(body, descriptor)} is cut off") from None


class _TooMany(Exception):
    pass


def _layout(descriptor: Any) -> Layout:
    known = _layouts.get(descriptor.full_name)
    if known is not None:
        return known
    layout = _layouts[descriptor.full_name] = {}
    for field in descriptor.fields:
        if (inner := field.message_type) is not None:
            cost = _ENTRY if inner.GetOptions().map_entry else 1
            layout[field.number << 3 | _BYTES] = (cost, None if _is_flat(inner) else _layout(inner))
    return layout


def _is_flat(descriptor: Any) -> bool:
    """Whether all of its fields together make only this one message."""
    return not any(field.message_type is not None or field.is_repeated for field in descriptor.fields)


def _kind(body: bytes, descriptor: Any) -> str:
    try:
        number = _varint(body, 0)[0] >> 3
    except IndexError:
        number = 0
    field = descriptor.fields_by_number.get(number)
    return f"a {descriptor.name}" if field is None else f"a {descriptor.name} with '{field.name}'"


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number of several bytes, and where the next begins."""
    value = shift = 0
    while (byte := body[at]) > 127:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise IndexError
    return value | byte << shift, at + 1


def _count(body: bytes, layout: Layout) -> None:
    """Count the fields, skipping everything that is no message, up to the limits. One plain function: it
    processes a hundred thousand fields of a large frame while the loop waits."""
    fields = messages = at = 0
    end = len(body)
    outer: list[tuple[int, Layout]] = []
    while True:
        while at < end:
            fields += 1
            tag = body[at]
            at += 1
            if tag > 127:
                if (high := body[at]) < 128:
                    tag, at = tag & 127 | high << 7, at + 1
                else:
                    tag, at = _varint(body, at - 1)
            kind = tag & 7
            if kind == _BYTES:
                length = body[at]
                at += 1
                if length > 127:
                    if (high := body[at]) < 128:
                        length, at = length & 127 | high << 7, at + 1
                    else:
                        length, at = _varint(body, at - 1)
                if tag in layout:
                    cost, inner = layout[tag]
                    messages += cost
                    if inner is not None and length:
                        if fields > MOST_FIELDS or messages > MOST_MESSAGES:
                            break
                        if at + length > end:
                            raise IndexError
                        outer.append((end, layout))
                        end, layout = at + length, inner
                        continue
                at += length
            elif kind == _VARINT:
                while body[at] > 127:
                    at += 1
                at += 1
            elif kind == _FIXED64:
                at += 8
            elif kind == _FIXED32:
                at += 4
            if fields > MOST_FIELDS or messages > MOST_MESSAGES:
                break
        if messages > MOST_MESSAGES:
            raise _TooMany(f"more than {MOST_MESSAGES} messages or {MOST_MESSAGES // _ENTRY} entries in it")
        if fields > MOST_FIELDS:
            raise _TooMany(f"more than {MOST_FIELDS} fields")
        if at != end:
            raise IndexError
        if not outer:
            return
        end, layout = outer.pop()


class Undecodable(msgspec.Struct, frozen=True):
    """The item of a client's stream in place of a frame that cannot be decoded. gRPC itself would log a
    traceback and then behave as if the stream had ended, which it has not."""

    reason: str


class CountingServer:
    """A server for services whose frames are counted before they are decoded, so that one frame cannot make
    it build millions of objects."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Called by generated code as well; same content as the method below."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Called by generated code with a service's methods."""
        counting = {
            name: handler._replace(request_deserializer=counted(handler.request_deserializer))
            for name, handler in handlers.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, counting),))


def counted(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """`decode`, the `FromString` of a message, for untrusted bytes."""
    descriptor = cast(Any, decode).__self__.DESCRIPTOR

    def checked(body: bytes) -> Any:
        check_parts(body, descriptor)
        return decode(body)

    return checked


async def read_frame(stream: Any) -> Any:
    """The next frame of a `ClientStream` or of a servicer's context; something else at the end of the stream.
    BAD_REQUEST when it cannot be decoded: the rest of the stream cannot be trusted, so it is over."""
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
