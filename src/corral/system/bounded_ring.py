"""A ring: the newest items, numbered without holes, bounded by count and by bytes."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedRing(Generic[T]):
    """Holds the items after the number `floor` up to `head`; the oldest are dropped for the newest, which is
    held however large it is."""

    def __init__(self, *, capacity: int, capacity_bytes: int, floor: int = 0) -> None:
        self.floor = floor
        self.head = floor
        self.bytes = 0
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._items: list[T | None] = [None] * capacity
        self._sizes = [0] * capacity

    def __len__(self) -> int:
        return self.head - self.floor

    def __getitem__(self, number: int) -> T:
        """The item with a number above the floor and not above the head."""
        item = self._items[number % self._capacity]
        assert item is not None, "every number between floor and head has an item"
        return item

    def append(self, item: T, size: int) -> T | None:
        """Take the next item; returns the newest of the dropped ones, if any."""
        dropped: T | None = None
        while len(self) and (len(self) >= self._capacity or self.bytes + size > self._capacity_bytes):
            dropped = self._drop_oldest()
        self.head += 1
        place = self.head % self._capacity
        self._items[place] = item
        self._sizes[place] = size
        self.bytes += size
        return dropped

    def clear(self) -> None:
        """Drop all items; the numbers continue."""
        self.begin_after(self.head)

    def begin_after(self, number: int) -> None:
        """Drop all items; the next item has the number after this one."""
        while len(self):
            self._drop_oldest()
        self.floor = self.head = number

    def _drop_oldest(self) -> T:
        item = self[self.floor + 1]
        self.floor += 1
        place = self.floor % self._capacity
        self._items[place] = None
        self.bytes -= self._sizes[place]
        return item
