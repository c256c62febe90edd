"""Server-sent events, read from bytes as they come. Lines and frames are bounded; a frame that was cut is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MAX_FRAME: Final = 8 * 1024 * 1024
"""Bytes of a line, and of the data of a frame."""


_LINE_COST: Final = 64
"""What a line takes in memory beside its bytes: without it, empty lines of data would be free."""
_MAX_ID: Final = 255


class FrameTooLarge(Exception):
    """A line or a frame of the stream is larger than allowed."""


class StreamFrame:
    """One frame of a stream; `data` is empty when it only moves the position."""

    __slots__ = ("data", "event", "id")

    def __init__(self, *, id: str | None, event: str, data: str) -> None:
        self.id = id
        self.event = event
        self.data = data


class FrameParser:
    """Whole frames out of the pieces of a stream."""

    def __init__(self, *, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._scanned = 0
        self._id: str | None = None
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[StreamFrame]:
        """The frames that are whole with this piece."""
        self._rest += piece
        while (end := self._rest.find(b"\n", self._scanned)) >= 0:
            line = bytes(self._rest[:end]).removesuffix(b"\r")
            del self._rest[: end + 1]
            self._scanned = 0
            self._bound(len(line))
            if not line.startswith(b":"):  # a comment is not kept
                self._size += len(line) + _LINE_COST
            if (frame := self._read(line.decode("utf-8", "replace"))) is not None:
                yield frame
        self._scanned = len(self._rest)
        self._bound(self._scanned)

    def _bound(self, more: int) -> None:
        if self._size + more > self._limit:
            raise FrameTooLarge(f"a frame of the stream has more than {self._limit} bytes")

    def _read(self, line: str) -> StreamFrame | None:
        if not line:
            frame = None
            if self._data or self._id is not None:
                frame = StreamFrame(id=self._id, event=self._event, data="\n".join(self._data))
            self._id, self._event, self._data, self._size = None, "", [], 0
            return frame
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and len(value) <= _MAX_ID and value.isascii() and value.isprintable():
            self._id = value  # others could not be sent back
        return None
