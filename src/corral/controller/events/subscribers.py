"""In-process subscribers: each one with its own task and cursor, so that none delays another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from corral.controller.events.ring import EventRing, Wanted
from corral.controller.events.wakeup import Wakeup
from corral.domain.events import Cursor, Event

_BATCH: Final = 64
_RECHECK_SECONDS: Final = 60.0

log = structlog.get_logger("corral.events")

EventHandler = Callable[[Event], Awaitable[None]]
ResyncHandler = Callable[[Cursor], Awaitable[None]]


class Subscription:
    """One subscriber. The ring is its queue: when it falls out of it, it is told to resync.

    A handler that raises is logged and goes on with the next event: delivery is at most once.
    """

    def __init__(
        self,
        *,
        name: str,
        ring: EventRing,
        wakeup: Wakeup,
        wanted: Wanted,
        on_event: EventHandler,
        on_resync: ResyncHandler,
    ) -> None:
        self.name = name
        self._ring = ring
        self._wakeup = wakeup
        self._wanted = wanted
        self._on_event = on_event
        self._on_resync = on_resync
        self._cursor = ring.head
        self._task = asyncio.create_task(self._deliver(), name=f"events/deliver/{name}")

    def end(self) -> None:
        """Ask it to end; `close` waits until it has."""
        self._task.cancel()

    async def close(self) -> None:
        """No handler of this subscriber runs any more when this returns."""
        self.end()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _deliver(self) -> None:
        while True:
            if self._cursor.sequence == self._ring.head.sequence:
                await self._wakeup.wait(timeout=_RECHECK_SECONDS)
            elif not self._ring.reaches(self._cursor.sequence):
                self._cursor = self._ring.head
                log.warning("event.subscriber_overrun", subscriber=self.name, head=str(self._cursor))
                await self._guarded(self._on_resync(self._cursor))
            else:
                events, cursor = self._ring.events(self._cursor.sequence, self._wanted, limit=_BATCH)
                for event in events:
                    await self._guarded(self._on_event(event))
                self._cursor = cursor

    async def _guarded(self, call: Awaitable[None]) -> None:
        try:
            await call
        except Exception:
            log.exception("event.subscriber_failed", subscriber=self.name)
