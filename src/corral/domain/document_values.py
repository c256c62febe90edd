"""JSON values of module documents: what may be stored, where a path leads, and the one order of all values.

The order is total: missing, null, false, true, numbers, texts, arrays, objects. Numbers compare by what
they are worth, whether written as 1 or 1.0; texts by code points; arrays element by element; objects as
the sorted list of their keys and values.
"""

from __future__ import annotations

from typing import Any, Final

from corral.domain.nesting import MAX_DEPTH
from corral.errors import Code, Rejected

MAX_PATH: Final = 200
MAX_PATH_PARTS: Final = 16
INTEGER_BITS: Final = 63
"""Whole numbers are those that every peer of ours carries: signed, 64 bits."""


class Missing:
    """What a path that leads nowhere gives; not the same as null."""

    def __repr__(self) -> str:
        return "missing"


MISSING: Final = Missing()

Order = tuple[int, Any]
"""A value's place among all values: tuples of it compare as the values do."""

RANK_MISSING: Final = 0
RANK_NULL: Final = 1
RANK_BOOLEAN: Final = 2
RANK_NUMBER: Final = 3
RANK_TEXT: Final = 4
RANK_ARRAY: Final = 5
RANK_OBJECT: Final = 6


def rank(value: object) -> int:
    """The kind of a value, as a number that orders the kinds."""
    if value is None:
        return RANK_NULL
    if value is MISSING:
        return RANK_MISSING
    if isinstance(value, bool):
        return RANK_BOOLEAN
    if isinstance(value, int | float):
        return RANK_NUMBER
    if isinstance(value, str):
        return RANK_TEXT
    return RANK_OBJECT if isinstance(value, dict) else RANK_ARRAY


def order(value: Any) -> Order:
    """Values are equal when their orders are; 1 and 1.0 are, true and 1 are not."""
    kind = rank(value)
    if kind in (RANK_MISSING, RANK_NULL):
        return (kind, 0)
    if kind == RANK_ARRAY:
        return (kind, tuple(order(element) for element in value))
    if kind == RANK_OBJECT:
        return (kind, tuple((key, order(value[key])) for key in sorted(value)))
    return (kind, value)


def same(one: Any, other: Any) -> bool:
    return order(one) == order(other)


Path = tuple[str, ...]


def parse_path(text: object) -> Path:
    """`stats.kills` as its parts; a number is a place in an array. QUERY_INVALID when it is none."""
    if not isinstance(text, str) or not 0 < len(text) <= MAX_PATH:
        raise invalid(
            f"{str(text)[:80]!r} is not a path",
            hint=f"write field names joined by dots, {MAX_PATH} characters at most",
        )
    parts = tuple(text.split("."))
    if not all(parts) or len(parts) > MAX_PATH_PARTS:
        raise invalid(
            f"{text!r} is not a path", hint=f"between 1 and {MAX_PATH_PARTS} names joined by single dots"
        )
    return parts


def value_at(value: Any, path: Path) -> Any:
    """What lies at the path, or MISSING."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part, MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit():
            place = int(part) if len(part) < 8 else len(value)
            value = value[place] if place < len(value) else MISSING
        else:
            return MISSING
        if value is MISSING:
            return MISSING
    return value


def check_value(value: Any, *, what: str, depth: int = 0) -> None:
    """Refuse what is no JSON value, is nested too deeply, or is a number that not everybody can carry."""
    if depth > MAX_DEPTH:
        raise invalid(f"{what} is nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool | str):
        return
    if isinstance(value, int | float):
        check_number(value, what=what)
    elif isinstance(value, list):
        for element in value:
            check_value(element, what=what, depth=depth + 1)
    elif isinstance(value, dict):
        for key, element in value.items():
            if not isinstance(key, str):
                raise invalid(f"{what} has a key that is not text: {str(key)[:40]!r}")
            check_value(element, what=what, depth=depth + 1)
    else:
        raise invalid(f"{what} holds a {type(value).__name__}, which is no JSON value")


def check_number(value: float, *, what: str) -> None:
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise invalid(f"{what} holds {value}, which is no JSON value")
    elif not -(2**INTEGER_BITS) <= value < 2**INTEGER_BITS:
        raise invalid(f"{what} holds a whole number beyond 64 bits")


def invalid(message: str, *, hint: str | None = None) -> Rejected:
    return Rejected(Code.QUERY_INVALID, message, hint=hint)
