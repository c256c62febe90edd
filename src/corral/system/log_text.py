"""Texts of a log record in its form for people: each is written as it is, or quoted as a JSON string where that would
be ambiguous. Whatever a text contains, it cannot end its line, steer the terminal or look like another field."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

_QUOTED_IN_WORD: Final = frozenset("\"'= ")
_QUOTED_IN_MESSAGE: Final = ('"', "=", "lost before this one")


def word(text: str) -> str:
    """A name or a value: unquoted it has neither spaces, quotes nor `=`."""
    return text if text and text.isprintable() and _QUOTED_IN_WORD.isdisjoint(text) else quoted(text)


def message(text: str) -> str:
    """A message: unquoted it may have spaces, and nothing that could be taken for a field behind it."""
    if not text.isprintable() or text != text.strip() or any(part in text for part in _QUOTED_IN_MESSAGE):
        return quoted(text)
    return text


def fields(named: Iterable[tuple[str, str]]) -> str:
    """` name=value` for each."""
    return "".join(f" {word(name)}={word(value)}" for name, value in named)


def quoted(text: str) -> str:
    """A JSON string of printable characters."""
    return _printable(json.dumps(text, ensure_ascii=False))


def indented(text: str) -> str:
    """Lines of a traceback, each behind a line break and four spaces: no line of them is taken for a record."""
    return "".join(f"\n    {_printable(line)}" for line in text.rstrip("\n").split("\n"))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else json.dumps(letter)[1:-1] if letter != "\x7f" else "\\u007f"
        for letter in text
    )
