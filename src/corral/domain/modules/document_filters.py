"""Filters of module documents: their JSON form, and the one evaluator for all stores.

A filter is a JSON object. Its keys are paths, all of which have to match; the value of a path is a plain
value (equal to it) or an object of operators:

    {"game": "bedwars", "score": {"gte": 10, "lt": 20}, "or": [{"rank": 1}, {"tags": {"contains": "vip"}}]}

`and` and `or` take lists of filters, `not` takes one. `_id` is the document's id. A missing path matches only
`ne`, `exists: false` and negations. `gt`, `gte`, `lt` and `lte` compare values of one kind: a text is never
greater than a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from corral.domain.modules.document_values import (
    MISSING,
    Order,
    Path,
    check_value,
    invalid,
    order,
    parse_path,
    value_at,
)
from corral.domain.patterns import Pattern, compile_pattern
from corral.errors import Code, CorralError, unknown_choice

ID_PATH: Final[Path] = ("_id",)
MAX_NODES: Final = 100
MAX_NESTING: Final = 8
MAX_CHOICES: Final = 500
MAX_SIZE: Final = 64 * 1024
MAX_PATTERNS: Final = 8
"""A document may be large, and its search blocks the loop."""


class Compare(msgspec.Struct, frozen=True):
    """`operator` is eq, ne, gt, gte, lt or lte."""

    path: Path
    operator: str
    value: Any
    place: Order


class OneOf(msgspec.Struct, frozen=True):
    path: Path
    values: tuple[Any, ...]
    places: frozenset[Order]


class Exists(msgspec.Struct, frozen=True):
    path: Path
    present: bool


class Matches(msgspec.Struct, frozen=True):
    """The pattern is found somewhere in a text."""

    path: Path
    pattern: Any


class Contains(msgspec.Struct, frozen=True):
    """An array one of whose elements equals the value."""

    path: Path
    place: Order


class Every(msgspec.Struct, frozen=True):
    parts: tuple[Filter, ...]


class Either(msgspec.Struct, frozen=True):
    parts: tuple[Filter, ...]


class Negated(msgspec.Struct, frozen=True):
    part: Filter


Filter = Compare | OneOf | Exists | Matches | Contains | Every | Either | Negated

ANY: Final = Every(())
_COMPARISONS: Final = frozenset({"eq", "ne", "gt", "gte", "lt", "lte"})
OPERATORS: Final = _COMPARISONS | {"in", "exists", "regex", "contains", "not"}


def parse_filter(document: object) -> Filter:
    """The filter of a JSON value; QUERY_INVALID names what is wrong with it and where."""
    try:
        size = len(msgspec.json.encode(document))
    except (TypeError, RecursionError, msgspec.MsgspecError, ValueError, OverflowError):
        raise invalid("a filter is made of JSON values", hint="nested not too deeply") from None
    if size > MAX_SIZE:
        raise invalid(f"a filter may have {MAX_SIZE} bytes at most")
    return _Parser().filter(document, depth=0)


def matches(where: Filter, id: str, value: Any) -> bool:
    """Whether a document matches."""
    match where:
        case Every(parts):
            return all(matches(part, id, value) for part in parts)
        case Either(parts):
            return any(matches(part, id, value) for part in parts)
        case Negated(part):
            return not matches(part, id, value)
    found = field_of(id, value, where.path)
    match where:
        case Compare(_, operator, _, place):
            return _compared(operator, found, place)
        case OneOf(_, _, places):
            return found is not MISSING and order(found) in places
        case Exists(_, expected):
            return (found is not MISSING) is expected
        case Matches(_, pattern):
            return isinstance(found, str) and pattern.search(found) is not None
        case Contains(_, place):
            return isinstance(found, list) and any(order(element) == place for element in found)


def field_of(id: str, value: Any, path: Path) -> Any:
    return id if path == ID_PATH else value_at(value, path)


def conjuncts(where: Filter) -> Iterator[Filter]:
    """Conditions that all have to hold, as far as they can be seen from outside."""
    if isinstance(where, Every):
        for part in where.parts:
            yield from conjuncts(part)
    else:
        yield where


def _compared(operator: str, found: Any, place: Order) -> bool:
    if found is MISSING:
        return operator == "ne"
    there = order(found)
    match operator:
        case "eq":
            return there == place
        case "ne":
            return there != place
    if there[0] != place[0]:
        return False
    match operator:
        case "gt":
            return there > place
        case "gte":
            return there >= place
        case "lt":
            return there < place
        case _:
            return there <= place


class _Parser:
    """Parses one filter and counts its parts."""

    def __init__(self) -> None:
        self._nodes = 0
        self._patterns = 0

    def filter(self, document: object, *, depth: int) -> Filter:
        if not isinstance(document, dict):
            raise invalid(
                f"a filter is an object, not {_shown(document)}", hint='for example {"score": {"gte": 10}}'
            )
        if depth > MAX_NESTING:
            raise invalid(f"a filter is nested deeper than {MAX_NESTING} levels")
        parts = tuple(self._part(key, value, depth) for key, value in document.items())
        return parts[0] if len(parts) == 1 else Every(parts)

    def _part(self, key: object, value: object, depth: int) -> Filter:
        self._count()
        if key in ("and", "or"):
            if not isinstance(value, list) or not value:
                raise invalid(f"'{key}' takes a list of filters, not {_shown(value)}")
            parts = tuple(self.filter(each, depth=depth + 1) for each in value)
            return Every(parts) if key == "and" else Either(parts)
        if key == "not":
            return Negated(self.filter(value, depth=depth + 1))
        path = parse_path(key)
        if not isinstance(value, dict):
            return self._condition(path, "eq", value, depth)
        if not value:
            raise invalid(f"'{key}' has no operator", hint='to compare with an empty object write {"eq": {}}')
        parts = tuple(self._condition(path, operator, given, depth) for operator, given in value.items())
        return parts[0] if len(parts) == 1 else Every(parts)

    def _condition(self, path: Path, operator: object, given: Any, depth: int) -> Filter:
        self._count()
        if operator not in OPERATORS:
            raise unknown_choice("operator", str(operator)[:40], OPERATORS, code=Code.QUERY_INVALID)
        name = ".".join(path)
        match operator:
            case "exists":
                if not isinstance(given, bool):
                    raise invalid(f"'exists' of '{name}' takes true or false, not {_shown(given)}")
                return Exists(path, given)
            case "regex":
                return Matches(path, self._pattern(given, name))
            case "in":
                return self._choices(path, given, name)
            case "not":
                if depth >= MAX_NESTING or not isinstance(given, dict) or not given:
                    raise invalid(f"'not' of '{name}' takes an object of operators")
                parts = tuple(self._condition(path, op, value, depth + 1) for op, value in given.items())
                return Negated(Every(parts))
        check_value(given, what=f"'{operator}' of '{name}'")
        if operator == "contains":
            return Contains(path, order(given))
        return Compare(path, str(operator), given, order(given))

    def _choices(self, path: Path, given: object, name: str) -> OneOf:
        if not isinstance(given, list) or len(given) > MAX_CHOICES:
            raise invalid(f"'in' of '{name}' takes a list of at most {MAX_CHOICES} values")
        check_value(given, what=f"'in' of '{name}'")
        return OneOf(path, tuple(given), frozenset(map(order, given)))

    def _pattern(self, given: object, name: str) -> Pattern:
        self._patterns += 1
        if self._patterns > MAX_PATTERNS:
            raise invalid(f"a filter may hold {MAX_PATTERNS} patterns at most")
        if not isinstance(given, str):
            raise invalid(f"'regex' of '{name}' takes a text, not {_shown(given)}")
        try:
            return compile_pattern(given, field=name)
        except CorralError as error:
            raise invalid(f"'regex' of '{name}': {error.message}", hint=error.hint) from None

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise invalid(f"a filter may have {MAX_NODES} conditions at most")


def _shown(value: object) -> str:
    return repr(value)[:60]
