"""The event hub: receives each commit from the writer, and serves its events to streams and in-process
subscribers.

`publish` is called once per commit, in order, right after memory has changed. It encodes each event once,
appends it to the ring and wakes the waiting readers. It never blocks and keeps no queue for any reader:
readers have cursors. Each subscriber has its own task and cursor, so that none delays another.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import structlog

from corral.controller.events.frames import resync_frame
from corral.controller.events.reader import RETRY_SECONDS, EventLog, EventReader, ReadEvents
from corral.controller.events.ring import EventRing, EventSelection
from corral.controller.events.wakeup import Wakeup
from corral.domain.events import Cursor, Event, EventType, MissedEvents
from corral.errors import Code, CorralError, Retryable
from corral.store.port import Commit
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock

_BATCH: Final = 64
_RECHECK_SECONDS: Final = 60.0

_log = structlog.get_logger("corral.controller.events")

EventHandler = Callable[[Event], Awaitable[None]]
ResyncHandler = Callable[[Cursor], Awaitable[None]]


class HubSubscription:
    """One subscriber. The ring is its queue: when it falls out of the ring, its `on_resync` is called.

    A handler that raises is logged and continues with the next event: delivery is at most once.
    """

    def __init__(
        self,
        *,
        reader: EventReader,
        wakeup: Wakeup,
        selection: EventSelection,
        on_event: EventHandler,
        on_resync: ResyncHandler,
    ) -> None:
        self._reader = reader
        self._wakeup = wakeup
        self._selection = selection
        self._on_event = on_event
        self._on_resync = on_resync
        self._tasks = Tasks()
        self._tasks.spawn(self._deliver(), name=f"events/deliver/{reader.name}")

    def end(self) -> None:
        """Request its end; `close` waits for it."""
        self._tasks.cancel()

    async def close(self) -> None:
        """Wait until no handler of this subscriber runs any more."""
        await self._tasks.close()

    async def _deliver(self) -> None:
        while True:
            if self._reader.at_head:
                await self._wakeup.wait(timeout=_RECHECK_SECONDS)
                continue
            read = await self._reader.read(self._selection, limit=_BATCH)
            for item in read.items:
                if isinstance(item, MissedEvents):
                    _log.warning(
                        "event_subscriber.delayed", subscriber=self._reader.name, head=str(item.until)
                    )
                    await self._guarded(self._on_resync(item.until))
                else:
                    await self._guarded(self._on_event(item))
            self._reader.advance(read.until)

    async def _guarded(self, call: Awaitable[None]) -> None:
        try:
            await call
        except Exception:
            _log.exception("event_subscriber.failed", subscriber=self._reader.name)


_PAGE: Final = 256


class EventStream:
    """A stream of frames: a reader, and nothing else that could grow. Missed events are reported by one
    RESYNC_REQUIRED."""

    def __init__(
        self, reader: EventReader, *, ring: EventRing, clock: Clock, selection: EventSelection
    ) -> None:
        self._reader = reader
        self._ring = ring
        self._clock = clock
        self._selection = selection

    @property
    def cursor(self) -> Cursor:
        return self._reader.cursor

    def take(self) -> bytes | None:
        """The stream's frames from the ring, empty when there are none; None: call `page`."""
        if self._reader.at_head:
            return b""
        if not self._reader.in_ring:
            return None
        chunk = self._ring.chunk(self.cursor.sequence, self._selection)
        self._reader.advance(chunk.cursor)
        return chunk.body

    async def page(self) -> bytes:
        """The next frames from the store's log; may be empty. Raises `StoreUnavailable`."""
        try:
            read = await self._reader.read(self._selection, limit=_PAGE)
        except CorralError:
            raise
        except Exception:
            _log.exception("event_stream.failed", after=str(self.cursor))
            missed = self._reader.passed_over()
            if missed is None:
                await asyncio.sleep(RETRY_SECONDS)
                return b""
            read = ReadEvents((missed,), missed.until)
        self._reader.advance(read.until)
        return b"".join(_frames(read.items, self._selection, self._clock.now()))


def _frames(
    items: Sequence[Event | MissedEvents], selection: EventSelection, at: dt.datetime
) -> Iterator[bytes]:
    """The frames of what was read. Of several missed parts only the first is reported: a reader that loads
    the state again has all of it."""
    reported = False
    for item in items:
        if isinstance(item, Event):
            yield selection.frame(item)
        elif not reported:
            reported = True
            yield resync_frame(head=item.until, lost=item.after, at=at)


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
        """The number of times that a reader skipped events because they could not be read or encoded."""
        self.closed = False
        self._last = head
        self._log = log
        self._clock = clock
        self._journals: dict[str, Wakeup] = {}
        self._watchers: collections.Counter[str] = collections.Counter()
        self._subscriptions: set[HubSubscription] = set()

    @property
    def head(self) -> Cursor:
        return self.ring.head

    def publish(self, commit: Commit) -> None:
        """Publish the events of a commit. Synchronous, in commit order, from the loop's thread."""
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
        """After a commit that could not be published: the ring restarts behind it, readers get the missing
        events from the log, and all of them are woken."""
        if self.ring.head != self._last:
            self.ring.begin_after(self._last)
        self.wakeup.wake()
        for wakeup in self._journals.values():
            wakeup.wake()

    def reader(self, name: str, *, after: Cursor | None = None, ring_only: bool = False) -> EventReader:
        """A reader from a position, which may be of any origin, or from now on. `ring_only`: events that the
        ring has dropped are missed, and the store is not read."""
        log = None if ring_only else self._log
        return EventReader(name, ring=self.ring, log=log, after=after, on_skip=self._count_skip)

    def _count_skip(self) -> None:
        self.skipped += 1

    def follow(self, *, after: Cursor | None, selection: EventSelection) -> EventStream:
        """A stream of frames from a position, or from now on."""
        _log.debug("event_stream.opened", after=str(after) if after else "now", head=str(self.head))
        reader = self.reader("stream", after=after)
        return EventStream(reader, ring=self.ring, clock=self._clock, selection=selection)

    def subscribe(
        self,
        *,
        name: str,
        types: frozenset[EventType] | None,
        on_event: EventHandler,
        on_resync: ResyncHandler,
    ) -> HubSubscription:
        """Call `on_event` for each coming event of these types, in order, in a task of its own.

        A subscriber that is more than the ring behind gets `on_resync` with the cursor it continues from: it
        must then read the state instead. It ends with `unsubscribe` or with the hub.
        """
        if self.closed:
            raise Retryable(Code.SHUTTING_DOWN, "the event hub is closed", hint="ask the leader")
        subscription = HubSubscription(
            reader=self.reader(name, ring_only=True),
            wakeup=self.wakeup,
            selection=EventSelection(types=types),
            on_event=on_event,
            on_resync=on_resync,
        )
        self._subscriptions.add(subscription)
        return subscription

    async def unsubscribe(self, subscription: HubSubscription) -> None:
        self._subscriptions.discard(subscription)
        await subscription.close()

    @contextlib.contextmanager
    def watch_journal(self, journal: str) -> Iterator[Wakeup]:
        """A wake-up for entries of this journal; it exists only while it is watched."""
        wakeup = self._journals.setdefault(journal, Wakeup())
        self._watchers[journal] += 1
        try:
            yield wakeup
        finally:
            self._watchers[journal] -= 1
            if not self._watchers[journal]:
                del self._watchers[journal], self._journals[journal]

    async def close(self) -> None:
        """End with the term: readers find `closed` and end, subscribers are stopped. Idempotent."""
        self.closed = True
        self.wakeup.wake()
        for wakeup in self._journals.values():
            wakeup.wake()
        subscriptions, self._subscriptions = self._subscriptions, set()
        for subscription in subscriptions:
            subscription.end()  # before the first wait: a cancelled close must not leave them running
        await asyncio.gather(*(subscription.close() for subscription in subscriptions))
