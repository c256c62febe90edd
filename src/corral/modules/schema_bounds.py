"""What a JSON Schema may cost: bounded before it is compiled, so that no settings take long to check.

References stay within the schema, never lead back to themselves, and what they expand to is counted; words
whose cost cannot be told beforehand are refused. Patterns are compiled by an engine that is linear in the
text (see `settings`), so they are not looked at here.
"""

from __future__ import annotations

import urllib.parse
from typing import Any, Final

DEPTH_MAX: Final = 200
COST_MAX: Final = 20_000
"""Parts of a schema, those that are referred to counted each time."""
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


def bound_schema(schema: dict[str, Any]) -> None:
    """Raise TooCostly for what is not bounded."""
    if _Counting(schema).cost(schema, "", 0) > COST_MAX:
        raise TooCostly("", f"it has more than {COST_MAX} parts, its references written out")


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
