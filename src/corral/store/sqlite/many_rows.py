"""One statement for many rows.

`executemany` steps once a row, and the binding gives up the interpreter lock at each step: with
a busy event loop every single row may then wait milliseconds to get it back. A statement with
64 rows gives it up once. Sizes are powers of two, so that a handful of statements stays prepared.
"""

from __future__ import annotations

import functools
import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

_LARGEST: Final = 64
"""64 rows of up to 15 values stay below 999, the fewest parameters any SQLite allows."""


class ManyRows:
    """A statement around `VALUES (...), (...)`: `head` before the rows, `tail` after them."""

    def __init__(self, head: str, *, width: int, tail: str) -> None:
        row = "(" + ",".join("?" * width) + ")"
        self._sql = functools.cache(lambda size: f"{head} VALUES {','.join([row] * size)} {tail}")

    def run(self, db: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Execute over all rows; yields what the statements return. Must be consumed."""
        start = 0
        while start < len(rows):
            size = min(_LARGEST, 1 << ((len(rows) - start).bit_length() - 1))
            values = tuple(itertools.chain.from_iterable(rows[start : start + size]))
            yield from db.execute(self._sql(size), values)
            start += size

    def store(self, db: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Execute over all rows for their effect."""
        for _ in self.run(db, rows):
            pass
