"""Events on their way to one subscription of a module: in order, one delivery at a time, never lost silently.

The subscription has a cursor and a task, and nothing that could grow: the hub never waits for it. A plain one
that has fallen out of the ring is told so by one `EVENTS_MISSED` and goes on from the head. A durable one
reads the store's log first, keeps its cursor in the store and moves it only past what was confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from corral.controller.events.hub import EventHub
from corral.controller.events.reader import RETRY_SECONDS, ReadEvents
from corral.controller.events.ring import EventSelection
from corral.domain.events import Cursor, Event, MissedEvents
from corral.errors import CorralError
from corral.modules.scope import Scope
from corral.modules.services.event_names import EventFilter
from corral.modules.services.subscription_delivery import (
    BATCH,
    SubscriptionDelivery,
    WeighedEvent,
    event_body,
    missed_body,
)
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock

_LAG: Final = 1000
"""So far a stored cursor may lag behind events that were not wanted."""
_SAVE_SECONDS: Final = 0.5
_RECHECK_SECONDS: Final = 60.0
_log = structlog.get_logger("corral.controller.modules.events")

Save = Callable[[Cursor], Awaitable[None]]


class Deliveries:
    """The deliveries of one subscription. `start`, then `close`: afterwards nothing of it runs."""

    def __init__(
        self,
        *,
        scope: Scope,
        number: int,
        wanted: EventFilter,
        hub: EventHub,
        clock: Clock,
        after: Cursor | None = None,
        save: Save | None = None,
    ) -> None:
        """`after` is a stored position; `save` makes the subscription durable."""
        self.scope = scope
        self._number = number
        self._wanted = wanted
        self._coarse = EventSelection(types=wanted.log_types)
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
        """What is under way and not confirmed comes again, if the subscription is durable."""
        await self._tasks.close()
        try:
            await self._keep(force=True)
        except CorralError as error:  # then the last ones come again
            _log.warning("module.cursor_not_stored", module=self.scope.module_id, reason=str(error))

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
            except CorralError as error:  # the store; a delivery's own failures are dealt with below
                _log.warning("module.events_delayed", module=self.scope.module_id, reason=str(error))
                await asyncio.sleep(error.retry_after or 1.0)
            except Exception:
                at = str(self._reader.cursor)
                _log.exception("module.events_failed", module=self.scope.module_id, after=at)
                given_up = self._reader.passed_over()
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait(self) -> None:
        if self._reader.at_head:  # nothing came while the position was stored
            await self._hub.wakeup.wait(timeout=_RECHECK_SECONDS)

    async def _deliver(self, read: ReadEvents) -> None:
        missed = [item for item in read.items if isinstance(item, MissedEvents)]
        for item in missed:
            _log.warning(
                "module.events_missed",
                module=self.scope.module_id,
                after=str(item.after),
                until=str(item.until),
            )
        await self._handover.deliver(
            self._body(item)
            for item in read.items
            if isinstance(item, MissedEvents) or self._wanted.accepts(item)
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
