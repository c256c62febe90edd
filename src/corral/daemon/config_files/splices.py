"""Edits of one text, collected while its old positions hold and made all at once."""

from __future__ import annotations

import re
from typing import Final

_NEWLINE: Final = re.compile(r"\r\n|\r|\n")


class Splices:
    """Stretches of a text and what takes their place. They do not overlap; those that begin at the same
    place are made in the order in which they came."""

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
    """How this text ends its lines."""
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def with_newlines(text: str, newline: str) -> str:
    """The text with all its lines ended like this."""
    return _NEWLINE.sub(newline, text)


def line_end(text: str, at: int) -> int:
    """Where the line at this position ends, before its line break."""
    newline = text.find("\n", at)
    if newline < 0:
        return len(text)
    return newline - 1 if newline > at and text[newline - 1] == "\r" else newline


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1
