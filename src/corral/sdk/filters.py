"""Filters of documents: conditions on fields, written as Python.

```python
from corral.sdk import F

await players.find(F.score >= 10)
await players.find((F.game == "bedwars") & (F.stats.wins > 3), sort=["-stats.wins"])
await players.find(F.name.matches("^a") | F.tags.contains("vip"))
await players.count(~F.banned.exists())
```

`F.name` is a field, `F.stats.wins` one inside of another, `F["odd name"]` one whose name is not a Python
identifier or is that of a method; `F._id` is the document's id. `==`, `!=`, `<`, `<=`, `>`, `>=` make conditions;
`&`, `|` and `~` join them, with each condition in brackets. A plain dict means the same:
`{"score": {"gte": 10}}`.

A missing field matches only `!=`, `missing()` and conditions negated by `~`. Greater and less
compare values of one kind: a text is never greater than a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class Condition:
    """A condition, or several joined ones.

    ```python
    strong = (F.score >= 10) & (F.game == "bedwars")
    await players.find(strong | F.tags.contains("vip"))
    ```
    """

    __slots__ = ("document",)

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def __and__(self, other: Condition) -> Condition:
        return Condition({"and": [self.document, other.document]})

    def __or__(self, other: Condition) -> Condition:
        return Condition({"or": [self.document, other.document]})

    def __invert__(self) -> Condition:
        return Condition({"not": self.document})

    def __bool__(self) -> bool:
        raise TypeError("join conditions with & and |, each in brackets; `and` and `or` cannot do it")

    def __repr__(self) -> str:
        return f"Condition({self.document!r})"


class Field:
    """A field of a document, by its path.

    ```python
    F.score > 3
    F.stats.wins.one_of(1, 2, 3)
    F["odd name"].exists()
    ```
    """

    __slots__ = ("_path",)
    __hash__ = None  # type: ignore[assignment]  # `==` makes a condition: it cannot find one in a set

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Field:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Field:
        return Field(f"{self._path}.{name}" if self._path else name)

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]  # a condition, not an answer
        return self._where("eq", value)

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        return self._where("ne", value)

    def __lt__(self, value: object) -> Condition:
        return self._where("lt", value)

    def __le__(self, value: object) -> Condition:
        return self._where("lte", value)

    def __gt__(self, value: object) -> Condition:
        return self._where("gt", value)

    def __ge__(self, value: object) -> Condition:
        return self._where("gte", value)

    def one_of(self, *values: object) -> Condition:
        """One of these values: `F.game.one_of("bedwars", "skywars")`."""
        return self._where("in", list(values))

    def exists(self) -> Condition:
        """The document has the field, even if it is null: `F.banned.exists()`."""
        return self._where("exists", True)

    def missing(self) -> Condition:
        """The document lacks the field: `F.banned.missing()`."""
        return self._where("exists", False)

    def matches(self, pattern: str) -> Condition:
        """A text in which the pattern (RE2) is found anywhere: `F.name.matches("^ad")`."""
        return self._where("regex", pattern)

    def contains(self, value: object) -> Condition:
        """An array with an equal element: `F.tags.contains("vip")`."""
        return self._where("contains", value)

    def _where(self, operator: str, value: object) -> Condition:
        return Condition({self._path: {operator: msgspec.to_builtins(value)}})


F: Final = Field("")
"""Root of all conditions: `F.score >= 10`."""

Filter = Condition | Mapping[str, Any] | None
"""A filter, wherever documents are selected; None: all of them."""


def filter_document(filter: Filter) -> dict[str, Any]:
    """A filter as it is sent to the host."""
    if filter is None:
        return {}
    if isinstance(filter, Condition):
        return filter.document
    document: dict[str, Any] = msgspec.to_builtins(dict(filter))
    return document
