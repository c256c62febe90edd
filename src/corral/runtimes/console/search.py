"""Search in a console. The pattern is untrusted: RE2, whose time is linear in the text for every pattern,
with bounds on the size of the pattern, the memory, the text searched and the hits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import re2  # type: ignore[import-untyped]  # the package has no stubs

from corral.errors import Code, Rejected
from corral.runtimes.console.lines import DISPLAY_BYTES
from corral.runtimes.console.log import ConsoleLog

MAX_PATTERN: Final = 1000
MAX_SCAN_BYTES: Final = 64 << 20
"""Most text that one search reads; the result contains where the next one continues."""
_MEMORY_BYTES: Final = 8 << 20
_WINDOW_BYTES: Final = 1 << 20


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
    """A compiled pattern, matched line by line: `^` and `$` are the ends of a line, nothing spans two."""

    def __init__(self, pattern: str) -> None:
        if not pattern or len(pattern) > MAX_PATTERN:
            raise _invalid(f"it has {len(pattern)} characters, between 1 and {MAX_PATTERN} are allowed")
        try:
            encoded = pattern.encode()
            re2.compile(encoded, _options())  # alone, so that it cannot close the group it is put in
            self._compiled: Any = re2.compile(b"(?m:" + encoded + b")", _options())
        except (re2.error, UnicodeEncodeError) as error:
            raise _invalid(_reason(error)) from error

    def hits(self, data: bytes, offset: int) -> Iterator[SearchHit]:
        """The lines of these bytes that match; `data` begins at a line start."""
        if b"\r\n" in data:
            yield from self._line_by_line(data, offset)
            return
        at = 0
        while at < len(data) and (match := self._compiled.search(data, at)) is not None:
            begin, end = _line_around(data, match.start())
            if begin >= len(data):  # the empty line behind the last line break is none
                return
            yield SearchHit(offset + begin, data[begin:end])
            newline = data.find(b"\n", match.start())
            if newline < 0:
                return
            at = newline + 1

    def _line_by_line(self, data: bytes, offset: int) -> Iterator[SearchHit]:
        """Treat the carriage return of a terminal's line as part of its end: `$` matches before it."""
        for line in _split(data):
            match = self._compiled.search(line.removesuffix(b"\n").removesuffix(b"\r"))
            if match is not None:
                begin, end = _line_around(line, match.start())
                yield SearchHit(offset + begin, line[begin:end])
            offset += len(line)


def search(
    log: ConsoleLog,
    pattern: Pattern,
    start: int,
    end: int,
    *,
    max_lines: int,
    max_bytes: int,
    newest: bool = False,
) -> Hits:
    """Matching lines of [start, end): the first ones, or with `newest` the last ones."""
    return (_backward if newest else _forward)(log, pattern, start, end, max_lines, max_bytes)


def _forward(log: ConsoleLog, pattern: Pattern, start: int, end: int, max_lines: int, max_bytes: int) -> Hits:
    found: list[SearchHit] = []
    size = 0
    limit = end if end - start <= MAX_SCAN_BYTES else log.line_start(start + MAX_SCAN_BYTES, end)
    for data, offset in _windows(log, start, limit):
        for hit in pattern.hits(data, offset):
            if found and size + len(hit.data) > max_bytes:
                return Hits(found=tuple(found), next_offset=hit.offset)
            found.append(hit)
            size += len(hit.data)
            if len(found) >= max_lines:
                return Hits(found=tuple(found), next_offset=_line_end(data, offset, hit))
    return Hits(found=tuple(found), next_offset=limit)


def _backward(
    log: ConsoleLog, pattern: Pattern, start: int, end: int, max_lines: int, max_bytes: int
) -> Hits:
    found: list[SearchHit] = []
    size = 0
    floor = max(start, end - MAX_SCAN_BYTES)
    high = end
    last = False
    while high > floor and not last:
        low = max(floor, high - _WINDOW_BYTES)
        last = (
            low == floor
        )  # what is left of it there is the end of a line, which the next search has as a whole
        if low > start:
            low = min(log.line_start(low, high), high - 1)
        for hit in reversed([h for data, at in _windows(log, low, high) for h in pattern.hits(data, at)]):
            if len(found) >= max_lines or (found and size + len(hit.data) > max_bytes):
                return Hits(found=tuple(reversed(found)), next_offset=found[-1].offset)
            found.append(hit)
            size += len(hit.data)
        high = low
    return Hits(found=tuple(reversed(found)), next_offset=high)


def _windows(log: ConsoleLog, start: int, end: int) -> Iterator[tuple[bytes, int]]:
    """The bytes of [start, end) cut behind line breaks; a line longer than a window is cut anyhow."""
    rest, rest_at = b"", start
    for block in log.blocks(start, end):
        if rest and rest_at + len(rest) != block.offset:
            yield rest, rest_at
            rest = b""
        data, at = rest + block.data, block.offset - len(rest)
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) >= _WINDOW_BYTES:
            cut = len(data)
        if cut:
            yield data[:cut], at
        rest, rest_at = data[cut:], at + cut
    if rest:
        yield rest, rest_at


def _line_around(data: bytes, position: int) -> tuple[int, int]:
    """The line at this position, or the part of it that is shown."""
    begin = data.rfind(b"\n", 0, position) + 1
    begin += (position - begin) // DISPLAY_BYTES * DISPLAY_BYTES
    newline = data.find(b"\n", position, begin + DISPLAY_BYTES)
    return begin, newline + 1 if newline >= 0 else min(len(data), begin + DISPLAY_BYTES)


def _line_end(data: bytes, offset: int, hit: SearchHit) -> int:
    newline = data.find(b"\n", hit.offset - offset)
    return offset + (newline + 1 if newline >= 0 else len(data))


def _split(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        newline = data.find(b"\n", start)
        end = newline + 1 if newline >= 0 else len(data)
        yield data[start:end]
        start = end


def _options() -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.never_nl = True
    options.never_capture = True
    options.log_errors = False
    return options


def _reason(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)


def _invalid(why: str) -> Rejected:
    return Rejected(
        Code.INVALID_PATTERN,
        f"the search pattern cannot be used: {why}",
        hint="it is a regular expression of RE2, without look-around and back-references",
        field="pattern",
    )
