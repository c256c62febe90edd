"""How deeply values from outside may be nested. What is deeper would end whoever encodes it: an encoder goes only
as deep as the stack it is called from leaves room for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MAX_DEPTH: Final = 32
"""Maps and lists inside each other, for every free value that comes from outside."""


def deeper_than(value: object, levels: int) -> bool:
    """Whether more maps and lists lie inside each other. Looks no deeper than that, and never recurses."""
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
