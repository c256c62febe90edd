"""Leases in SQLite. They share the writer's connection, so a take-over and a batch never overlap."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import msgspec

from corral.domain.ids import Epoch
from corral.store.port import LEADER, LeaseRow
from corral.store.sqlite.commit_engine import immediate
from corral.store.sqlite.faults import translated
from corral.store.sqlite.threads import DatabaseThread

T = TypeVar("T")


class SqliteLeases:
    """The `LeaseEngine`; compare-and-set inside one immediate transaction."""

    def __init__(self, thread: DatabaseThread) -> None:
        self._thread = thread

    async def read_lease(self, name: str) -> LeaseRow | None:
        def work(db: sqlite3.Connection) -> LeaseRow | None:
            with translated():
                return _read(db, name)

        return await self._thread.call(work)

    async def take_lease(
        self, name: str, *, holder: str, seen: LeaseRow | None, info: str = ""
    ) -> LeaseRow | None:
        def work(db: sqlite3.Connection) -> LeaseRow | None:
            if _read(db, name) != seen:
                return None
            (highest,) = db.execute(
                "SELECT max((SELECT epoch FROM leader), coalesce(max(epoch), 0)) FROM lease"
            ).fetchone()
            row = LeaseRow(name=name, holder=holder, epoch=Epoch(highest + 1), counter=1, info=info)
            _write(db, row)
            return row

        return await self._change(work)

    async def renew_lease(self, row: LeaseRow) -> LeaseRow | None:
        def work(db: sqlite3.Connection) -> LeaseRow | None:
            # The counter is not compared: the answer to an earlier renewal may have been lost.
            found = _read(db, row.name)
            if found is None or (found.holder, found.epoch) != (row.holder, row.epoch):
                return None
            renewed = msgspec.structs.replace(found, counter=found.counter + 1)
            _write(db, renewed)
            return renewed

        return await self._change(work)

    async def release_lease(self, row: LeaseRow) -> None:
        def work(db: sqlite3.Connection) -> None:
            found = _read(db, row.name)
            if found is not None and (found.holder, found.epoch) == (row.holder, row.epoch):
                _write(db, msgspec.structs.replace(found, counter=found.counter + 1, holder="", info=""))

        await self._change(work)

    async def raise_epoch(self, row: LeaseRow, *, by: int) -> LeaseRow | None:
        def work(db: sqlite3.Connection) -> LeaseRow | None:
            found = _read(db, row.name)
            if found is None or (found.holder, found.epoch) != (row.holder, row.epoch):
                return None
            raised = msgspec.structs.replace(found, counter=found.counter + 1, epoch=Epoch(found.epoch + by))
            _write(db, raised)
            return raised

        return await self._change(work)

    async def _change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def in_transaction(db: sqlite3.Connection) -> T:
            with translated(), immediate(db):
                return work(db)

        return await self._thread.call(in_transaction)


def _read(db: sqlite3.Connection, name: str) -> LeaseRow | None:
    found = db.execute("SELECT holder, epoch, counter, info FROM lease WHERE name = ?", (name,)).fetchone()
    if found is None:
        return None
    holder, epoch, counter, info = found
    return LeaseRow(name=name, holder=holder, epoch=Epoch(epoch), counter=counter, info=info)


def _write(db: sqlite3.Connection, row: LeaseRow) -> None:
    """Store the lease; the fence follows the leader's epoch, in the same transaction."""
    db.execute(
        "INSERT OR REPLACE INTO lease (name, holder, epoch, counter, info) VALUES (?, ?, ?, ?, ?)",
        (row.name, row.holder, row.epoch, row.counter, row.info),
    )
    if row.name == LEADER:
        db.execute("UPDATE leader SET epoch = ?1 WHERE epoch < ?1", (row.epoch,))
