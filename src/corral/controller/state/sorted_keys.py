"""Keys in their order, kept while they come and go: a page or a list of an index needs no sort.

Changes are collected, and merged when the keys are read: one costs a search and a move within one list, many at once
(a loaded snapshot) one sort.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Final

_FEW: Final = 32
"""So many changes are merged one by one; more with one sort, which costs about as much as these."""


class SortedKeys:
    """A set of keys that is read in order."""

    __slots__ = ("_added", "_keys", "_removed")

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._added: set[str] = set()
        """Never among `_keys`."""
        self._removed: set[str] = set()
        """All among `_keys`."""

    def __len__(self) -> int:
        return len(self._keys) + len(self._added) - len(self._removed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.in_order())

    def add(self, key: str) -> None:
        """Add a key that is not in the set."""
        if key in self._removed:
            self._removed.discard(key)
        else:
            self._added.add(key)

    def discard(self, key: str) -> None:
        """Remove a key that is in the set."""
        if key in self._added:
            self._added.discard(key)
        else:
            self._removed.add(key)

    def in_order(self) -> Sequence[str]:
        """All keys in order. The list is the set's own: use it before the next change."""
        if self._added or self._removed:
            self._merge()
        return self._keys

    def _merge(self) -> None:
        keys = self._keys
        if len(self._added) + len(self._removed) <= _FEW:
            for key in self._removed:
                del keys[bisect.bisect_left(keys, key)]
            for key in self._added:
                bisect.insort(keys, key)
        else:
            if self._removed:
                keys[:] = [key for key in keys if key not in self._removed]
            keys.extend(self._added)
            keys.sort()
        self._added.clear()
        self._removed.clear()


class KeyIndex:
    """Sorted keys by the value of a property, such as the instances of each group."""

    __slots__ = ("_by_value",)

    def __init__(self) -> None:
        self._by_value: dict[str, SortedKeys] = {}

    def __iter__(self) -> Iterator[str]:
        """The values that some key has."""
        return iter(self._by_value)

    def __contains__(self, value: str) -> bool:
        return value in self._by_value

    def of(self, value: str) -> Sequence[str]:
        """The keys with this value, in order: see `SortedKeys.in_order`."""
        keys = self._by_value.get(value)
        return keys.in_order() if keys is not None else ()

    def move(self, key: str, old: str | None, new: str | None) -> None:
        """Set the value of a key, which was `old`; None: the key has no value."""
        if old == new:
            return
        if old is not None:
            keys = self._by_value[old]
            keys.discard(key)
            if not len(keys):
                del self._by_value[old]
        if new is not None:
            self._by_value.setdefault(new, SortedKeys()).add(key)
