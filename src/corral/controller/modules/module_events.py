"""Module events on the controller: subscribe, unsubscribe, publish; and the delivery to one subscription.

Events are delivered in order, one delivery at a time, and never lost silently. A subscription has a cursor
and a task, and nothing that could grow: the hub never waits for it. A plain one that has fallen out of the
ring receives one `EVENTS_MISSED` and continues from the head. A durable one reads the store's log first,
keeps its cursor in the store and moves it only past confirmed events.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from corral.controller.events.hub import EventHub
from corral.controller.events.reader import RETRY_SECONDS, ReadEvents
from corral.controller.events.ring import EventSelection
from corral.controller.state.collections import MODULE_CURSORS
from corral.controller.state.ledger import Ledger
from corral.domain.events import Cursor, Draft, Event, EventType, MissedEvents
from corral.domain.field_classes.event_data import EVENT_PERMISSIONS
from corral.domain.modules.records import ModuleCursor
from corral.errors import Code, CorralError, Rejected
from corral.modules.scope import Owned, Scope
from corral.modules.services.event_rules import EventFilter, EventPace, published_data, requested_filter
from corral.modules.services.host_operations import Operation
from corral.modules.services.subscription_delivery import (
    BATCH,
    SUBSCRIPTION,
    SubscriptionDelivery,
    WeighedEvent,
    check_room,
    event_body,
    missed_body,
)
from corral.sdk.protocol.messages import (
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Nothing,
    Publish,
    Published,
    Subscribe,
    Unsubscribe,
)
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.system.config_sections import ModuleHostSection

_LAG: Final = 1000
"""Number of events, not subscribed to, by which a stored cursor may lag."""
_SAVE_SECONDS: Final = 0.5
_RECHECK_SECONDS: Final = 60.0
_log = structlog.get_logger("corral.controller.modules")

Save = Callable[[Cursor], Awaitable[None]]


class ModuleSubscription:
    """The deliveries of one subscription. `start`, then `close`: afterwards nothing of it runs."""

    def __init__(
        self,
        *,
        scope: Scope,
        number: int,
        filter: EventFilter,
        hub: EventHub,
        clock: Clock,
        after: Cursor | None = None,
        save: Save | None = None,
    ) -> None:
        """`after` is a stored position; `save` makes the subscription durable."""
        self.scope = scope
        self._number = number
        self._filter = filter
        self._coarse = EventSelection(types=filter.log_types, unseen=withheld_types(scope))
        self._hub = hub
        self._clock = clock
        self._save = save
        self._handover = SubscriptionDelivery(scope, number, insists=save is not None)
        name = f"module/{scope.module_id}/{number}"
        self._reader = hub.reader(name, after=after, ring_only=save is None)
        self._saved = after
        self._saved_at = clock.monotonic()
        self._tasks = Tasks()

    def start(self) -> None:
        name = f"modules/deliver/{self.scope.module_id}/{self._number}"
        self._tasks.spawn(self._run(), name=name)

    async def close(self) -> None:
        """Stop the deliveries. Events under way and not confirmed are delivered again, if the subscription is
        durable."""
        await self._tasks.close()
        try:
            await self._keep(force=True)
        except CorralError as error:  # then the last events are delivered again
            _log.warning("module_cursor_write.failed", module=self.scope.module_id, reason=str(error))

    async def _run(self) -> None:
        given_up: MissedEvents | None = None
        while not self._hub.closed:
            try:
                if given_up is not None:
                    missed, given_up = given_up, None
                    await self._deliver(ReadEvents((missed,), missed.until))
                elif self._reader.at_head:
                    await self._keep(force=True)
                    await self._wait()
                else:
                    await self._deliver(await self._reader.read(self._coarse, limit=BATCH))
            except CorralError as error:  # the store; failures of a delivery are handled below
                _log.warning("module_events.retried", module=self.scope.module_id, reason=str(error))
                await asyncio.sleep(error.retry_after or 1.0)
            except Exception:
                at = str(self._reader.cursor)
                _log.exception("module_events.failed", module=self.scope.module_id, after=at)
                given_up = self._reader.passed_over()
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait(self) -> None:
        if self._reader.at_head:  # nothing was published while the position was stored
            await self._hub.wakeup.wait(timeout=_RECHECK_SECONDS)

    async def _deliver(self, read: ReadEvents) -> None:
        missed = [item for item in read.items if isinstance(item, MissedEvents)]
        for item in missed:
            _log.warning(
                "module_events.lost",
                module=self.scope.module_id,
                after=str(item.after),
                until=str(item.until),
            )
        await self._handover.deliver(
            self._body(item)
            for item in read.items
            if isinstance(item, MissedEvents) or self._filter.accepts(item)
        )
        self._reader.advance(read.until)
        await self._keep(force=bool(missed))

    def _body(self, item: Event | MissedEvents) -> WeighedEvent:
        body = self._reader.encoded(item, event_body) if isinstance(item, Event) else item
        if isinstance(body, MissedEvents):
            return missed_body(after=str(body.after), until=str(body.until), at=self._clock.now())
        return body

    async def _keep(self, *, force: bool = False) -> None:
        """Store the position of a durable one, not more often than needed."""
        cursor = self._reader.cursor
        if self._save is None or cursor == self._saved:
            return
        lag = cursor.sequence - (self._saved.sequence if self._saved else 0)
        if not force and lag < _LAG and self._clock.monotonic() - self._saved_at < _SAVE_SECONDS:
            return
        await self._save(cursor)
        self._saved = cursor
        self._saved_at = self._clock.monotonic()


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ModuleEvents:
    """The subscriptions of all modules of a term, each owned by the scope that made it."""

    def __init__(self, *, hub: EventHub, ledger: Ledger, clock: Clock, pace: EventPace | None = None) -> None:
        self._hub = hub
        self._ledger = ledger
        self._clock = clock
        self._pace = pace or EventPace(per_second=ModuleHostSection().events_per_second, clock=clock)
        self._open: dict[tuple[int, int], tuple[ModuleSubscription, Owned, str]] = {}
        self._opening: dict[tuple[int, int], tuple[Scope, str]] = {}
        """Subscriptions whose cursor is being stored: their number and name are taken from the beginning."""

    def operations(self) -> list[Operation]:
        return [
            Operation(method=SUBSCRIBE, body=Subscribe, handler=self._subscribe),
            Operation(method=UNSUBSCRIBE, body=Unsubscribe, handler=self._unsubscribe),
            Operation(method=PUBLISH, body=Publish, handler=self._publish),
        ]

    async def _subscribe(self, scope: Scope, asked: Subscribe) -> Nothing:
        """Subscribe from now on; a durable one from where its name stopped last. UNKNOWN_EVENT_TYPE,
        FORBIDDEN."""
        filter = requested_filter(asked.types, asked.subjects, scope.manifest.events)
        key = (id(scope), asked.subscription)
        cursor_id = self._check(scope, asked)
        self._opening[key] = scope, cursor_id
        try:
            after, save = await self._position(cursor_id, key) if cursor_id else (None, None)
        finally:
            del self._opening[key]
        deliveries = ModuleSubscription(
            scope=scope,
            number=asked.subscription,
            filter=filter,
            hub=self._hub,
            clock=self._clock,
            after=after,
            save=save,
        )
        if scope.closed:  # while the cursor was being stored
            raise Rejected(Code.NOT_RUNNING, f"module '{scope.module_id}' is not running any more")
        name = asked.durable or ",".join(sorted(asked.types)[:3]) or "*"
        owned = scope.own(SUBSCRIPTION, name, lambda: self._close(key))
        self._open[key] = deliveries, owned, cursor_id
        deliveries.start()
        return Nothing()

    def _check(self, scope: Scope, asked: Subscribe) -> str:
        """The id of the subscription's cursor, empty for a plain one."""
        check_room(scope, asked.subscription, {*self._open, *self._opening})
        withheld = sorted(withheld_types(scope).intersection(asked.types))
        if withheld:
            raise Rejected(
                Code.FORBIDDEN,
                f"events of type {', '.join(withheld)} need a permission, and the manifest does not name them",
                hint="list them in the manifest, under events.subscribes",
                field="types",
            )
        if not asked.durable:
            return ""
        if not _NAME.fullmatch(asked.durable):
            raise Rejected(
                Code.INVALID_FIELD,
                f"'{asked.durable[:80]}' cannot name a durable subscription",
                hint="use letters, digits, '.', '_' and '-', at most 100",
                field="durable",
            )
        cursor_id = cursor_key(scope.module_id, asked.durable)
        if self._in_use(cursor_id, scope):
            raise Rejected(
                Code.ALREADY_EXISTS,
                f"the durable subscription '{asked.durable}' is in use",
                hint="give each a name of its own",
                field="durable",
            )
        return cursor_id

    def _in_use(self, cursor_id: str, scope: Scope) -> bool:
        """Is the name in use? A version that is being replaced does not count: its successor may have the
        name."""
        holders = [(deliveries.scope, taken) for deliveries, _, taken in self._open.values()]
        return any(
            taken == cursor_id and (holder is scope or holder.serving)
            for holder, taken in (*holders, *self._opening.values())
        )

    async def _position(self, cursor_id: str, key: tuple[int, int]) -> tuple[Cursor, Save]:
        """The position where it stopped last, else the head, which is stored first, so that nothing after it
        is lost."""

        async def save(cursor: Cursor) -> None:
            holders = [held for held, (_, _, taken) in self._open.items() if taken == cursor_id]
            if holders and holders[-1] != key:
                return  # a successor has the name: its confirmed position must not be undone
            record = ModuleCursor(cursor=str(cursor), at=self._clock.now())
            await self._ledger.commit(MODULE_CURSORS.put(cursor_id, record, expect=None))

        stored = self._ledger.state.module_cursors.find(cursor_id)
        if stored is not None:
            return Cursor.parse(stored.record.cursor), save
        head = self._hub.head
        await save(head)
        return head, save

    async def _unsubscribe(self, scope: Scope, asked: Unsubscribe) -> Nothing:
        """Unsubscribe; no effect when there is none. The cursor of a durable one is removed, too, unless a
        successor of the module uses it by now."""
        key = (id(scope), asked.subscription)
        found = self._open.get(key)
        if found is not None:
            found[1].release()
            await self._close(key)
            if found[2] and not any(taken == found[2] for _, _, taken in self._open.values()):
                await self._ledger.commit(MODULE_CURSORS.delete(found[2], expect=None))
        return Nothing()

    async def _close(self, key: tuple[int, int]) -> None:
        found = self._open.get(key)
        if found is None:
            return
        try:
            await found[0].close()
        finally:
            self._open.pop(key, None)

    async def _publish(self, scope: Scope, asked: Publish) -> Published:
        """Append to the log as `MODULE_EVENT`; returns when it is stored. UNKNOWN_EVENT_TYPE,
        INVALID_FIELD."""
        encoded = published_data(asked, scope.manifest.events)
        await self._pace.turn(scope.module_id, len(encoded))
        data = {
            "module": scope.module_id,
            "type": asked.type,
            "subject": asked.subject,
            "data": asked.data,
        }
        subject = f"{scope.module_id}/{asked.type}"
        commit = await self._ledger.commit(Draft(type=EventType.MODULE_EVENT, subject=subject, data=data))
        return Published(cursor=str(commit.events[0].cursor))


def withheld_types(scope: Scope) -> frozenset[EventType]:
    """The types that a module does not get: those that need a permission, unless its manifest names them. Whoever installs
    it sees that."""
    return frozenset(EVENT_PERMISSIONS).difference(scope.manifest.events.subscribes)


def cursor_key(module_id: str, durable: str) -> str:
    return f"{module_id}/{durable}"
