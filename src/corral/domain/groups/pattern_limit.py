"""How many patterns (RE2) the groups of one change may have: to compile one takes up to a millisecond."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from corral.domain.spec import invalid

MOST_PATTERNS: Final = 500
"""Different ones. As many compiled patterns are kept (`domain/patterns.py`), so that each is compiled once, however many
groups inherit it."""


def patterns_of(documents: Iterable[Mapping[str, Any]]) -> set[str]:
    """The different patterns of written documents, valid or not."""
    found: set[object] = set()
    for document in documents:
        patches, types = document.get("patches"), document.get("variable_types")
        if isinstance(patches, list | tuple):
            found |= {_text(each, "path") for each in patches if _text(each, "op") == "regex"}
        if isinstance(types, Mapping):
            found |= {_text(each, "pattern") for each in types.values()}
    return {each for each in found if isinstance(each, str)}


def check_patterns(documents: Iterable[Mapping[str, Any]]) -> None:
    """INVALID_FIELD for documents that have too many together. Call it before anything compiles them."""
    count = len(patterns_of(documents))
    if count > MOST_PATTERNS:
        raise invalid(
            "patches",
            f"with the groups that inherit this, it has {count} different patterns",
            f"use at most {MOST_PATTERNS}: change the lines of a file in its template instead",
        )


def _text(value: object, key: str) -> object:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else None
