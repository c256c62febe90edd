"""Bodies of requests: bytes, files and iterables, as segments that are sent one after the other with flat memory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import IO, Any, Final, TypeAlias

BLOCK: Final = 256 * 1024

Source: TypeAlias = "bytes | bytearray | memoryview | str | os.PathLike[str] | IO[bytes] | Iterable[bytes]"
"""Bytes, the path of a file, an open file, or pieces."""
AsyncSource: TypeAlias = "Source | AsyncIterable[bytes]"


class Body:
    """What is sent: segments in their order, and how many bytes they have in all; None: unknown, they go as chunks."""

    __slots__ = ("repeatable", "segments", "size")

    def __init__(self, *sources: AsyncSource, size: int | None = None) -> None:
        """`size`: how many bytes pieces have in all, where the caller knows it."""
        self.segments: list[Any] = [_segment(each) for each in sources]
        sizes = [_size(each) for each in self.segments]
        self.size = size if None in sizes else sum(each or 0 for each in sizes)
        self.repeatable = all(isinstance(each, bytes | os.PathLike) for each in self.segments)
        """Whether it can be sent once more."""


def form(parts: Mapping[str, AsyncSource | None]) -> tuple[Body, str]:
    """A form of files by the names of their fields, and its content type; parts that are None are left out."""
    boundary = f"corral-{os.urandom(16).hex()}"
    segments: list[AsyncSource] = []
    for field, source in parts.items():
        if source is None:
            continue
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{field}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        segments += [head.encode(), source, b"\r\n"]
    segments.append(f"--{boundary}--\r\n".encode())
    return Body(*segments), f"multipart/form-data; boundary={boundary}"


def _segment(source: AsyncSource) -> Any:
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str):
        from pathlib import Path

        return Path(source)
    return source


def _size(segment: Any) -> int | None:
    if isinstance(segment, bytes):
        return len(segment)
    if isinstance(segment, os.PathLike):
        return os.stat(segment).st_size  # noqa: PTH116 - of any kind of path
    return None


class SourceChanged(ValueError):
    """What is sent has another size now than was announced."""


class BodyCount:
    """The bytes of a body that are left to send. Those that go beyond the announced length would be stored cut off, and
    taken for the next request."""

    def __init__(self, body: Body) -> None:
        self._left = body.size

    def sending(self, block: bytes) -> None:
        """`SourceChanged` before what is too much."""
        if self._left is not None:
            self._left -= len(block)
            if self._left < 0:
                raise _changed()

    def complete(self) -> None:
        """`SourceChanged` when there was less than was announced."""
        if self._left:
            raise _changed()


def _changed() -> SourceChanged:
    return SourceChanged("what was sent became longer or shorter meanwhile; nothing was stored")
