"""Lists within sentences: the first few, and how many there are beside them."""

from __future__ import annotations

from collections.abc import Iterable


def short_list(items: Iterable[object], most: int) -> str:
    """`a, b and 3 more`."""
    words = [str(item) for item in items]
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")
