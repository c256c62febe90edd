"""A reader of the event log: a cursor, and nothing else that could grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from corral.controller.events.frames import framed, resync_frame
from corral.controller.events.ring import EventRing, Wanted
from corral.domain.events import Cursor, Event
from corral.errors import Code, CorralError
from corral.system.clock import Clock

_PAGE: Final = 256


class EventLog(Protocol):
    """What is needed of the store's reading side."""

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        """Events after a cursor; RESYNC_REQUIRED when the cursor is not of this log, or too old."""


def first_hole(after: Cursor, events: Sequence[Event]) -> int:
    """The place of the first of these events before which some were dropped; how many they are if there is none."""
    for place, event in enumerate(events):
        if event.cursor.sequence != after.sequence + 1 + place:
            return place
    return len(events)


class Follower:
    """Reads frames after its cursor: from the ring, from the log when the ring has moved on, and
    after one RESYNC_REQUIRED from the head when the log has moved on too."""

    def __init__(
        self, *, ring: EventRing, log: EventLog, clock: Clock, after: Cursor | None, wanted: Wanted
    ) -> None:
        self.cursor = ring.head if after is None else after
        self._ring = ring
        self._log = log
        self._clock = clock
        self._wanted = wanted
        # A cursor from outside may be of another log; the ring or the store has to recognise it.
        self._recognised = after is None or ring.knows(after)

    def take(self) -> bytes | None:
        """Frames that the ring has for this reader, empty when there are none; None: call `page`."""
        if not self._recognised or self.cursor.sequence < self._ring.floor.sequence:
            return None
        if self.cursor.sequence >= self._ring.head.sequence:
            return b""  # a page of the log may have shown what is yet to be published
        chunk = self._ring.chunk(self.cursor.sequence, self._wanted)
        self.cursor = chunk.cursor
        return chunk.body

    async def page(self) -> bytes:
        """The next frames from the store's log; may be empty. Raises `StoreUnavailable`."""
        try:
            events = await self._log.events(self.cursor, limit=_PAGE)
        except CorralError as error:
            if error.code is not Code.RESYNC_REQUIRED:
                raise
            return self._resync()
        self._recognised = True
        told = b""
        if self._wanted.of_modules and first_hole(self.cursor, events) < len(events):
            told = resync_frame(head=self.cursor, lost=self.cursor, at=self._clock.now())
        if events:
            self.cursor = events[-1].cursor
        elif self.cursor.sequence < self._ring.floor.sequence:
            return self._resync()  # the log has nothing after it, yet the ring begins later
        wanted = self._wanted
        return told + b"".join(framed(wanted.shown(event))[1] for event in events if wanted.accepts(event))

    def _resync(self) -> bytes:
        lost, self.cursor = self.cursor, self._ring.head
        self._recognised = True
        return resync_frame(head=self.cursor, lost=lost, at=self._clock.now())
