"""The end of a console as a window shows it: the newest bytes, and those that follow. Standard library only.

A window that falls behind a flood skips bytes, and shows how many.
"""

from __future__ import annotations

import os
import re

from corral.runtimes.keeper import console_layout as layout

BEGIN_BYTES = 32 * 1024
"""Bytes of earlier output that a new window shows."""
BEHIND_BYTES = 256 * 1024
READ_BYTES = 16 * 1024
_HELD_BYTES = 64

_SHOWN = re.compile(
    rb"\x1b\[[0-9;:]*m"  # colours
    rb"|(?P<partial>(?:\x1b(?:\[[0-9;:]*)?|\xc2)\Z)"
    rb"|(?P<hidden>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f])"
    rb"|(?P<high>\xc2[\x80-\x9f])"
)


class ConsoleTail:
    """Reads segments; keeps one open at a time."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._first = self._position = -1
        self._descriptor = -1

    def read(self) -> tuple[bytes, int]:
        """The next bytes (empty: there are none now), and how many were skipped before them."""
        segments = self._segments()
        if not segments:
            return b"", 0
        end = segments[-1] + self._size(segments[-1])
        left_out = 0
        behind = BEGIN_BYTES if self._position < 0 else BEHIND_BYTES
        if end - self._position > behind:
            begin = max(end - BEGIN_BYTES, segments[0])
            left_out = max(0, begin - self._position) if self._position >= 0 else 0
            self._position = begin
        return self._next(segments), left_out

    def close(self) -> None:
        """Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _next(self, segments: list[int]) -> bytes:
        while True:
            first = max((first for first in segments if first <= self._position), default=segments[0])
            self._open(first)
            self._position = max(self._position, first)
            piece = (
                os.pread(self._descriptor, READ_BYTES, self._position - first)
                if self._descriptor >= 0
                else b""
            )
            if piece:
                self._position += len(piece)
                return piece
            later = [other for other in segments if other > first]
            if not later:
                return b""
            self._position = later[0]

    def _open(self, first: int) -> None:
        if first == self._first and self._descriptor >= 0:
            return
        self.close()
        self._first = first
        try:
            self._descriptor = os.open(self._path(first), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # the file was dropped

    def _size(self, first: int) -> int:
        try:
            return os.stat(self._path(first)).st_size  # noqa: PTH116 - few imports
        except FileNotFoundError:
            return 0

    def _path(self, first: int) -> str:
        return f"{self._directory}/{layout.segment_name(first)}"

    def _segments(self) -> list[int]:
        try:
            return layout.first_offsets(os.listdir(self._directory))  # noqa: PTH208 - few imports
        except FileNotFoundError:
            return []


class Tamed:
    """Output filter for a run without a terminal: what a program prints is text with colours. Every other
    control sequence is shown instead of executed, for some make the terminal send input (as answers to
    queries), and input in a window is a command."""

    def __init__(self) -> None:
        self._held = b""

    def text(self, piece: bytes) -> bytes:
        """The text to show; an escape code that is cut off waits for its rest."""
        data, self._held = self._held + piece, b""

        def shown(match: re.Match[bytes]) -> bytes:
            if match["partial"] and len(match["partial"]) < _HELD_BYTES:
                self._held = match["partial"]
                return b""
            if match["partial"]:
                return b"^[" + match["partial"][1:]
            if match["hidden"]:
                return b"^" + bytes([match["hidden"][0] ^ 0x40])
            return b"?" if match["high"] else match[0]

        return _SHOWN.sub(shown, data)
