"""A place in the event log from which is read on: in the ring, else in the store, else not at all."""

from __future__ import annotations

from typing import Final, NoReturn

from corral.controller.events.follower import EventLog, first_hole
from corral.controller.events.hub import EventHub
from corral.controller.events.ring import Wanted
from corral.domain.events import Cursor, Event
from corral.errors import Code, CorralError

RING_EVENTS: Final = 64
PAGE_EVENTS: Final = 256


class Missed(Exception):
    """What comes after the reader's place is in the ring no more, nor in the store's log; up to `until`, or up to
    the head."""

    def __init__(self, until: Cursor | None = None) -> None:
        super().__init__(until)
        self.until = until


class LogReader:
    """`cursor` is moved by whoever reads, as far as he came. One that came from outside is believed only once
    the ring or the store knows it."""

    def __init__(self, *, hub: EventHub, log: EventLog, cursor: Cursor, believed: bool = True) -> None:
        self.cursor = cursor
        self._hub = hub
        self._log = log
        self._believed = believed

    async def ahead(self, wanted: Wanted) -> tuple[list[Event], Cursor]:
        """The next events that are wanted, none that is not published yet, and how far was looked. Raises
        `Missed`, `StoreUnavailable`."""
        ring = self._hub.ring
        if not self._believed and ring.knows(self.cursor):
            self._believed = True
        if self._believed and ring.reaches(self.cursor.sequence):
            return ring.events(self.cursor.sequence, wanted, limit=RING_EVENTS)
        return await self._page(wanted)

    async def _page(self, wanted: Wanted) -> tuple[list[Event], Cursor]:
        # What is published while the store is read may be wanted by more names than are asked for now.
        place, floor, head = self.cursor, self._hub.ring.floor, self._hub.ring.head
        if place.sequence > head.sequence or place.epoch > head.epoch:
            raise Missed  # never of this log
        try:
            page = await self._log.events(place, limit=PAGE_EVENTS)
        except CorralError as error:
            if error.code is not Code.RESYNC_REQUIRED:
                raise
            raise Missed from None
        self._believed = True
        shown = [event for event in page if event.cursor.sequence <= head.sequence]
        if not shown:
            if place.sequence < floor.sequence:
                raise Missed
            return [], place
        if wanted.of_modules:
            shown = shown[: first_hole(place, shown)] or _behind_hole(shown[0].cursor)
        return [event for event in shown if wanted.accepts(event)], shown[-1].cursor


def _behind_hole(next: Cursor) -> NoReturn:
    raise Missed(until=Cursor(next.epoch, next.sequence - 1))
