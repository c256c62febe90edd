"""Subscriptions of the modules of a node: the types they subscribe to together, and the delivery of events to
each.

`TypeSubscription` sends the controller the difference of the types, and limits how often.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Collection
from typing import Final

import structlog

from corral.domain.events import START, Cursor, Event, MissedEvents
from corral.errors import Code, Rejected
from corral.modules.scope import Scope
from corral.modules.services.event_rules import MAX_NODE_TYPES, EventFilter
from corral.modules.services.subscription_delivery import (
    BATCH,
    SubscriptionDelivery,
    WeighedEvent,
    event_body,
    missed_body,
)
from corral.system.aio.tasks import Tasks
from corral.system.aio.token_bucket import TokenBucket
from corral.system.bounded_ring import BoundedRing
from corral.system.clock import Clock
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.module_pb2 import EventCursor, EventSubscribe, EventUnsubscribe

_log = structlog.get_logger("corral.daemon.modules")

NodeEventRing = BoundedRing[Event | MissedEvents]
"""Events that reached this node. Numbers are the ring's own: a node receives only a part of the log, so
cursors do not show how many events are between them."""


class TypeCounts:
    """Number of subscriptions of this node for each type."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()

    def __contains__(self, type: str) -> bool:
        return type in self._counts

    def check_room(self, types: Collection[str]) -> None:
        """RATE_LIMITED when the node would subscribe to more types than a controller forwards."""
        if len(self._counts.keys() | set(types)) > MAX_NODE_TYPES:
            raise Rejected(
                Code.RATE_LIMITED,
                f"the modules of this node subscribe to {MAX_NODE_TYPES} types already",
                hint="subscribe to MODULE_EVENT in place of many types of modules",
                field="types",
            )

    def all(self) -> list[str]:
        return sorted(self._counts)

    def add(self, types: Collection[str]) -> None:
        self._counts.update(types)

    def remove(self, types: Collection[str]) -> None:
        self._counts.subtract(types)
        self._counts = +self._counts


class NodeSubscription:
    """One subscription: a position in the ring and a task, and nothing that could grow. A slow one delays no
    other, and receives one `EVENTS_MISSED` when the ring has dropped events it did not read. `start`, then
    `close`."""

    def __init__(
        self,
        scope: Scope,
        number: int,
        event_filter: EventFilter,
        *,
        ring: NodeEventRing,
        cursor: Cursor,
        clock: Clock,
    ) -> None:
        """`cursor` is the node's position when the subscription was made, START for none."""
        self.event_filter = event_filter
        self._scope = scope
        self._number = number
        self._ring = ring
        self._cursor = cursor
        self._clock = clock
        self._at = ring.head
        self._handover = SubscriptionDelivery(scope, number)
        self._woken = asyncio.Event()
        self._tasks = Tasks()

    def start(self) -> None:
        name = f"modules/deliver/{self._scope.module_id}/{self._number}"
        self._tasks.spawn(self._run(), name=name)

    def wake(self) -> None:
        """Something new is in the ring."""
        self._woken.set()

    async def close(self) -> None:
        """Stop the task; nothing of it runs afterwards."""
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            before = self._at
            try:
                await self._step()
            except Exception:
                _log.exception(
                    "module_events.failed", module=self._scope.module_id, after=_text(self._cursor)
                )
                if self._at == before:  # what cannot be read is skipped, not retried for ever
                    self._at = self._ring.head

    async def _step(self) -> None:
        if self._at >= self._ring.head:
            await self._woken.wait()
        elif self._at < self._ring.floor:
            await self._catch_up()
        else:
            found, self._at = items_after(self._ring, self._at, self.event_filter, limit=BATCH)
            await self._handover.deliver([self._body(item) for item in found])

    def _body(self, item: Event | MissedEvents) -> WeighedEvent:
        self._cursor = _place(item)
        if isinstance(item, Event):
            return event_body(item)
        return missed_body(after=_text(item.after), until=_text(item.until), at=self._clock.now())

    async def _catch_up(self) -> None:
        """Skip to the head after it was too slow, with one `EVENTS_MISSED`."""
        missed = MissedEvents(after=self._cursor, until=_place(self._ring[self._ring.head]))
        _log.warning(
            "module_events.lost",
            module=self._scope.module_id,
            after=_text(missed.after),
            until=_text(missed.until),
        )
        self._at = self._ring.head
        await self._handover.deliver([self._body(missed)])


def items_after(
    ring: NodeEventRing, number: int, event_filter: EventFilter, *, limit: int
) -> tuple[list[Event | MissedEvents], int]:
    """Up to `limit` matching items after a number that is not below the ring's floor, and the last number
    that was read. Missed events concern every subscription."""
    found: list[Event | MissedEvents] = []
    for at in range(number + 1, ring.head + 1):
        item = ring[at]
        if isinstance(item, MissedEvents) or event_filter.accepts(item):
            found.append(item)
            if len(found) == limit:
                return found, at
    return found, ring.head


def _place(item: Event | MissedEvents) -> Cursor:
    return item.cursor if isinstance(item, Event) else item.until


def _text(cursor: Cursor) -> str:
    """The cursor as modules see it; empty for an unknown one."""
    return "" if cursor == START else str(cursor)


BURST: Final = 256
PER_SECOND: Final = 20.0
_LATER_SECONDS: Final = 0.1


class TypeSubscription:
    """Sends changes at once while they are few, and at a limited rate otherwise: a module that subscribes and
    unsubscribes without end must not overflow the outbox, which would end the connection of the whole
    node."""

    def __init__(
        self,
        *,
        types: Callable[[], Collection[str]],
        send: Callable[[DaemonMessage], bool],
        clock: Clock,
    ) -> None:
        self._types = types
        self._send = send
        self._sent: set[str] | None = None
        """Types that were sent; None: there is no connection."""
        self._bucket = TokenBucket(burst=BURST, per_second=PER_SECOND, monotonic=clock.monotonic)
        self._later: asyncio.TimerHandle | None = None

    def begin(self, after: EventCursor | None) -> None:
        """A connection began: send all types, from the node's position."""
        types = sorted(self._types())
        self._sent = set(types)
        if types:
            self._send(DaemonMessage(event_subscribe=EventSubscribe(event_types=types, after=after)))

    def end(self) -> None:
        """The connection ended; nothing is sent without one. Idempotent."""
        self._sent = None
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def changed(self) -> None:
        """The set of types has changed."""
        if self._sent is None or self._later is not None or set(self._types()) == self._sent:
            return
        if self._bucket.take():
            self._send_changes(self._sent)
        else:
            self._later = asyncio.get_running_loop().call_later(_LATER_SECONDS, self._again)

    def _again(self) -> None:
        self._later = None
        self.changed()

    def _send_changes(self, sent: set[str]) -> None:
        types = set(self._types())
        new, gone = sorted(types - sent), sorted(sent - types)
        self._sent = types
        if new:
            self._send(DaemonMessage(event_subscribe=EventSubscribe(event_types=new)))
        if gone:
            self._send(DaemonMessage(event_unsubscribe=EventUnsubscribe(event_types=gone)))
