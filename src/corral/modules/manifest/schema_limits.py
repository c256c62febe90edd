"""Cost limits of a JSON Schema: checked before it is compiled, and again before values are checked against
it.

References stay within the schema, never lead back to themselves, and what they expand to is counted; keywords
whose cost cannot be computed beforehand are refused. Patterns are compiled by an engine that is linear in the
text (see `settings`), so they are not examined here.

The cost of checking a value is an upper bound. The schema is followed as a validator follows it: each
property is compared with the value of its name only, each alternative with the whole. Keywords that are not
followed count as all of their parts for all parts of the value.
"""

from __future__ import annotations

import re
import urllib.parse
from typing import Any, Final

DEPTH_MAX: Final = 200
COST_MAX: Final = 20_000
"""Most parts of a schema; a referenced part counts at each reference."""
_TEXT_PER_PART: Final = 64
VALUES_PER_PART: Final = 8
"""Number of plain values in an `enum` that cost as much as one part of a schema."""
_STATES_PER_PART: Final = 10
_STATES_MAX: Final = 10**9
_CLASSES: Final = re.compile(r"\\[wdspbWDSPB]|\.|\[\^")
"""Character classes that stand for thousands of characters, and expand to as many in the compiled pattern."""
_CLASS_STATES: Final = 500
_REPEATS: Final = re.compile(r"\{(\d*),?(\d*)\}")
_REFUSED: Final = (
    "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor",
    "unevaluatedProperties", "unevaluatedItems", "id",
)  # fmt: skip
_VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold values, not schemas."""
_NAMED: Final = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
"""Keywords that hold schemas under names of the author's choice; such a name is no keyword."""


class TooCostly(Exception):
    """The message describes the problem, `path` its place."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(why)
        self.path = path
        self.why = why


def bound_schema(schema: dict[str, Any]) -> int:
    """Number of parts of a schema with its references expanded; TooCostly for one that is not bounded."""
    cost = _Counting(schema).cost(schema, "", 0)
    if cost > COST_MAX:
        raise TooCostly("", f"it has more than {COST_MAX} parts, its references written out")
    return cost


def schema_weight(schema: dict[str, Any], cost: int) -> int:
    """Cost of the schema for each part of a value; `cost` is the result of `bound_schema`. Values and
    patterns in it count too, at each reference."""
    nodes, patterns, choices = 0, 0, 0
    left: list[Any] = [schema]
    while left:
        part = left.pop()
        nodes += 1
        if isinstance(part, dict):
            chosen = part.get("enum")
            if isinstance(chosen, list):
                choices += values_weight(chosen)
            left.extend(
                inner for inner in part.values() if inner is not chosen or not isinstance(inner, list)
            )
            named = part.get("patternProperties")
            texts = [*(named if isinstance(named, dict) else ()), part.get("pattern")]
            patterns += sum(pattern_weight(text) for text in texts if isinstance(text, str))
        elif isinstance(part, list):
            left.extend(part)
    weight = nodes + patterns + choices // VALUES_PER_PART
    return cost + weight * max(1, cost // nodes)


def value_weight(value: Any) -> int:
    """Size of a value, its texts included."""
    weight = 0
    left = [value]
    while left:
        part = left.pop()
        weight += 1
        if isinstance(part, dict):
            left.extend(part.values())
            weight += sum(map(len, part)) // _TEXT_PER_PART
        elif isinstance(part, list):
            left.extend(part)
        elif isinstance(part, str):
            weight += len(part) // _TEXT_PER_PART
    return weight


def values_weight(chosen: Any) -> int:
    """Size of the values of an `enum`: as `value_weight`, but lists and maps, which take far longer to
    compare, count as parts of a schema."""
    each = chosen if isinstance(chosen, list) else [chosen]
    return sum(value_weight(one) * (VALUES_PER_PART if isinstance(one, dict | list) else 1) for one in each)


def pattern_weight(pattern: str) -> int:
    """Approximate size of a compiled pattern, in parts of a schema."""
    states = len(pattern) + _CLASS_STATES * len(_CLASSES.findall(pattern))
    for low, high in _REPEATS.findall(pattern):
        states = min(states * max(1, *(int(digits[:6] or "0") for digits in (low, high))), _STATES_MAX)
    return 1 + states // _STATES_PER_PART


def resolve(root: dict[str, Any], reference: object) -> Any:
    """Target of a reference within a schema; None when it does not exist."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found: Any = root
    for part in urllib.parse.unquote(reference[1:]).split("/")[1:]:
        step = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdecimal() and len(step) < 6 and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


class _Counting:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[tuple[int, bool], int] = {}
        self._above: set[tuple[int, bool]] = set()

    def cost(self, part: Any, path: str, depth: int, *, named: bool = False) -> int:
        """Cost of a schema or a list of them; `named`: of a map of schemas by names."""
        if not isinstance(part, dict | list):
            return 0
        key = (id(part), named)
        if key in self._known:
            return self._known[key]
        if key in self._above:
            raise TooCostly(path, "its $ref leads back to itself")
        if depth > DEPTH_MAX:
            raise TooCostly(path[:200], f"it is more than {DEPTH_MAX} levels deep")
        self._above.add(key)
        members = part.items() if isinstance(part, dict) else enumerate(part)
        total = 1
        for name, value in members:
            place = f"{path}.{name}" if path else str(name)
            total += self.cost(value, place, depth + 1) if named else self._member(name, value, place, depth)
        self._above.discard(key)
        self._known[key] = min(total, COST_MAX + 1)
        return self._known[key]

    def _member(self, name: object, value: Any, path: str, depth: int) -> int:
        if name in _VALUES:
            return 1
        if name in _REFUSED:
            raise TooCostly(path, "it is not supported in settings")
        if name == "$ref" and isinstance(value, str):
            if value != "#" and not value.startswith("#/"):
                raise TooCostly(path, "it must point into this schema, as in '#/$defs/port'")
            return self.cost(resolve(self._root, value), path, depth + 1)
        return self.cost(value, path, depth + 1, named=name in _NAMED and isinstance(value, dict))


_COMPILED_PER_PART: Final = 3
"""Number of parts that are compiled in the time that checking one takes at the worst."""
_UNCHECKED: Final = frozenset(
    {"$schema", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
     "deprecated", "readOnly", "writeOnly"}
)  # fmt: skip
_SAME_VALUE: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else"})
_WHOLE_VALUE: Final = frozenset({"uniqueItems", "additionalProperties", "additionalItems", "format"})


def checking_weight(schema: dict[str, Any], value: Any, *, most: int) -> int:
    """Cost of a check: parts of a schema compared with parts of a value, the compiling of the schema
    included; above `most` the count stops. TooCostly for a schema that is not bounded."""
    compiling = schema_weight(schema, bound_schema(schema)) // _COMPILED_PER_PART
    work = _SchemaWork(schema, most, compiling)
    try:
        work.add(schema, value)
    except _LimitReached:
        return most + 1
    return work.done


class _LimitReached(Exception):
    """The count has exceeded its maximum."""


class _SchemaWork:
    def __init__(self, root: dict[str, Any], most: int, done: int) -> None:
        self._root = root
        self._most = most
        self.done = done

    def add(self, schema: Any, value: Any) -> None:
        """Add to the count; raises _LimitReached."""
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
            raise _LimitReached


def _apart(word: str, part: Any, value: Any) -> int:
    """Cost of a keyword that is not followed."""
    if word in ("enum", "const"):
        return (1 + values_weight(part) // VALUES_PER_PART) * value_weight(value)
    if word == "pattern" and isinstance(part, str):
        return pattern_weight(part) * value_weight(value) if isinstance(value, str) else 1
    if word in ("required", "type") and isinstance(part, list):
        return len(part)
    if isinstance(part, dict | list):
        return schema_weight({word: part}, 1) * value_weight(value)
    return value_weight(value) if word in _WHOLE_VALUE or isinstance(value, str) else 1
