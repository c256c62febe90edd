"""Search in a console. The pattern is untrusted: RE2, whose time is linear in the text for every pattern,
with bounds on the pattern, the text searched, the hits and the time."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from corral.domain.patterns import compile_line_search
from corral.runtimes.console.lines import DISPLAY_BYTES
from corral.runtimes.console.log import ConsoleLog
from corral.system.threads import check_cancelled

MAX_SCAN_BYTES: Final = 64 << 20
"""Most text that one search reads; the result contains where the next one continues."""
_WINDOW_BYTES: Final = 256 << 10
_PIECE_BYTES: Final = 64 << 10
"""Searched at once. The time is linear, but the worst patterns take a minute for a megabyte: between two pieces a search
can be ended."""


class SearchHit(msgspec.Struct, frozen=True):
    """A line that matches, with its line break; of a very long one only the part around the match."""

    offset: int
    data: bytes


class Hits(msgspec.Struct, frozen=True, kw_only=True):
    found: tuple[SearchHit, ...]
    """In console order."""
    next_offset: int
    """Searching forward: everything before was searched. Backward: everything from here on was."""


class Pattern:
    """A compiled pattern, matched line by line: `^` and `$` are the ends of a line, nothing spans two. INVALID_PATTERN."""

    def __init__(self, pattern: str) -> None:
        self._compiled = compile_line_search(pattern)

    def hits(self, data: bytes, offset: int) -> Iterator[SearchHit]:
        """The lines of these bytes that match; `data` begins at a line start. The carriage return of a terminal's line is
        part of its end: `$` matches before it."""
        text = data.replace(b"\r\n", b"\n").removesuffix(b"\r") if b"\r\n" in data else data
        lines = _LineStarts(data, text)
        at = 0
        while at < len(text) and (match := self._compiled.search(text, at)) is not None:
            found = match.start()
            start = text.rfind(b"\n", 0, found) + 1
            if start >= len(text):  # the empty line behind the last line break is none
                return
            begin, end = _line_around(data, lines.original(start) + found - start)
            yield SearchHit(offset + begin, data[begin:end])
            newline = text.find(b"\n", found)
            if newline < 0:
                return
            at = newline + 1


class _LineStarts:
    """Where lines of a text begin in the original, which has carriage returns before some or all line breaks."""

    def __init__(self, data: bytes, text: bytes) -> None:
        self._data = data
        self._text = text
        self._all = len(data) - len(text) == text.count(b"\n")
        self._at = self._original = 0

    def original(self, start: int) -> int:
        """The place in the original; later lines only, one after the other."""
        if self._data is self._text:
            return start
        passed = self._text.count(b"\n", self._at, start)
        if self._all:
            self._original += start - self._at + passed
        else:
            for _ in range(passed):
                self._original = self._data.find(b"\n", self._original) + 1
        self._at = start
        return self._original


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much one search finds, and when it ends wherever it is then."""

    max_lines: int
    max_bytes: int
    over: Callable[[], bool] = lambda: False
    """Asked after each piece, of which there is always one."""


def search(
    log: ConsoleLog, pattern: Pattern, start: int, end: int, bounds: Bounds, *, newest: bool = False
) -> Hits:
    """Matching lines of [start, end): the first ones, or with `newest` the last ones. In a thread of `to_end` it ends when
    its caller has gone."""
    return (_backward if newest else _forward)(log, pattern, start, end, bounds)


def _forward(log: ConsoleLog, pattern: Pattern, start: int, end: int, bounds: Bounds) -> Hits:
    found: list[SearchHit] = []
    size = 0
    limit = end if end - start <= MAX_SCAN_BYTES else log.line_start(start + MAX_SCAN_BYTES, end)
    for data, offset in _windows(log, start, limit):
        for hit in pattern.hits(data, offset):
            if found and size + len(hit.data) > bounds.max_bytes:
                return Hits(found=tuple(found), next_offset=hit.offset)
            found.append(hit)
            size += len(hit.data)
            if len(found) >= bounds.max_lines:
                return Hits(found=tuple(found), next_offset=_line_end(data, offset, hit))
        check_cancelled()
        if bounds.over():
            return Hits(found=tuple(found), next_offset=offset + len(data))
    return Hits(found=tuple(found), next_offset=limit)


def _backward(log: ConsoleLog, pattern: Pattern, start: int, end: int, bounds: Bounds) -> Hits:
    found: list[SearchHit] = []
    size = 0
    floor = max(start, end - MAX_SCAN_BYTES)
    high = end
    last = False
    while high > floor and not last and not (high < end and bounds.over()):
        low = max(floor, high - _WINDOW_BYTES)
        last = (
            low == floor
        )  # what is left of it there is the end of a line, which the next search has as a whole
        if low > start:
            low = min(log.line_start(low, high), high - 1)
        newest = collections.deque[SearchHit](maxlen=bounds.max_lines - len(found) + 1)
        for data, at in _windows(log, low, high):
            newest.extend(pattern.hits(data, at))
            check_cancelled()
        for hit in reversed(newest):
            if len(found) >= bounds.max_lines or (found and size + len(hit.data) > bounds.max_bytes):
                return Hits(found=tuple(reversed(found)), next_offset=found[-1].offset)
            found.append(hit)
            size += len(hit.data)
        high = low
    return Hits(found=tuple(reversed(found)), next_offset=high)


def _windows(log: ConsoleLog, start: int, end: int) -> Iterator[tuple[bytes, int]]:
    """The bytes of [start, end) in pieces, cut behind line breaks; a line longer than a window is cut anyhow."""
    rest, rest_at = b"", start
    for block in log.blocks(start, end):
        if rest and rest_at + len(rest) != block.offset:
            yield from _pieces(rest, rest_at)
            rest = b""
        data, at = rest + block.data, block.offset - len(rest)
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) >= _WINDOW_BYTES:
            cut = len(data)
        if cut:
            yield from _pieces(data[:cut], at)
        rest, rest_at = data[cut:], at + cut
    if rest:
        yield from _pieces(rest, rest_at)


def _pieces(data: bytes, offset: int) -> Iterator[tuple[bytes, int]]:
    """Cut behind line breaks; a line longer than a piece is one, up to a window."""
    at = 0
    while at < len(data):
        end = at + _PIECE_BYTES
        most = min(len(data), at + _WINDOW_BYTES)
        cut = data.rfind(b"\n", at, end) + 1 or data.find(b"\n", end, most) + 1 or most
        yield data[at:cut], offset + at
        at = cut


def _line_around(data: bytes, position: int) -> tuple[int, int]:
    """The line at this position, or the part of it that is shown."""
    begin = data.rfind(b"\n", 0, position) + 1
    begin += (position - begin) // DISPLAY_BYTES * DISPLAY_BYTES
    newline = data.find(b"\n", position, begin + DISPLAY_BYTES)
    return begin, newline + 1 if newline >= 0 else min(len(data), begin + DISPLAY_BYTES)


def _line_end(data: bytes, offset: int, hit: SearchHit) -> int:
    newline = data.find(b"\n", hit.offset - offset)
    return offset + (newline + 1 if newline >= 0 else len(data))
