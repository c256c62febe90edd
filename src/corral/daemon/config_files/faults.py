"""What may be wrong with a file or with a wish, said without its name: who knows the name adds it."""

from __future__ import annotations

from typing import Final

MAX_BYTES: Final = 16 << 20
"""A larger file is no configuration."""
MAX_DEPTH: Final = 100
"""Maps and lists within each other."""
MAX_VALUES: Final = 500_000
"""In one file; more of them would take too long to read."""


class Malformed(Exception):
    """The file is not what its format says, at this line (0: nobody knows which)."""

    def __init__(self, why: str, *, line: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.line = line


class Impossible(Exception):
    """The file is fine, but cannot be changed in this way."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def line_of(text: str, position: int) -> int:
    """The line, counted from one, of a position."""
    return text.count("\n", 0, position) + 1


def decoded(data: bytes) -> tuple[str, str]:
    """A byte order mark, when there is one, and the text behind it; such files are UTF-8."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Malformed("it is not UTF-8 there", line=line) from None
    return ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
