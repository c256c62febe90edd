"""The head of a module's frame: its kind and number, read before anything else of it is decoded."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.sdk.protocol.frame_limits import (
    CHUNK_BYTES,
    FAILURE_BYTES,
    HEAD_BYTES,
    METHOD_BYTES,
    FrameLimit,
)

_TAGS: Final = {
    tag: bytes([0xA0 | len(tag)]) + tag.encode()
    for tag in ("call", "answer", "failure", "cancel", "notice", "chunk", "credit")
}
_WITHOUT_BODY: Final = {
    "failure": FrameLimit(size=FAILURE_BYTES),
    "chunk": FrameLimit(size=CHUNK_BYTES, bytes_per_cost=16 * 1024),
    "cancel": FrameLimit(size=HEAD_BYTES),
    "credit": FrameLimit(size=HEAD_BYTES),
}
LATE: Final = FrameLimit(size=0, bytes_per_cost=16 * 1024)
"""Limit of an answer that no call waits for: nothing of it is decoded."""
_WIDTHS: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_SIGNED: Final = 0xD0


class NoFrame(Exception):
    """The bytes do not begin like a message."""


class FrameHead(msgspec.Struct, frozen=True):
    """`number` is 0 for a notice, `method` empty for all but calls and notices; the rest of the frame begins
    at `end`."""

    tag: str
    number: int
    method: str
    end: int

    @property
    def has_body(self) -> bool:
        """Is the value that begins at `end` in the method's own format?"""
        return self.tag in ("call", "answer", "notice")

    @property
    def fixed_limit(self) -> FrameLimit | None:
        """The limit of a frame that depends only on its kind."""
        return _WITHOUT_BODY.get(self.tag)


def read_head(start: bytes) -> FrameHead:
    """The head, from the first `HEAD_BYTES` of a frame; NoFrame."""
    try:
        tag, position = _tag(start)
        number, method = 0, ""
        if tag != "notice":
            number, position = _number(start, position)
        if tag in ("call", "notice"):
            method, position = _method(start, position)
    except (IndexError, UnicodeDecodeError):
        raise NoFrame from None
    return FrameHead(tag, number, method, position)


def _tag(start: bytes) -> tuple[str, int]:
    if start[0] & 0xF0 != 0x90:
        raise NoFrame
    for tag, encoded in _TAGS.items():
        if start.startswith(encoded, 1):
            return tag, 1 + len(encoded)
    raise NoFrame


def _number(start: bytes, position: int) -> tuple[int, int]:
    code = start[position]
    if code < 0x80:
        return code, position + 1
    if code >= 0xE0:
        return code - 256, position + 1
    width = _WIDTHS.get(code, 0)
    if not width or position + 1 + width > len(start):
        raise NoFrame
    end = position + 1 + width
    return int.from_bytes(start[position + 1 : end], "big", signed=code >= _SIGNED), end


def _method(start: bytes, position: int) -> tuple[str, int]:
    code = start[position]
    if 0xA0 <= code < 0xC0:
        begin, length = position + 1, code & 0x1F
    elif code == 0xD9:
        begin, length = position + 2, start[position + 1]
    else:
        raise NoFrame
    if length > METHOD_BYTES or begin + length > len(start):
        raise NoFrame
    return start[begin : begin + length].decode(), begin + length
