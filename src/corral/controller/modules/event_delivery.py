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

from corral.controller.events.follower import EventLog, first_hole
from corral.controller.events.hub import EventHub
from corral.controller.events.ring import Wanted
from corral.domain.events import Cursor
from corral.errors import Code, CorralError
from corral.modules.event_handover import BATCH, Handover, event_body, missed_body
from corral.modules.event_names import EventFilter
from corral.modules.scope import Scope
from corral.system.clock import Clock

_LAG: Final = 1000
"""So far a stored cursor may lag behind events that were not wanted."""
_SAVE_SECONDS: Final = 0.5
_RECHECK_SECONDS: Final = 60.0
_ATTEMPTS: Final = 3
"""At what cannot be read for a reason of ours, before it is passed over with an `EVENTS_MISSED`."""
_RETRY_SECONDS: Final = 0.2
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
        log: EventLog,
        clock: Clock,
        after: Cursor | None = None,
        save: Save | None = None,
    ) -> None:
        """`after` is a stored position; `save` makes the subscription durable."""
        self.scope = scope
        self._number = number
        self._wanted = wanted
        self._coarse = Wanted(types=wanted.log_types)
        self._hub = hub
        self._log = log
        self._clock = clock
        self._save = save
        self._handover = Handover(scope, number, insists=save is not None)
        self.cursor = hub.head if after is None else after
        self._saved = after
        self._saved_at = clock.monotonic()
        self._recognised = after is None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        name = f"modules/deliver/{self.scope.module_id}/{self._number}"
        self._task = asyncio.create_task(self._run(), name=name)

    async def close(self) -> None:
        """What is under way and not confirmed comes again, if the subscription is durable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        try:
            await self._keep(force=True)
        except CorralError as error:  # then the last ones come again
            _log.warning("module.cursor_not_stored", module=self.scope.module_id, reason=str(error))

    async def _run(self) -> None:
        failures = 0
        while not self._hub.closed:
            try:
                if failures >= _ATTEMPTS:
                    await self._missed()
                elif not await self._step():
                    await self._keep(force=True)
                    await self._wait()
                failures = 0
            except CorralError as error:  # the store; a delivery's own failures are dealt with below
                _log.warning("module.events_delayed", module=self.scope.module_id, reason=str(error))
                await asyncio.sleep(error.retry_after or 1.0)
            except Exception:  # what comes next cannot be read: passed over with a marker, not tried for ever
                failures += 1
                _log.exception("module.events_failed", module=self.scope.module_id, after=str(self.cursor))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _wait(self) -> None:
        if self.cursor.sequence >= self._hub.head.sequence:
            await self._hub.wakeup.wait(timeout=_RECHECK_SECONDS)

    async def _step(self) -> bool:
        """Deliver the next events, if there are any; False when the end of the log is reached."""
        ring = self._hub.ring
        if self._recognised and self.cursor.sequence >= ring.head.sequence:
            return False
        if self._recognised and ring.reaches(self.cursor.sequence):
            events, cursor = ring.events(self.cursor.sequence, self._coarse, limit=BATCH)
        elif self._save is None:
            return await self._missed()
        else:
            try:
                page = await self._log.events(self.cursor, limit=BATCH)
            except CorralError as error:
                if error.code is not Code.RESYNC_REQUIRED:
                    raise
                return await self._missed()
            self._recognised = True
            if not page:
                return self.cursor.sequence < ring.floor.sequence and await self._missed()
            if self._coarse.of_modules:
                hole = first_hole(self.cursor, page)
                if not hole:  # older events of modules made room
                    return await self._missed(Cursor(page[0].cursor.epoch, page[0].cursor.sequence - 1))
                page = page[:hole]
            events, cursor = page, page[-1].cursor
        await self._handover.deliver(event_body(event) for event in events if self._wanted.accepts(event))
        self.cursor = cursor
        await self._keep()
        return True

    async def _missed(self, until: Cursor | None = None) -> bool:
        lost, head = self.cursor, until or self._hub.head
        _log.warning("module.events_missed", module=self.scope.module_id, after=str(lost), until=str(head))
        await self._handover.deliver([missed_body(after=str(lost), until=str(head), at=self._clock.now())])
        self._recognised = True
        self.cursor = head
        await self._keep(force=True)
        return True

    async def _keep(self, *, force: bool = False) -> None:
        """Store the position of a durable one, not more often than needed."""
        if self._save is None or not self._recognised or self.cursor == self._saved:
            return
        lag = self.cursor.sequence - (self._saved.sequence if self._saved else 0)
        if not force and lag < _LAG and self._clock.monotonic() - self._saved_at < _SAVE_SECONDS:
            return
        cursor = self.cursor
        await self._save(cursor)
        self._saved = cursor
        self._saved_at = self._clock.monotonic()
