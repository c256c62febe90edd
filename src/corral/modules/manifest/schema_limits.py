"""What a JSON Schema may cost: bounded before it is compiled, and weighed before values are checked against it.

References stay within the schema, never lead back to themselves, and what they expand to is counted; words
whose cost cannot be told beforehand are refused. Patterns are compiled by an engine that is linear in the
text (see `settings`), so they are not looked at here.
"""

from __future__ import annotations

import re
import urllib.parse
from typing import Any, Final

DEPTH_MAX: Final = 200
COST_MAX: Final = 20_000
"""Parts of a schema, those that are referred to counted each time."""
_TEXT_PER_PART: Final = 64
VALUES_PER_PART: Final = 8
"""So many plain values to choose from are as much to look at as one part of a schema."""
_STATES_PER_PART: Final = 10
_STATES_MAX: Final = 10**9
_CLASSES: Final = re.compile(r"\\[wdspbWDSPB]|\.|\[\^")
"""What stands for thousands of characters, and for as many as that in the compiled pattern."""
_CLASS_STATES: Final = 500
_REPEATS: Final = re.compile(r"\{(\d*),?(\d*)\}")
_REFUSED: Final = (
    "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor",
    "unevaluatedProperties", "unevaluatedItems", "id",
)  # fmt: skip
_VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Beneath these stand values, not schemas."""
_NAMED: Final = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
"""Beneath these stand schemas under names of the author's choice; such a name is no word of the language."""


class TooCostly(Exception):
    """The message says what is wrong; `path` where."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(why)
        self.path = path
        self.why = why


def bound_schema(schema: dict[str, Any]) -> int:
    """How many parts it has, its references written out; TooCostly for what is not bounded."""
    cost = _Counting(schema).cost(schema, "", 0)
    if cost > COST_MAX:
        raise TooCostly("", f"it has more than {COST_MAX} parts, its references written out")
    return cost


def schema_weight(schema: dict[str, Any], cost: int) -> int:
    """How much there is to look at for each part of a value; `cost` is what `bound_schema` found. Values and
    patterns that stand in it count too, and as often as what refers to them."""
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
    """How much there is of a value, its texts included."""
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
    """How much there is of values of which one is to be chosen: as `value_weight`, but lists and maps, which take
    far longer to compare, count as parts of a schema."""
    each = chosen if isinstance(chosen, list) else [chosen]
    return sum(value_weight(one) * (VALUES_PER_PART if isinstance(one, dict | list) else 1) for one in each)


def pattern_weight(pattern: str) -> int:
    """About how large a pattern becomes when it is compiled, in parts of a schema."""
    states = len(pattern) + _CLASS_STATES * len(_CLASSES.findall(pattern))
    for low, high in _REPEATS.findall(pattern):
        states = min(states * max(1, *(int(digits[:6] or "0") for digits in (low, high))), _STATES_MAX)
    return 1 + states // _STATES_PER_PART


def resolve(root: dict[str, Any], reference: object) -> Any:
    """What a reference within a schema points at; None when it points at nothing."""
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
        """Of a schema or a list of them; `named`: of a map of schemas by names."""
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
