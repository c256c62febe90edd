"""Lines of hostile bytes: any length, any encoding, escape codes and all. Nothing is interpreted here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

DISPLAY_BYTES: Final = 16 * 1024
"""A longer line is shown as several, each of this length but the last. It is stored as it is."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    offset: int
    """Of its first byte."""
    timestamp_ms: int
    """When the node received its beginning, within 50 ms; 0 when that is not known."""
    text: str
    """Without its line break; what is no UTF-8 is replaced."""


def pieces(data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Cut into lines and long lines into parts; offset and bytes of each, line breaks included."""
    start = 0
    while start < len(data):
        newline = data.find(b"\n", start, start + DISPLAY_BYTES)
        end = newline + 1 if newline >= 0 else min(len(data), start + DISPLAY_BYTES)
        yield offset + start, data[start:end]
        start = end


def text_of(piece: bytes) -> str:
    """As it is shown: without the line break, decoded with replacement."""
    return piece.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
