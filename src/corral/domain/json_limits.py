"""Limits of nesting for values from outside. A deeper value would crash its encoder: an encoder goes only as
deep as the stack of its caller allows."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, TypeVar

K = TypeVar("K", bound=Hashable)

MAX_DEPTH: Final = 32
"""Maps and lists inside each other, for every free value that comes from outside."""

MOST_VALUES: Final = 20_000
"""Entries of all lists and objects of a body together, unless its route takes more."""

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_REST: Final = bytes(set(range(256)) - set(b"{}[]"))
_WINDOW: Final = 64 * 1024


def deeper_than(value: object, levels: int) -> bool:
    """Whether more maps and lists are nested. Looks no deeper than that, and never recurses."""
    if type(value) is dict and levels > 0 and _SCALARS.issuperset(map(type, value.values())):
        return False  # the data of nearly every event: abstract types cost more than all the rest of it
    here = [value] if isinstance(value, Mapping | list | tuple) else []
    for _ in range(levels):
        if not here:
            return False
        here = [
            child for each in here for child in _children(each) if isinstance(child, Mapping | list | tuple)
        ]
    return bool(here)


def _children(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def json_deeper_than(raw: bytes, levels: int) -> bool:
    """The same for a whole valid JSON text: without building anything of it."""
    if raw.count(b"{") + raw.count(b"[") <= levels:
        return False
    left = _STRINGS.sub(b"", raw).translate(_ALIKE, _REST)
    for _ in range(levels):
        if not left:
            return False
        left = left.replace(b"[]", b"")
    return bool(left)


def more_values_than(raw: bytes, most: int) -> bool:
    """Whether the lists and objects of a JSON text have more entries in all, an empty one counting as one. Nothing is
    built of the text, which need not be valid."""
    if _entries(raw) <= most:
        return False
    plain = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    found, within = 0, False
    for start in range(0, len(plain), _WINDOW):
        parts = plain[start : start + _WINDOW].split(b'"')
        found += _entries(b"".join(parts[within::2]))
        within ^= len(parts) % 2 == 0
        if found > most:
            return True
    return False


def _entries(raw: bytes) -> int:
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def first_repeated(names: Iterable[K]) -> K | None:
    """The first repeated one. Each is looked up once: the names are untrusted, as many as a body has room
    for."""
    seen: set[K] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def repeated_key(raw: bytes) -> str | None:
    """A key that occurs twice in one object of a valid JSON text that is not deep. Readers do not agree which
    of the two counts."""
    found: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> None:
        if not found and (name := first_repeated(name for name, _ in pairs)) is not None:
            found.append(name)

    json.loads(raw, object_pairs_hook=unique, parse_int=str, parse_float=str)
    return found[0] if found else None
