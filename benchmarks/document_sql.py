"""Filters and sorts of module documents in SQL, for SQLite's JSON functions and PostgreSQL's `jsonb`.

Values are compared by rank, number and text, in the order of `corral.domain.modules.document_values`. Texts, numbers,
booleans and null are known, which is what the benchmark asks for; what lies beyond is said in ADR 0042.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

from corral.controller.modules.data.query_plan import Sort, ties_go_down
from corral.domain.modules.document_filters import (
    ID_PATH,
    Compare,
    Contains,
    Either,
    Every,
    Exists,
    Filter,
    Matches,
    Negated,
    OneOf,
)
from corral.domain.modules.document_values import RANK_ARRAY, Path, rank

_SIGNS: Final = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_PLAIN: Final = re.compile(r"[A-Za-z_]+")


class Dialect(Protocol):
    """How a database says what a document holds. Every expression is never null: so rows can be compared."""

    def columns(self, path: Path) -> list[str]:
        """Expressions that sort as the value does; the first is its rank."""

    def placed(self, value: Any) -> list[Any]:
        """The value as those expressions give it."""

    def contains(self, path: Path, value: Any, mark: str) -> str: ...

    def pattern(self, path: Path, mark: str) -> str: ...

    def mark(self, number: int) -> str: ...


class SqliteDialect:
    def columns(self, path: Path) -> list[str]:
        at = f"CAST(body AS TEXT), '{_json_path(path)}'"
        ranked = f"""CASE json_type({at}) WHEN 'null' THEN 1 WHEN 'true' THEN 2 WHEN 'false' THEN 2
            WHEN 'integer' THEN 3 WHEN 'real' THEN 3 WHEN 'text' THEN 4 WHEN 'array' THEN 5
            WHEN 'object' THEN 6 ELSE 0 END"""
        return [ranked, f"coalesce(json_extract({at}), 0)"]

    def placed(self, value: Any) -> list[Any]:
        return [rank(value), 0 if value is None else value]

    def contains(self, path: Path, value: Any, mark: str) -> str:
        kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
        return f"""EXISTS (SELECT 1 FROM json_each(CAST(body AS TEXT), '{_json_path(path)}') AS element
            WHERE element.type IN {kinds} AND element.value = {mark})"""

    def pattern(self, path: Path, mark: str) -> str:
        ranked, value = self.columns(path)
        return f"({ranked} = 4 AND re2_found({mark}, {value}))"

    def mark(self, number: int) -> str:
        return f"?{number}"


class PostgresDialect:
    def columns(self, path: Path) -> list[str]:
        at = self._at(path)
        ranked = f"""(case jsonb_typeof({at}) when 'null' then 1 when 'boolean' then 2 when 'number' then 3
            when 'string' then 4 when 'array' then 5 when 'object' then 6 else 0 end)"""
        number = f"""(case jsonb_typeof({at}) when 'number' then ({at} #>> '{{}}')::numeric
            when 'boolean' then ({at} #>> '{{}}')::boolean::int::numeric else 0 end)"""
        text = f"""((case jsonb_typeof({at}) when 'string' then {at} #>> '{{}}' else '' end) collate "C")"""
        return [ranked, number, text]

    def placed(self, value: Any) -> list[Any]:
        if isinstance(value, str):
            return [rank(value), decimal.Decimal(0), value]
        return [rank(value), decimal.Decimal(repr(0 if value is None else value + 0)), ""]

    def contains(self, path: Path, value: Any, mark: str) -> str:
        at = self._at(path)
        return f"(jsonb_typeof({at}) = 'array' and {at} @> to_jsonb({mark}::{_cast(value)}))"

    def pattern(self, path: Path, mark: str) -> str:
        at = self._at(path)
        return f"(jsonb_typeof({at}) = 'string' and ({at} #>> '{{}}') ~ {mark})"

    def mark(self, number: int) -> str:
        return f"${number}"

    def _at(self, path: Path) -> str:
        return f"(value #> '{{{','.join(_checked(path))}}}')"


class Statement:
    """A condition in SQL and its parameters, built from a filter."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.values: list[Any] = []

    def parameter(self, value: Any) -> str:
        self.values.append(value)
        return self._dialect.mark(len(self.values))

    def condition(self, wanted: Filter) -> str:
        match wanted:
            case Every(parts):
                return "(" + " AND ".join(map(self.condition, parts)) + ")" if parts else "(1 = 1)"
            case Either(parts):
                return "(" + " OR ".join(map(self.condition, parts)) + ")"
            case Negated(part):
                return f"(NOT {self.condition(part)})"
            case Exists(path, expected):
                return f"({self._dialect.columns(path)[0]} {'<>' if expected else '='} 0)"
            case Matches(path, pattern):
                return self._dialect.pattern(path, self.parameter(pattern.pattern))
            case Contains(path, place):
                return self._dialect.contains(path, place[1], self.parameter(place[1]))
            case OneOf(path, values):
                return "(" + " OR ".join(self._compared(path, "eq", value) for value in values) + ")"
            case Compare(path, "ne", value):
                return f"(NOT {self._compared(path, 'eq', value)})"
            case Compare(path, operator, value):
                return self._compared(path, operator, value)

    def _compared(self, path: Path, operator: str, value: Any) -> str:
        if path == ID_PATH:
            return f"(id {_SIGNS[operator]} {self.parameter(value)})"
        if rank(value) >= RANK_ARRAY:
            raise NotImplementedError("neither database has our order of arrays and objects")
        ranked, *rest = zip(self._dialect.columns(path), self._dialect.placed(value), strict=True)
        terms = [f"{ranked[0]} = {int(ranked[1])}"]
        # Of the kinds that a rank does not share the columns are constant.
        deciding = rest[-1] if isinstance(value, str) else rest[0]
        terms.append(f"{deciding[0]} {_SIGNS[operator]} {self.parameter(deciding[1])}")
        terms += [f"{column} = {_literal(held)}" for column, held in rest if column != deciding[0]]
        return "(" + " AND ".join(terms) + ")"

    def after(self, sort: Sort, values: Sequence[Any], id: str) -> str:
        columns = [*order_columns(self._dialect, sort), "id"]
        place = [held for value in values for held in self._dialect.placed(value)]
        marks = ", ".join(self.parameter(value) for value in (*place, id))
        return f"(({', '.join(columns)}) {'<' if ties_go_down(sort) else '>'} ({marks}))"


def order_columns(dialect: Dialect, sort: Sort) -> list[str]:
    return [column for field in sort if field.path != ID_PATH for column in dialect.columns(field.path)]


def _checked(path: Path) -> Path:
    if not all(map(_PLAIN.fullmatch, path)):
        raise NotImplementedError("a path stands in the statement, for the index to be found")
    return path


def _json_path(path: Path) -> str:
    return "$" + "".join(f'."{part}"' for part in _checked(path))


def _cast(value: Any) -> str:
    return "text" if isinstance(value, str) else "numeric"


def _literal(value: Any) -> str:
    return "''" if value == "" else str(int(value))
