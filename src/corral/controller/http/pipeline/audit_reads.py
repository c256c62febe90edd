"""Reads of the audit are audited: who looked, from where and for what, before anything is shown.

Exports are recorded each. Of lists, the first one with the same filters by the same caller within a minute is: the
pages of a list, and a page that is loaded again and again, are one entry. While the store refuses writes, nothing of
the audit is shown.
"""

from __future__ import annotations

import datetime as dt
from typing import Final, Protocol

from corral.controller.http.messages.call import Caller
from corral.controller.state.ledger import Ledger, audit
from corral.store.store_errors import StoreUnavailable
from corral.system.clock import Clock

ACTION: Final = "audit.read"
SUBJECT: Final = "audit"
SAME_READ: Final = dt.timedelta(minutes=1)
MOST_REMEMBERED: Final = 1000
"""Reads that are remembered: the oldest are forgotten, and recorded again when they are repeated."""

ReadKey = tuple[str, str, tuple[str, ...]]
"""The caller, its address and the filters."""


class WriterHealth(Protocol):
    """Health of the store's writer, for readiness."""

    @property
    def healthy(self) -> bool: ...

    @property
    def reason(self) -> str:
        """Why it is not."""


class AuditReads:
    """The reads of one term."""

    def __init__(self, *, ledger: Ledger, writer: WriterHealth, clock: Clock) -> None:
        self._ledger = ledger
        self._writer = writer
        self._clock = clock
        self._recorded: dict[ReadKey, dt.datetime] = {}

    async def record_list(self, caller: Caller, *, filters: dict[str, object]) -> None:
        """Record that a list is read, once a minute for each caller and filters. STORE_UNAVAILABLE, FENCED."""
        names = ("actor", "action", "subject")
        actor = caller.actor
        key = (actor.name, actor.address, tuple(str(filters.get(name, "")) for name in names))
        now, last = self._clock.now(), self._recorded.get(key)
        if last is not None and abs(now - last) < SAME_READ:
            if not self._writer.healthy:
                raise StoreUnavailable(self._writer.reason)
            return
        await self.record(caller, after={"read": "list", **filters})
        self._recorded.pop(key, None)
        self._recorded[key] = now
        while len(self._recorded) > MOST_REMEMBERED:
            del self._recorded[next(iter(self._recorded))]

    async def record(self, caller: Caller, *, after: dict[str, object]) -> None:
        """Record a read. STORE_UNAVAILABLE, FENCED."""
        await self._ledger.commit(audit(caller.actor, ACTION, SUBJECT, after=after))
