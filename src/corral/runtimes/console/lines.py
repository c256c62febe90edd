"""Lines of untrusted bytes: any length, any encoding, with escape codes. Nothing is interpreted here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

DISPLAY_BYTES: Final = 16 * 1024
"""Longest displayed line. A longer one is shown as several of this length. It is stored as it is."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    offset: int
    """Offset of its first byte."""
    timestamp_ms: int
    """When the node received its beginning, within 50 ms; 0 when unknown."""
    text: str
    """The text without its line break; bytes that are not UTF-8 are replaced."""


def pieces(data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Cut into lines, and long lines into parts; offset and bytes of each, line breaks included."""
    start = 0
    while start < len(data):
        newline = data.find(b"\n", start, start + DISPLAY_BYTES)
        end = newline + 1 if newline >= 0 else min(len(data), start + DISPLAY_BYTES)
        yield offset + start, data[start:end]
        start = end


def text_of(piece: bytes) -> str:
    """The line as it is shown: without the line break, decoded with replacement."""
    return piece.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
