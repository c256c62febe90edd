"""Frames of `corral.sdk.protocol.frames` to bytes and back, for both ends of the socket."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.sdk.protocol.frames import MAX_FRAME, Message

_HEAD: Final = 4
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


class FrameTooLarge(Exception):
    """A message would be larger than `MAX_FRAME`. Nothing was sent."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a message of {size} bytes is more than the {MAX_FRAME} that may be sent at once")


class BadFrame(Exception):
    """The other side sent what is no frame. There is no way to find the next one: cut it off."""


def encode_body(body: object) -> msgspec.Raw:
    """A body as it travels within a message."""
    return msgspec.Raw(_encoder.encode(body))


def encode_frame(message: Message) -> bytes:
    """Raises FrameTooLarge."""
    payload = _encoder.encode(message)
    if len(payload) > MAX_FRAME:
        raise FrameTooLarge(len(payload))
    return len(payload).to_bytes(_HEAD, "little") + payload


class FrameReader:
    """Collects bytes and yields the messages that are complete. Holds at most one frame and what one
    read brought: the length is checked before its bytes are waited for."""

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
        except (ValueError, RecursionError) as error:  # also for a text that is none
            raise BadFrame(f"a frame is not understood: {error}") from error
