"""Forms of a secret's value in a text: as it is, as texts quote it, and line by line. Pure, and small: every
log imports it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

SHORTEST_LINE: Final = 4
"""Lines of a multi-line value with fewer characters reveal nothing and occur in every other text."""
SHORTEST_SEARCHED_LINE: Final = 8
"""Lines with fewer characters may be ordinary words: masked in texts for people, not searched in files."""


def forms(value: str) -> Iterator[str]:
    """Each may come more than once."""
    yield from _quoted(value)
    for line in lines_of(value):
        yield from _quoted(line)


def lines_of(value: str) -> Iterable[str]:
    """Lines that are secret on their own; none when the value is a single line."""
    lines = [line.strip() for line in value.splitlines()]
    return [line for line in lines if len(line) >= SHORTEST_LINE] if len(lines) > 1 else ()


def _quoted(text: str) -> Iterator[str]:
    if not text:
        return
    yield text
    yield repr(text)[1:-1]
    yield repr(f"'\"{text}")[4:-1]  # amid a text that has both kinds of quotes
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
