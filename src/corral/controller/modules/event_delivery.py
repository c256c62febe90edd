"""Events on their way to one subscription of a module: in order, one delivery at a time, never lost silently.

The subscription has a cursor and a task, and nothing that could grow: the hub never waits for it. A plain one
that has fallen out of the ring is told so by one `EVENTS_MISSED` and goes on from the head. A durable one
reads the store's log first, keeps its cursor in the store and moves it only past what was confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog

from corral.controller.events.follower import EventLog
from corral.controller.events.hub import EventHub
from corral.controller.events.ring import Wanted
from corral.controller.modules.event_names import EVENTS_MISSED, EventFilter, name_of, subject_of
from corral.domain.events import Cursor, Event, EventType
from corral.errors import Code, CorralError, Retryable
from corral.modules.scope import Scope
from corral.sdk.messages import DELIVER, Delivery, EventBody, Nothing
from corral.system.clock import Clock

BATCH: Final = 32
BATCH_BYTES: Final = 1024 * 1024
LONGEST_DELIVERY: Final = 30.0
ATTEMPTS: Final = 5
"""How often a durable subscription is given the same event before it is given up, with a word in the log."""
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
        log: EventLog,
        clock: Clock,
        deadline: float,
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
        self._deadline = deadline
        self._save = save
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
        while not self._hub.closed:
            try:
                if not await self._step():
                    await self._keep(force=True)
                    await self._wait()
            except CorralError as error:  # the store; a delivery's own failures are dealt with below
                _log.warning("module.events_delayed", module=self.scope.module_id, reason=str(error))
                await asyncio.sleep(error.retry_after or 1.0)

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
            events, cursor = page, page[-1].cursor
        await self._deliver([event for event in events if self._wanted.accepts(event)])
        self.cursor = cursor
        await self._keep()
        return True

    async def _missed(self) -> bool:
        lost, head = self.cursor, self._hub.head
        told = EventBody(
            type=EVENTS_MISSED,
            subject="",
            at=self._clock.now(),
            cursor=str(head),
            data={"after": str(lost), "until": str(head)},
        )
        _log.warning("module.events_missed", module=self.scope.module_id, after=str(lost), until=str(head))
        await self._hand_over([told])
        self._recognised = True
        self.cursor = head
        await self._keep(force=True)
        return True

    async def _deliver(self, events: list[Event]) -> None:
        batch: list[EventBody] = []
        size = 0
        for event in events:
            body, weight = event_body(event)
            if batch and size + weight > BATCH_BYTES:
                await self._hand_over(batch)
                batch, size = [], 0
            batch.append(body)
            size += weight
        if batch:
            await self._hand_over(batch)

    async def _hand_over(self, batch: list[EventBody]) -> None:
        """Confirmed, or given up. A durable batch that failed comes again one by one."""
        if await self._offered(batch) or self._save is None:
            return
        for body in batch:
            for attempt in range(ATTEMPTS):
                await asyncio.sleep(min(0.1 * 2**attempt, 5.0))
                if await self._offered([body]):
                    break
            else:
                _log.error(
                    "module.event_given_up",
                    module=self.scope.module_id,
                    type=body.type,
                    cursor=body.cursor,
                    attempts=ATTEMPTS + 1,
                )

    async def _offered(self, batch: list[EventBody]) -> bool:
        """One delivery. A module that is busy is waited for: it holds up nobody but itself."""
        while True:
            await self.scope.until_serving()
            try:
                await self.scope.call(
                    f"event:{batch[0].type}",
                    DELIVER,
                    Delivery(subscription=self._number, events=tuple(batch)),
                    answer=Nothing,
                    deadline=min(LONGEST_DELIVERY, self._deadline * len(batch)),
                )
            except Retryable as error:
                if error.code is Code.MODULE_BUSY:
                    await asyncio.sleep(0.1)
                    continue
                if error.code is Code.MODULE_NOT_ACTIVE:
                    await asyncio.Event().wait()  # its scope is about to be closed, and we with it
                return self._failed(batch, error)
            except CorralError as error:
                return self._failed(batch, error)
            return True

    def _failed(self, batch: list[EventBody], error: CorralError) -> bool:
        _log.warning(
            "module.event_failed",
            module=self.scope.module_id,
            type=batch[0].type,
            events=len(batch),
            reason=str(error)[:500],
        )
        return False

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


def event_body(event: Event) -> tuple[EventBody, int]:
    """An event as modules see it, and about how large it is. One that no frame could carry comes without
    its data, and says so."""
    own = event.type is EventType.MODULE_EVENT
    data: dict[str, Any] = event.data.get("data", {}) if own else event.data
    weight = len(msgspec.msgpack.encode(data)) + 300
    if weight > BATCH_BYTES:
        data, weight = {"left_off": "the event is too large for a module"}, 400
    body = EventBody(
        type=name_of(event), subject=subject_of(event), at=event.at, cursor=str(event.cursor), data=data
    )
    return body, weight
