"""Retention: how much history is kept, and dropping the rest in small steps."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from corral.domain.audit_chain import ChainedEntry
from corral.domain.ids import Epoch
from corral.errors import CorralError
from corral.store.port import CHAINED_JOURNAL, EventBounds, Head, Store
from corral.store.store_errors import Fenced
from corral.system.clock import Clock, SystemClock

log = structlog.get_logger("corral.store")

_STEP: Final = 500
_AT_ONCE: Final = dt.timedelta(days=1)
_BREATH: Final = 0.001
"""Pause between two batches, for the writer and for readers."""


class ChainRetention(msgspec.Struct, frozen=True, kw_only=True):
    """How much of CHAINED_JOURNAL is kept. A hundredth of the rows, or those of a day, go at once: each time leaves a record."""

    rows: int
    age: dt.timedelta
    record: Callable[[ChainedEntry, int], Awaitable[object]]
    """Stores in the journal itself up to which entry it goes, and how many do, before they go."""


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to keep. Tombstones are kept for so many commits: that is how far a follower may lag."""

    events: int = 100_000
    module_events: int = 20_000
    """Of these, at most so many that modules published, with at most so many bytes of data."""
    module_event_bytes: int = 67_108_864
    tombstone_commits: int = 100_000
    journals: Mapping[str, int] = {}
    other_journals: int = 100_000
    chain: ChainRetention | None = None
    """Of CHAINED_JOURNAL; None: as of other journals."""

    def tombstones_through(self, head: Head) -> int:
        return max(0, head.commit - self.tombstone_commits)

    def journal_rows(self, journal: str) -> int:
        """The limit of the longest matching prefix; prefixes listed in `journals`."""
        matching = [prefix for prefix in self.journals if journal.startswith(prefix)]
        return self.journals[max(matching, key=len)] if matching else self.other_journals

    def excess(self, journals: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, int]]:
        """Each journal that is too long, and by how many rows; `journals` as a store lists them."""
        for journal, (_oldest, rows) in sorted(journals.items()):
            of_chain = journal == CHAINED_JOURNAL and self.chain is not None
            if rows > self.journal_rows(journal) and not of_chain:
                yield journal, rows - self.journal_rows(journal)


class Retention:
    """Applies a policy under the leader's epoch. Any number of rows, a few hundred at a time."""

    def __init__(
        self, store: Store, *, epoch: Epoch, policy: RetentionPolicy, clock: Clock | None = None
    ) -> None:
        self._reads = store.reads
        self._commits = store.commits
        self._epoch = epoch
        self._policy = policy
        self._clock = clock or SystemClock()

    async def run(self, *, every: float) -> None:
        """Apply the policy for as long as this epoch leads; an unavailable store is retried."""
        while True:
            try:
                dropped = await self.apply()
            except Fenced:
                return
            except CorralError as error:
                log.warning("retention.failed", why=str(error))
            else:
                if dropped:
                    log.info("retention.finished", rows=dropped)
            await asyncio.sleep(every)

    async def apply(self) -> int:
        """Drop everything the policy does not keep; returns how many rows. Raises `Fenced`."""
        head = await self._reads.head()
        dropped = await self._drop_module_events()
        dropped += await self._trim(
            events=(await self._bounds()).through, tombstones=self._policy.tombstones_through(head)
        )
        journals = await self._reads.journals()
        for journal, rows in self._policy.excess(journals):
            dropped += await self._shorten(journal, rows)
        if self._policy.chain is not None and CHAINED_JOURNAL in journals:
            dropped += await self._shorten_chain(self._policy.chain, journals[CHAINED_JOURNAL][1])
        return dropped

    async def _bounds(self) -> EventBounds:
        return await self._reads.event_bounds(
            events=self._policy.events,
            of_modules=self._policy.module_events,
            module_bytes=self._policy.module_event_bytes,
        )

    async def _drop_module_events(self) -> int:
        """Dropped first, so that events of modules beyond their limit push no other history out."""
        through, dropped = (await self._bounds()).module_events_through, 0
        while step := await self._commits.drop_module_events(epoch=self._epoch, through=through):
            dropped += step
            await asyncio.sleep(_BREATH)
        return dropped

    async def _shorten(self, journal: str, rows: int) -> int:
        """Drop so many of a journal's oldest entries. Its numbers have holes, so they are looked up."""
        dropped = 0
        while dropped < rows:
            oldest = await self._reads.entries(journal, limit=min(_STEP, rows - dropped))
            if not oldest:
                break
            dropped += await self._trim(journals=[(journal, oldest[-1].number)])
        return dropped

    async def _shorten_chain(self, chain: ChainRetention, rows: int) -> int:
        """Record which entries of the chained journal go, then drop them; after a crash in between the rest is recorded again.
        It keeps no gaps: those that are too old end with the first one that is not."""
        too_many = rows - chain.rows + max(1, chain.rows // 100) if rows > chain.rows else 0
        since = self._clock.now() - chain.age
        page = await self._reads.chained_entries(limit=_STEP)
        if not page or (not too_many and page[0].at >= since - _AT_ONCE):
            return 0
        last, count = page[0], 0
        while page:
            for entry in page:
                if count >= too_many and entry.at >= since:
                    break
                last, count = entry, count + 1
            whole = last is page[-1]
            page = await self._reads.chained_entries(after=last.number, limit=_STEP) if whole else []
        await chain.record(last, count)
        return await self._trim(journals=[(CHAINED_JOURNAL, last.number)])

    async def _trim(
        self, *, events: int = 0, tombstones: int = 0, journals: Sequence[tuple[str, int]] = ()
    ) -> int:
        dropped = 0
        while step := await self._commits.trim(
            epoch=self._epoch, events_through=events, tombstones_through=tombstones, journals=journals
        ):
            dropped += step
            await asyncio.sleep(_BREATH)
        return dropped
