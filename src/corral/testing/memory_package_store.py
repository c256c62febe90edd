"""The second adapter of `PackageStore`: records in memory, with all events."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence

import msgspec

from corral.domain.events import Draft, EventType
from corral.domain.modules.lifecycle_decisions import not_installed
from corral.domain.modules.records import PackageRecord, phase_events, uninstalled
from corral.errors import Code, Rejected, Retryable
from corral.modules.package_store import Change, StepEvent


class MemoryPackageStore:
    """Keeps `commits`, one list of events each. `fail_next` makes the store unavailable for a while; with
    `after` the step happens all the same, as when an answer gets lost."""

    def __init__(self) -> None:
        self.commits: list[list[Draft]] = []
        self._records: dict[str, PackageRecord] = {}
        self._failing = 0
        self._happens = False

    @property
    def drafts(self) -> list[Draft]:
        return [draft for commit in self.commits for draft in commit]

    def types(self, subject: str) -> list[EventType]:
        """The types of events about a subject, in order."""
        return [draft.type for draft in self.drafts if draft.subject == subject]

    def fail_next(self, steps: int, *, after: bool = False) -> None:
        self._failing, self._happens = steps, after

    def put(self, record: PackageRecord) -> None:
        """A record as another host left it."""
        self._records[record.id] = record

    def find(self, id: str) -> PackageRecord | None:
        return self._records.get(id)

    def all(self) -> list[PackageRecord]:
        return list(self._records.values())

    async def step(self, id: str, change: Change, *, also: Sequence[StepEvent] = ()) -> PackageRecord:
        await asyncio.sleep(0)
        before = self._records.get(id)
        if before is None:
            raise not_installed(id, list(self._records))
        after = change(before)
        fails = self._fails()
        if not fails or self._happens:
            self._records[id] = _stored(after)
            if after != before or also:
                self.commits.append([*phase_events(before, after), *also])
        if fails:
            raise Retryable(Code.STORE_UNAVAILABLE, "the store does not answer")
        return self._records[id]

    async def add(self, record: PackageRecord) -> PackageRecord:
        await asyncio.sleep(0)
        if record.id in self._records:
            raise Rejected(Code.ALREADY_EXISTS, f"module '{record.id}' is installed already")
        self._records[record.id] = _stored(record)
        self.commits.append(phase_events(None, record))
        return record

    async def remove(self, id: str, *, reason: str) -> None:
        await asyncio.sleep(0)
        record = self._records.pop(id, None)
        if record is not None:
            self.commits.append([uninstalled(record, reason=reason, at=dt.datetime.now(dt.UTC))])

    def _fails(self) -> bool:
        if self._failing <= 0:
            return False
        self._failing -= 1
        return True


def _stored(record: PackageRecord) -> PackageRecord:
    """The record as a store would return it: one that cannot be encoded fails here."""
    return msgspec.json.decode(msgspec.json.encode(record), type=PackageRecord)
