"""Sources of log records: this controller's ring, or a node's journal in the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from corral.controller.events.hub import EventHub
from corral.controller.events.wakeup import Wakeup
from corral.controller.state.collections import node_log
from corral.domain.ids import NodeId
from corral.domain.records import LogRecord
from corral.store.port import Entry, ReadEngine

Numbered = tuple[int, LogRecord]
"""A record and its number; numbers grow within a source."""


class RecentLogs(Protocol):
    """The newest records of this process."""

    @property
    def last(self) -> int:
        """The number of the newest record; 0 before the first."""

    def read(self, after: int, limit: int) -> list[Numbered]:
        """Up to `limit` records with numbers above `after`, oldest first."""

    def tail(self, limit: int) -> list[Numbered]:
        """The newest `limit` records, oldest first."""

    def wake(self, after: int | None = None) -> asyncio.Future[None]:
        """Done when there is a record above `after`; the caller cancels it when it stops waiting."""


class LogWatch(Protocol):
    """Waiting for more: take a mark, read, and when nothing was there wait with that mark."""

    def mark(self) -> int: ...

    async def changed(self, mark: int, *, timeout: float) -> bool:
        """True when something came after the mark was taken, False when the time is over."""


class LogSource(Protocol):
    """One log that can be read and followed."""

    async def read(self, *, after: int, limit: int) -> Sequence[Numbered]: ...

    async def tail(self, *, before: int | None, limit: int) -> Sequence[Numbered]:
        """The newest `limit` records (below `before`), oldest first."""

    def watch(self) -> AbstractContextManager[LogWatch]: ...


class RingSource:
    """The log of this controller."""

    def __init__(self, ring: RecentLogs) -> None:
        self._ring = ring

    async def read(self, *, after: int, limit: int) -> Sequence[Numbered]:
        return self._ring.read(after, limit)

    async def tail(self, *, before: int | None, limit: int) -> Sequence[Numbered]:
        if before is None:
            return self._ring.tail(limit)
        found = self._ring.read(max(0, before - 1 - limit), limit)
        return [item for item in found if item[0] < before]  # the ring may begin after `before`

    def watch(self) -> AbstractContextManager[LogWatch]:
        return contextlib.nullcontext(_RingWatch(self._ring))


class _RingWatch:
    def __init__(self, ring: RecentLogs) -> None:
        self._ring = ring

    def mark(self) -> int:
        return self._ring.last

    async def changed(self, mark: int, *, timeout: float) -> bool:
        future = self._ring.wake(mark)
        try:
            done, _ = await asyncio.wait({future}, timeout=timeout)
        finally:
            future.cancel()
        return bool(done)


class JournalSource:
    """The log of a node, as far as it has reached the store."""

    def __init__(self, *, node_id: NodeId, reads: ReadEngine, hub: EventHub) -> None:
        self._journal = node_log(node_id)
        self._reads = reads
        self._hub = hub

    async def read(self, *, after: int, limit: int) -> Sequence[Numbered]:
        return self._decoded(await self._reads.entries(self._journal.name, after=after, limit=limit))

    async def tail(self, *, before: int | None, limit: int) -> Sequence[Numbered]:
        found = await self._reads.entries(self._journal.name, before=before, limit=limit, newest=True)
        return self._decoded(found)

    def _decoded(self, entries: Sequence[Entry]) -> list[Numbered]:
        return [(entry.number, self._journal.decode(entry.body)) for entry in entries]

    @contextlib.contextmanager
    def watch(self) -> Iterator[LogWatch]:
        with self._hub.watch_journal(self._journal.name) as wakeup:
            yield _JournalWatch(wakeup)


class _JournalWatch:
    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup

    def mark(self) -> int:
        return self._wakeup.turn

    async def changed(self, mark: int, *, timeout: float) -> bool:
        return await self._wakeup.wait(timeout=timeout, since=mark)
