"""Shared parts of text editors: errors without a file name (the caller adds it), steps of a path into lists and
through missing maps, and edits collected by old positions and applied at once.
"""

from __future__ import annotations

import re
from typing import Any, Final

_MAX_DIGITS: Final = 9


def item_place(step: str, count: int, *, where: str, may_append: bool) -> int:
    """The index that a step names in a list of so many items; `may_append`: also the index after the last one."""
    if step.isdecimal() and len(step) <= _MAX_DIGITS:
        place = int(step)
        if place < count or (place == count and may_append):
            return place
    raise Impossible(f"{where} is a list of {count}, and has no '{step}'")


def nested(steps: tuple[str, ...], value: Any) -> Any:
    """The value within maps of one key each."""
    for step in reversed(steps):
        value = {step: value}
    return value


MAX_BYTES: Final = 16 << 20
"""A larger file is not taken for configuration."""
MAX_DEPTH: Final = 100
"""Nested maps and lists."""
MAX_VALUES: Final = 500_000
"""Values in one file; more of them would take too long to read."""


class Malformed(Exception):
    """The file is not valid in its format, at this line (0: unknown)."""

    def __init__(self, why: str, *, line: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.line = line


class Impossible(Exception):
    """The file is valid, but cannot be changed in this way."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def line_of(text: str, position: int) -> int:
    """The line, counted from one, of a position."""
    return text.count("\n", 0, position) + 1


def decoded(data: bytes) -> tuple[str, str]:
    """A byte order mark, when there is one, and the text after it; such files are UTF-8."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Malformed("it is not UTF-8 there", line=line) from None
    return ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)


_NEWLINE: Final = re.compile(r"\r\n|\r|\n")


class Splices:
    """Spans of a text and their replacements. They do not overlap; those that begin at the same position are applied in
    the order in which they were added."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._edits: list[tuple[int, int, str]] = []

    def replace(self, start: int, end: int, new: str) -> None:
        self._edits.append((start, end, new))

    def insert(self, at: int, new: str) -> None:
        self._edits.append((at, at, new))

    def result(self) -> str:
        parts: list[str] = []
        reached = 0
        for start, end, new in sorted(self._edits, key=lambda edit: edit[0]):
            parts += (self.text[reached:start], new)
            reached = max(reached, end)
        parts.append(self.text[reached:])
        return "".join(parts)


def newline_of(text: str) -> str:
    """The line ending of this text."""
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def with_newlines(text: str, newline: str) -> str:
    """The text with this ending for all its lines."""
    return _NEWLINE.sub(newline, text)


def line_end(text: str, at: int) -> int:
    """The end of the line at this position, before its line break."""
    newline = text.find("\n", at)
    if newline < 0:
        return len(text)
    return newline - 1 if newline > at and text[newline - 1] == "\r" else newline


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1
