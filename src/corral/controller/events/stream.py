"""The frames of one event stream, from a cursor on."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Final

import structlog

from corral.controller.events.frames import framed, resync_frame
from corral.controller.events.reader import RETRY_SECONDS, EventReader, ReadEvents
from corral.controller.events.ring import EventRing, EventSelection
from corral.domain.events import Cursor, Event, MissedEvents
from corral.errors import CorralError
from corral.system.clock import Clock

_PAGE: Final = 256
_log = structlog.get_logger("corral.controller.events")


class EventStream:
    """Has a reader, and nothing else that could grow. What was missed is told by one RESYNC_REQUIRED."""

    def __init__(self, reader: EventReader, *, ring: EventRing, clock: Clock, wanted: EventSelection) -> None:
        self._reader = reader
        self._ring = ring
        self._clock = clock
        self._wanted = wanted

    @property
    def cursor(self) -> Cursor:
        return self._reader.cursor

    def take(self) -> bytes | None:
        """Frames that the ring has for this stream, empty when there are none; None: call `page`."""
        if self._reader.at_head:
            return b""
        if not self._reader.in_ring:
            return None
        chunk = self._ring.chunk(self.cursor.sequence, self._wanted)
        self._reader.advance(chunk.cursor)
        return chunk.body

    async def page(self) -> bytes:
        """The next frames from the store's log; may be empty. Raises `StoreUnavailable`."""
        try:
            read = await self._reader.read(self._wanted, limit=_PAGE)
        except CorralError:
            raise
        except Exception:
            _log.exception("event.stream_failed", after=str(self.cursor))
            missed = self._reader.passed_over()
            if missed is None:
                await asyncio.sleep(RETRY_SECONDS)
                return b""
            read = ReadEvents((missed,), missed.until)
        self._reader.advance(read.until)
        return b"".join(_frames(read.items, self._wanted, self._clock.now()))


def _frames(
    items: Sequence[Event | MissedEvents], wanted: EventSelection, at: dt.datetime
) -> Iterator[bytes]:
    """Of several stretches that were missed the first is told: whoever reads the state anew then has it all."""
    told = False
    for item in items:
        if isinstance(item, Event):
            yield framed(wanted.shown(item))[1]
        elif not told:
            told = True
            yield resync_frame(head=item.until, lost=item.after, at=at)
