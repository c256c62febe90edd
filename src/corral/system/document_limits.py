"""What is refused in the text of group documents, whether it is YAML or JSON, and how much of it there may be."""

from __future__ import annotations

import math
from typing import Final

_INTEGERS: Final = range(-(1 << 63), 1 << 64)
_MOST_DIGITS: Final = 400
_QUOTED: Final = 40
DEEPEST: Final = 60


class Malformed(ValueError):
    """A file that is neither YAML nor JSON, or has what a document cannot have."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class Tally:
    """How many values were read, those behind references included. It is kept while a text is read, so that nothing is
    made which is larger."""

    def __init__(self, most_values: int) -> None:
        self.values = 0
        self._most_values = most_values

    def add(self, values: int, line: int) -> None:
        self.values += values
        if self.values > self._most_values:
            raise Malformed(
                f"it has more than {self._most_values} values, references included; split it into several files",
                line,
            )


def too_deep(line: int = 0) -> Malformed:
    return Malformed(f"it is nested more than {DEEPEST} levels deep; no document of a group is", line)


def twice(key: str, line: int = 0) -> Malformed:
    return Malformed(f"the key '{quoted(key)}' stands twice in one object; leave one of them out", line)


def quoted(text: str) -> str:
    """Some of a text, without what would steer a terminal."""
    start = text if len(text) <= _QUOTED else f"{text[: _QUOTED - 1]}…"
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in start)


def check_number(text: str, line: int = 0) -> None:
    """Refuse what would take long to read."""
    if len(text) > _MOST_DIGITS:
        raise _no_number(text, line)


def json_number(number: int | float, text: str, line: int = 0) -> int | float:
    """The number, if every reader of JSON has it."""
    if number in _INTEGERS if isinstance(number, int) else math.isfinite(number):
        return number
    raise _no_number(text, line)


def _no_number(text: str, line: int) -> Malformed:
    if not any(sign.isdecimal() for sign in text):
        return Malformed(
            f"{quoted(text)} is a value that JSON does not have; give a number, or put it in quotes", line
        )
    return Malformed(
        f"the number {quoted(text)} is larger than numbers of a document are; put it in quotes if it is text",
        line,
    )
