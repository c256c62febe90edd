"""A cursor in the event log, and the events after it: from the ring, else from the store's log, else as
missed.

Streams, modules, nodes and in-process subscribers all read with `EventReader`. Its rules:

* An event is read only once it is published: before that, memory does not have the change it is about.
* A cursor from outside counts once the ring or the store recognises it. One of another history, or beyond the
  end of the log, is answered by `MissedEvents` up to the head.
* Events that the log no longer has are reported as missed at their place. Only events of modules are dropped
  from among others, so a selection without them misses nothing.
* An event that cannot be encoded is missed alone (`encoded`). A place that cannot be read, or whose events
  cannot be used, for an unexpected reason is tried three times; then everything up to the head is missed
  (`passed_over`). Both are logged and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

import msgspec
import structlog

from corral.controller.events.ring import EventRing, EventSelection
from corral.domain.events import Cursor, Event, MissedEvents
from corral.errors import Code, CorralError

ATTEMPTS: Final = 3
RETRY_SECONDS: Final = 0.2
"""The pause between these attempts."""
T = TypeVar("T")
_log = structlog.get_logger("corral.controller.events")


class EventLog(Protocol):
    """The part of the store's reading side that readers use."""

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        """Events after a cursor; RESYNC_REQUIRED when the cursor is not of this log, or too old."""


class ReadEvents(msgspec.Struct, frozen=True):
    """The selected events of the log from a reader's cursor up to `until`, in order."""

    items: Sequence[Event | MissedEvents]
    until: Cursor


class EventReader:
    """`cursor` is the last place that was passed: `read` does not move it, `advance` does, once what was read
    is processed."""

    def __init__(
        self,
        name: str,
        *,
        ring: EventRing,
        log: EventLog | None,
        after: Cursor | None,
        on_skip: Callable[[], None],
    ) -> None:
        """Start from `after`, which may be of any origin, or from now on. Without a log, events that the ring
        has dropped are missed. `name` is for the controller's log."""
        self.name = name
        self.cursor = ring.head if after is None else after
        self._ring = ring
        self._log = log
        self._on_skip = on_skip
        self._recognised = after is None or ring.knows(after)
        self._failures = 0
        self._failed_at: Cursor | None = None

    @property
    def in_ring(self) -> bool:
        """Whether the ring has all published events after the cursor."""
        return self._recognised and self.cursor.sequence >= self._ring.floor.sequence

    @property
    def at_head(self) -> bool:
        """Whether there is nothing to read; then `read` returns nothing, too."""
        return self._recognised and self.cursor.sequence >= self._ring.head.sequence

    def advance(self, to: Cursor) -> None:
        """Continue from a place that was read, or published."""
        self.cursor = to
        self._recognised = True

    async def read(self, selection: EventSelection, *, limit: int) -> ReadEvents:
        """The next events, about `limit` of them; nothing when there are none. Raises `StoreUnavailable`."""
        if self.at_head:
            return ReadEvents((), self.cursor)
        if self.in_ring:
            return ReadEvents(*self._ring.events(self.cursor.sequence, selection, limit=limit))
        if self._log is None:
            return self._all_missed(self._ring.head)
        return await self._page(self._log, selection, limit)

    async def _page(self, log: EventLog, selection: EventSelection, limit: int) -> ReadEvents:
        # Events published during the read of the store belong to the next read: the selection may have grown
        # by then.
        place, head = self.cursor, self._ring.head
        if not place.storable or (place.epoch > head.epoch and place.sequence <= head.sequence):
            # The store cannot recognise the cursor when the events around it were dropped.
            return self._all_missed(head)
        try:
            page = await log.events(place, limit=limit)
        except CorralError as error:
            if error.code is not Code.RESYNC_REQUIRED:
                raise
            return self._all_missed(head)
        events = [event for event in page if event.cursor.sequence <= head.sequence]
        to_the_end = len(page) < limit or len(events) < len(page)
        until = max(place, head, key=_sequence) if to_the_end else events[-1].cursor
        items = _with_holes(place, events, until) if selection.of_modules else iter(events)
        return ReadEvents(
            [item for item in items if isinstance(item, MissedEvents) or selection.accepts(item)], until
        )

    def _all_missed(self, until: Cursor) -> ReadEvents:
        return ReadEvents((MissedEvents(after=self.cursor, until=until),), until)

    def encoded(self, event: Event, encode: Callable[[Event], T]) -> T | MissedEvents:
        """The event encoded for its receiver; missed, if it cannot be encoded."""
        try:
            return encode(event)
        except Exception:
            _log.exception("event.skipped", reader=self.name, cursor=str(event.cursor), type=event.type.value)
            self._on_skip()
            before = Cursor(event.cursor.epoch, event.cursor.sequence - 1)
            return MissedEvents(after=before, until=event.cursor)

    def passed_over(self, *, until: Cursor | None = None) -> MissedEvents | None:
        """To be called when the next events could not be read, or not be used, for an unexpected reason.
        None: try again. At the last attempt: the missed part, up to `until` or to the head; `advance` behind
        it."""
        if self._failed_at != self.cursor:
            self._failed_at, self._failures = self.cursor, 0
        self._failures += 1
        if self._failures < ATTEMPTS:
            return None
        missed = MissedEvents(after=self.cursor, until=until or self._ring.head)
        _log.error("event.skipped", reader=self.name, after=str(missed.after), until=str(missed.until))
        self._on_skip()
        return missed


def _sequence(cursor: Cursor) -> int:
    return cursor.sequence


def _with_holes(after: Cursor, events: Sequence[Event], until: Cursor) -> Iterator[Event | MissedEvents]:
    """The events of a page, and the parts dropped before, between and behind them up to `until`."""
    last = after
    for event in events:
        before = Cursor(event.cursor.epoch, event.cursor.sequence - 1)
        if before.sequence > last.sequence:
            yield MissedEvents(after=last, until=before)
        yield event
        last = event.cursor
    if until.sequence > last.sequence:
        yield MissedEvents(after=last, until=until)
