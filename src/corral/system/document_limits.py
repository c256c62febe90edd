"""What is refused in the text of group documents, whether it is YAML or JSON, and how much of it there may be."""

from __future__ import annotations

import math
from typing import Final

_INTEGERS: Final = range(-(1 << 63), 1 << 64)
_MOST_DIGITS: Final = 400
_QUOTED: Final = 40
DEEPEST: Final = 60
MOST_DOCUMENTS: Final = 1000
MOST_VALUES: Final = 200_000
MOST_BYTES: Final = 8 * 1024 * 1024


class MalformedDocument(ValueError):
    """A file that is neither YAML nor JSON, or has what a document cannot have."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class ValueTally:
    """How many values were read, and bytes of text in them, those behind references included. It is kept while a text is
    read, so that nothing is made which is larger."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.values = 0
        self.size = 0

    def add(self, values: int, size: int, line: int = 0) -> None:
        self.values += values
        self.size += size
        if self.values > MOST_VALUES:
            raise MalformedDocument(
                f"it has more than {MOST_VALUES} values, references included; split it into several files",
                line,
            )
        if self.size > MOST_BYTES:
            raise MalformedDocument(
                f"it has more than {MOST_BYTES >> 20} MiB of text, references included; put long values into files of a "
                "template",
                line,
            )


def text_size(text: str) -> int:
    """Its bytes."""
    return len(text) if text.isascii() else len(text.encode())


def too_deep(line: int = 0) -> MalformedDocument:
    return MalformedDocument(f"it is nested more than {DEEPEST} levels deep; no document of a group is", line)


def twice(key: str, line: int = 0) -> MalformedDocument:
    return MalformedDocument(
        f"the key '{quoted(key)}' stands twice in one object; leave one of them out", line
    )


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


def _no_number(text: str, line: int) -> MalformedDocument:
    if not any(sign.isdecimal() for sign in text):
        return MalformedDocument(
            f"{quoted(text)} is a value that JSON does not have; give a number, or put it in quotes", line
        )
    return MalformedDocument(
        f"the number {quoted(text)} is larger than numbers of a document are; put it in quotes if it is text",
        line,
    )
