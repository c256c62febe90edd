"""In-process subscribers: each one with its own task and cursor, so that none delays another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from corral.controller.events.reader import EventReader
from corral.controller.events.ring import EventSelection
from corral.controller.events.wakeup import Wakeup
from corral.domain.events import Cursor, Event, MissedEvents
from corral.system.aio.tasks import Tasks

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
        reader: EventReader,
        wakeup: Wakeup,
        wanted: EventSelection,
        on_event: EventHandler,
        on_resync: ResyncHandler,
    ) -> None:
        self._reader = reader
        self._wakeup = wakeup
        self._wanted = wanted
        self._on_event = on_event
        self._on_resync = on_resync
        self._tasks = Tasks()
        self._tasks.spawn(self._deliver(), name=f"events/deliver/{reader.name}")

    def end(self) -> None:
        """Ask it to end; `close` waits until it has."""
        self._tasks.cancel()

    async def close(self) -> None:
        """No handler of this subscriber runs any more when this returns."""
        await self._tasks.close()

    async def _deliver(self) -> None:
        while True:
            if self._reader.at_head:
                await self._wakeup.wait(timeout=_RECHECK_SECONDS)
                continue
            read = await self._reader.read(self._wanted, limit=_BATCH)
            for item in read.items:
                if isinstance(item, MissedEvents):
                    log.warning(
                        "event.subscriber_overrun", subscriber=self._reader.name, head=str(item.until)
                    )
                    await self._guarded(self._on_resync(item.until))
                else:
                    await self._guarded(self._on_event(item))
            self._reader.advance(read.until)

    async def _guarded(self, call: Awaitable[None]) -> None:
        try:
            await call
        except Exception:
            log.exception("event.subscriber_failed", subscriber=self._reader.name)
