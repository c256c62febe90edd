"""Frames between host and module: msgpack over one socket, both sides alike, and their encoding.

A frame is a length (4 bytes, little-endian) and a tagged message. Either side may call the other; a call has
a number chosen by its caller, a method, a body and a deadline, and ends with exactly one `Answer` or
`Failure`, whatever else is sent under its number before. Bodies are msgpack of the method's struct
(`corral.sdk.protocol.messages`). The limits below are checked by both sides; a side that breaks one is cut
off.

Nothing in here is for module authors: they use `corral.sdk`.
"""

from __future__ import annotations

from typing import Final

import msgspec

PROTOCOL_VERSION: Final = 1
MAX_FRAME: Final = 4 * 1024 * 1024
"""Largest frame in either direction; larger bodies are sent as chunks."""
MAX_CHUNK: Final = 256 * 1024
STREAM_CREDIT: Final = 1024 * 1024
"""Bytes of chunks that may be under way before the receiver grants more."""
MAX_CALLS_FROM_MODULE: Final = 256
"""Most unanswered calls of a module."""
MAX_CALLS_TO_MODULE: Final = 256
MAX_UNREAD: Final = 8 * 1024 * 1024
"""Bytes that the host buffers for a module that does not read, before it is cut off."""


class Call(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    id: int
    method: str
    body: msgspec.Raw
    deadline_ms: int


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    id: int
    body: msgspec.Raw


class Failure(msgspec.Struct, frozen=True, array_like=True, tag="failure"):
    """End of a call without an answer. `code` is a `corral.errors.Code` name when the host answers, and the
    exception's class name when a module does."""

    id: int
    code: str
    message: str
    hint: str = ""
    traceback: str = ""


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """The caller no longer waits for this call; no answer is needed, one may still come."""

    id: int


class Notice(msgspec.Struct, frozen=True, array_like=True, tag="notice"):
    """Message without an answer: log lines, samples, states of capabilities."""

    method: str
    body: msgspec.Raw


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag="chunk"):
    """A piece of a streamed body under a call's number; `last` ends it."""

    id: int
    data: bytes
    last: bool = False


class Credit(msgspec.Struct, frozen=True, array_like=True, tag="credit"):
    """The receiver of chunks accepts so many more bytes."""

    id: int
    bytes: int


Message = Call | Answer | Failure | Cancel | Notice | Chunk | Credit


_HEAD: Final = 4
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


class FrameTooLarge(Exception):
    """A message would be larger than `MAX_FRAME`. Nothing was sent."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a message of {size} bytes is more than the {MAX_FRAME} that may be sent at once")


class BadFrame(Exception):
    """The other side sent invalid bytes. The next frame cannot be found: cut it off."""


def encode_body(body: object) -> msgspec.Raw:
    """A body, encoded for a message."""
    return msgspec.Raw(_encoder.encode(body))


def encode_frame(message: Message) -> bytes:
    """Raises FrameTooLarge."""
    payload = _encoder.encode(message)
    if len(payload) > MAX_FRAME:
        raise FrameTooLarge(len(payload))
    return len(payload).to_bytes(_HEAD, "little") + payload


class FrameReader:
    """Collects bytes and yields the complete messages. Holds at most one frame and the bytes of one read: the
    length is checked before its bytes are waited for."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Raises BadFrame."""
        self._pending += data
        messages: list[Message] = []
        start = 0
        while len(self._pending) - start >= _HEAD:
            size = int.from_bytes(self._pending[start : start + _HEAD], "little")
            if size > MAX_FRAME:
                raise BadFrame(f"a frame of {size} bytes is announced; {MAX_FRAME} are allowed")
            end = start + _HEAD + size
            if len(self._pending) < end:
                break
            messages.append(self._decoded(start + _HEAD, end))
            start = end
        del self._pending[:start]
        return messages

    def _decoded(self, start: int, end: int) -> Message:
        # A copy on purpose: `msgspec.Raw` fields point into the buffer they were decoded from.
        payload = bytes(memoryview(self._pending)[start:end])
        try:
            return _decoder.decode(payload)
        except (ValueError, RecursionError) as error:  # also for invalid text
            raise BadFrame(f"a frame is not understood: {error}") from error
