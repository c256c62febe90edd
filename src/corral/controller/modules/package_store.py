"""Package store of the controller: records in the store, each step with its event in one transaction; and the
lease for upgrades.

One upgrade runs at a time here, and none on another controller meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import msgspec
import structlog

from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.collections import MODULE_CURSORS, MODULE_PACKAGES
from corral.controller.state.ledger import Ledger, Step
from corral.domain.events import Draft
from corral.domain.modules.records import PackageRecord, phase_events, uninstalled
from corral.errors import Code, Rejected, Retryable
from corral.modules.package_store import Change, StepEvent
from corral.store.port import ABSENT, Append, LeaseEngine, LeaseRow
from corral.store.store_errors import Conflict, StoreUnavailable
from corral.system import log_context
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock


class LedgerPackageStore:
    """The `PackageStore` on the ledger. A deposed leader's steps are refused by the store's fence."""

    def __init__(self, ledger: Ledger, *, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._signed: dict[str, Append] = {}
        self._requests: dict[str, str] = {}
        self._turns = KeyedLocks[str]()

    def find(self, id: str) -> PackageRecord | None:
        stored = self._ledger.state.modules.find(id)
        return stored.record if stored else None

    def all(self) -> list[PackageRecord]:
        return [stored.record for _, stored in self._ledger.state.modules.items()]

    def turn(self, id: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Hold the lock of a module, from the first read of its record: what was read is still true when it
        is changed."""
        return self._turns.hold(id)

    @contextlib.contextmanager
    def signed(self, id: str, entry: Append) -> Iterator[None]:
        """The audit entry for an operation on a module: it goes into the first commit that changes the
        module's record. When nothing changes, nothing is audited. Only for the holder of the module's `turn`:
        else a change could be audited under another actor. That commit also stores the id of the request that
        is served here."""
        self._signed[id] = entry
        self._requests[id] = log_context.bound_request()
        try:
            yield
        finally:
            self._signed.pop(id, None)
            self._requests.pop(id, None)

    async def step(self, id: str, change: Change, *, also: Sequence[StepEvent] = ()) -> PackageRecord:
        entry: Append | None = None

        def changed(stored: StoredRecord[PackageRecord]) -> tuple[PackageRecord, Sequence[Step]] | None:
            nonlocal entry
            after = change(stored.record)
            if after == stored.record and not also:
                entry = None
                return None
            entry = self._signed.get(id)
            after = self._asked_for(after) if entry else after
            return after, [*phase_events(stored.record, after), *also, *([entry] if entry else [])]

        stored = await self._ledger.revise(self._ledger.state.modules, id, changed)
        self._spent(id, entry)
        return stored.record

    async def add(self, record: PackageRecord) -> PackageRecord:
        entry = self._signed.get(record.id)
        record = self._asked_for(record)
        await self._ledger.commit(
            MODULE_PACKAGES.put(record.id, record, expect=ABSENT),
            *phase_events(None, record),
            *([entry] if entry else []),
        )
        self._spent(record.id, entry)
        return record

    async def publish(self, event: Draft) -> None:
        """An event that tells of no change."""
        await self._ledger.commit(event)

    async def remove(self, id: str, *, reason: str) -> None:
        """Remove the record, with the cursors of its durable subscriptions."""
        while (stored := self._ledger.state.modules.find(id)) is not None:
            entry = self._signed.get(id)
            try:
                await self._ledger.commit(
                    MODULE_PACKAGES.delete(id, expect=stored.revision),
                    *self._cursors(id),
                    uninstalled(stored.record, reason=reason, at=self._clock.now()),
                    *([entry] if entry else []),
                )
            except Conflict:
                continue  # another writer came first: remove what is stored now
            self._spent(id, entry)

    def _asked_for(self, record: PackageRecord) -> PackageRecord:
        return msgspec.structs.replace(record, request=self._requests.get(record.id, ""))

    def _cursors(self, id: str) -> list[Step]:
        names = [name for name, _ in self._ledger.state.module_cursors.items() if name.startswith(f"{id}/")]
        return [MODULE_CURSORS.delete(name, expect=None) for name in names]

    def _spent(self, id: str, entry: Append | None) -> None:
        if entry is not None and self._signed.get(id) is entry:
            del self._signed[id]

    def require(self, id: str) -> PackageRecord:
        """The record, or NOT_FOUND with the nearest id there is."""
        return self._ledger.state.modules.require(id).record

    def require_absent(self, id: str) -> None:
        if self.find(id) is not None:
            raise Rejected(
                Code.STORAGE_IN_USE,
                f"module '{id}' is installed and uses its storage",
                hint="uninstall it first",
            )


LEASE: Final = "lease:platform-module"
_ATTEMPTS: Final = 5
_log = structlog.get_logger("corral.controller.modules")


class UpgradeLease:
    """Call it for an `async with`. The lease in the store names the controller that upgrades.

    Only a leader upgrades. So another controller named in the row led before this one and can write no more:
    the row is taken over at once, since it would never be released.
    """

    def __init__(self, leases: LeaseEngine, *, holder: str) -> None:
        self._leases = leases
        self._holder = holder
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        """Wait for the previous upgrade. Raises `StoreUnavailable`, or CONFLICT when other writers keep
        changing the row."""
        async with self._lock:
            row = await self._take()
            try:
                yield
            finally:
                await self._release(row)

    async def _take(self) -> LeaseRow:
        for _ in range(_ATTEMPTS):
            seen = await self._leases.read_lease(LEASE)
            if seen is not None and seen.holder not in ("", self._holder):
                _log.warning("module_lease.replaced", former=seen.holder)
            row = await self._leases.take_lease(LEASE, holder=self._holder, seen=seen)
            if row is not None:
                return row
        raise Retryable(
            Code.CONFLICT,
            "another controller is upgrading a module",
            hint="try again at the leader",
            retry_after=1.0,
        )

    async def _release(self, row: LeaseRow) -> None:
        try:
            await self._leases.release_lease(row)
        except StoreUnavailable as error:
            _log.warning("module_lease_release.failed", reason=error.why)
