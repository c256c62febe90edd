"""How much work it is at most to check a value against a schema, told before it is done.

The schema is followed as a validator follows it: each property is held against the value of its name alone, each
alternative against the whole. What is not followed here counts as all of its parts for all parts of the value.
"""

from __future__ import annotations

from typing import Any, Final

from corral.modules.manifest.schema_limits import (
    VALUES_PER_PART,
    bound_schema,
    pattern_weight,
    resolve,
    schema_weight,
    value_weight,
    values_weight,
)

_COMPILED_PER_PART: Final = 3
"""So many parts are compiled in the time that one takes to be checked at the worst."""
_UNCHECKED: Final = frozenset(
    {"$schema", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
     "deprecated", "readOnly", "writeOnly"}
)  # fmt: skip
_SAME_VALUE: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else"})
_WHOLE_VALUE: Final = frozenset({"uniqueItems", "additionalProperties", "additionalItems", "format"})


def checking_weight(schema: dict[str, Any], value: Any, *, most: int) -> int:
    """In parts of a schema that are held against parts of a value, the compiling of the schema included; something
    above `most` as soon as it is more. TooCostly for a schema that is not bounded."""
    compiling = schema_weight(schema, bound_schema(schema)) // _COMPILED_PER_PART
    work = _Work(schema, most, compiling)
    try:
        work.add(schema, value)
    except _Enough:
        return most + 1
    return work.done


class _Enough(Exception):
    """It is more than anybody wants to know."""


class _Work:
    def __init__(self, root: dict[str, Any], most: int, done: int) -> None:
        self._root = root
        self._most = most
        self.done = done

    def add(self, schema: Any, value: Any) -> None:
        """_Enough."""
        self._count(1)
        if not isinstance(schema, dict):
            return
        for word, part in schema.items():
            if word not in _UNCHECKED:
                self._word(word, part, value)

    def _word(self, word: str, part: Any, value: Any) -> None:
        if word == "$ref":
            self.add(resolve(self._root, part), value)
        elif word in _SAME_VALUE:
            for each in part if isinstance(part, list) else [part]:
                self.add(each, value)
        elif word == "properties" and isinstance(part, dict) and isinstance(value, dict):
            self._count(len(part))
            for name in part.keys() & value.keys():
                self.add(part[name], value[name])
        elif word == "items" and isinstance(part, dict) and isinstance(value, list):
            for each in value:
                self.add(part, each)
        elif word == "additionalProperties" and isinstance(part, dict) and isinstance(value, dict):
            for each in value.values():
                self.add(part, each)
        else:
            self._count(_apart(word, part, value))

    def _count(self, steps: int) -> None:
        self.done += steps
        if self.done > self._most:
            raise _Enough


def _apart(word: str, part: Any, value: Any) -> int:
    """Of a word that is not followed."""
    if word in ("enum", "const"):
        return (1 + values_weight(part) // VALUES_PER_PART) * value_weight(value)
    if word == "pattern" and isinstance(part, str):
        return pattern_weight(part) * value_weight(value) if isinstance(value, str) else 1
    if word in ("required", "type") and isinstance(part, list):
        return len(part)
    if isinstance(part, dict | list):
        return schema_weight({word: part}, 1) * value_weight(value)
    return value_weight(value) if word in _WHOLE_VALUE or isinstance(value, str) else 1
