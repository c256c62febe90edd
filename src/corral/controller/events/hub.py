"""The event hub: takes commits from the writer, gives events and wake-ups to everybody else.

`publish` is called once per commit, in order, right after memory has changed. It encodes each
event once, puts it into the ring and wakes those who wait. It never blocks and keeps nothing for
any reader in particular: readers have cursors, not queues.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Iterator
from typing import Final

import structlog

from corral.controller.events.reader import EventLog, EventReader
from corral.controller.events.ring import EventRing, EventSelection
from corral.controller.events.stream import EventStream
from corral.controller.events.subscribers import EventHandler, ResyncHandler, Subscription
from corral.controller.events.wakeup import Wakeup
from corral.domain.events import Cursor, EventType
from corral.errors import Code, Retryable
from corral.store.port import Commit
from corral.system.clock import Clock

_log = structlog.get_logger("corral.controller.events")

RING_EVENTS: Final = 8192
RING_BYTES: Final = 8 * 1024 * 1024


class EventHub:
    """One per term of leadership; `head` is the last event the store had when the term began."""

    def __init__(
        self,
        *,
        log: EventLog,
        clock: Clock,
        head: Cursor,
        ring_events: int = RING_EVENTS,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        self.ring: Final = EventRing(head=head, capacity=ring_events, capacity_bytes=ring_bytes)
        self.wakeup: Final = Wakeup()
        self.published: Final[collections.Counter[EventType]] = collections.Counter()
        self.skipped = 0
        """How often a reader was not given events because they could not be read or encoded."""
        self.closed = False
        self._last = head
        self._log = log
        self._clock = clock
        self._journals: dict[str, Wakeup] = {}
        self._watchers: collections.Counter[str] = collections.Counter()
        self._subscriptions: set[Subscription] = set()

    @property
    def head(self) -> Cursor:
        return self.ring.head

    def publish(self, commit: Commit) -> None:
        """Make a commit known. Synchronous, in commit order, from the loop's thread."""
        self._last = commit.events[-1].cursor if commit.events else self._last
        for event in commit.events:
            self.ring.append(event)
            self.published[event.type] += 1
        if commit.events:
            self.wakeup.wake()
        if self._journals:
            for journal in {entry.journal for entry in commit.entries}:
                if journal in self._journals:
                    self._journals[journal].wake()

    def resync(self) -> None:
        """A commit could not be made known as it should: the ring begins anew behind it, readers find what they
        lack in the log, and everybody looks."""
        if self.ring.head != self._last:
            self.ring.begin_after(self._last)
        self.wakeup.wake()
        for wakeup in self._journals.values():
            wakeup.wake()

    def reader(self, name: str, *, after: Cursor | None = None, ring_only: bool = False) -> EventReader:
        """A reader from a position, which may be anybody's, or from now on. `ring_only`: what the ring has dropped is
        missed, and the store is not asked."""
        log = None if ring_only else self._log
        return EventReader(name, ring=self.ring, log=log, after=after, on_skip=self._count_skip)

    def _count_skip(self) -> None:
        self.skipped += 1

    def follow(self, *, after: Cursor | None, wanted: EventSelection) -> EventStream:
        """A stream of frames from a position, or from now on."""
        _log.debug("events.followed", after=str(after) if after else "now", head=str(self.head))
        reader = self.reader("stream", after=after)
        return EventStream(reader, ring=self.ring, clock=self._clock, wanted=wanted)

    def subscribe(
        self,
        *,
        name: str,
        types: frozenset[EventType] | None,
        on_event: EventHandler,
        on_resync: ResyncHandler,
    ) -> Subscription:
        """Call `on_event` for each coming event of these types, in order, in a task of its own.

        A subscriber that is more than the ring behind gets `on_resync` with the cursor it goes on
        from: it must then read the state instead. It ends with `unsubscribe` or with the hub.
        """
        if self.closed:
            raise Retryable(Code.SHUTTING_DOWN, "the event hub is closed", hint="ask the leader")
        subscription = Subscription(
            reader=self.reader(name, ring_only=True),
            wakeup=self.wakeup,
            wanted=EventSelection(types=types),
            on_event=on_event,
            on_resync=on_resync,
        )
        self._subscriptions.add(subscription)
        return subscription

    async def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)
        await subscription.close()

    @contextlib.contextmanager
    def watch_journal(self, journal: str) -> Iterator[Wakeup]:
        """A wake-up for entries of this journal; it exists only as long as somebody watches."""
        wakeup = self._journals.setdefault(journal, Wakeup())
        self._watchers[journal] += 1
        try:
            yield wakeup
        finally:
            self._watchers[journal] -= 1
            if not self._watchers[journal]:
                del self._watchers[journal], self._journals[journal]

    async def close(self) -> None:
        """The term is over: readers find `closed` and end, subscribers are stopped. Idempotent."""
        self.closed = True
        self.wakeup.wake()
        for wakeup in self._journals.values():
            wakeup.wake()
        subscriptions, self._subscriptions = self._subscriptions, set()
        for subscription in subscriptions:
            subscription.end()  # before the first wait: whoever cancels us must not leave them behind
        await asyncio.gather(*(subscription.close() for subscription in subscriptions))
