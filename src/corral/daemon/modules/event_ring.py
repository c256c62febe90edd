"""The newest events that reached this node, in a ring that is bounded by count and by bytes."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.domain.events import Event
from corral.modules.event_names import EventFilter

RING_EVENTS: Final = 10_000
RING_BYTES: Final = 16 * 1024 * 1024


class Gap(msgspec.Struct, frozen=True):
    """The controller could not tell what lies between these two cursors."""

    after: str
    until: str


class _Slot(msgspec.Struct, frozen=True, gc=False):  # thousands of them live long and hold no cycle
    content: Event | Gap
    size: int


class EventRing:
    """Holds what came after `floor` up to `head`. Both are numbers of this ring, counted from one: what a node
    gets of the log has holes, and cursors of the log say nothing about how many events lie between them."""

    def __init__(self, *, capacity: int = RING_EVENTS, capacity_bytes: int = RING_BYTES) -> None:
        self.head = 0
        self.floor = 0
        self.bytes = 0
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._slots: list[_Slot | None] = [None] * capacity

    def __len__(self) -> int:
        return self.head - self.floor

    def append(self, content: Event | Gap, size: int) -> None:
        """Take the next one, dropping the oldest ones that no longer fit."""
        while len(self) and (len(self) >= self._capacity or self.bytes + size > self._capacity_bytes):
            self._drop_oldest()
        self.head += 1
        self._slots[self.head % self._capacity] = _Slot(content, size)
        self.bytes += size

    def clear(self) -> None:
        """Nobody reads any more."""
        while len(self):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.floor += 1
        self.bytes -= self._at(self.floor).size
        self._slots[self.floor % self._capacity] = None

    def _at(self, number: int) -> _Slot:
        slot = self._slots[number % self._capacity]
        assert slot is not None, "every number between floor and head has a slot"
        return slot

    @property
    def last(self) -> Event | Gap:
        """The newest; there has to be one."""
        return self._at(self.head).content

    def after(self, number: int, wanted: EventFilter, *, limit: int) -> tuple[list[Event | Gap], int]:
        """Up to `limit` of what is wanted after a number that is not below the floor, and how far was
        looked. A gap is wanted by everybody."""
        found: list[Event | Gap] = []
        for at in range(number + 1, self.head + 1):
            content = self._at(at).content
            if isinstance(content, Gap) or wanted.accepts(content):
                found.append(content)
                if len(found) == limit:
                    return found, at
        return found, self.head
