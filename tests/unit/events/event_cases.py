"""Events and commits by hand, and a log that must not be asked."""

from __future__ import annotations

import datetime as dt
from typing import Any

from corral.controller.events.hub import EventHub
from corral.domain.events import START, Cursor, Event, EventType
from corral.domain.ids import Epoch
from corral.store.port import Commit, Entry
from corral.system.clock import SystemClock

AT = dt.datetime(2026, 11, 15, 3, 0, tzinfo=dt.UTC)


class NoLog:
    """For what never leaves the ring."""

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        raise AssertionError(f"the log was asked for events after {after}")


def event(sequence: int, *, epoch: int = 1, subject: str = "s", **data: Any) -> Event:
    return Event(
        cursor=Cursor(epoch, sequence), type=EventType.NODE_ONLINE, subject=subject, at=AT, data=data
    )


def commit(*events: Event, journals: tuple[str, ...] = ()) -> Commit:
    entries = tuple(Entry(journal=journal, number=1, at=AT, body=b"") for journal in journals)
    return Commit(number=1, epoch=Epoch(1), at=AT, changes=(), events=events, entries=entries)


def hub(**options: Any) -> EventHub:
    return EventHub(log=NoLog(), clock=SystemClock(), head=options.pop("head", START), **options)
