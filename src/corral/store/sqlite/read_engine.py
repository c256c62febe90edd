"""Reads in SQLite: each result comes from one snapshot of the read connection."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
import structlog

from corral.domain.audit_chain import ChainedEntry, ChainState
from corral.domain.events import Cursor, Event
from corral.store.port import CHAINED_JOURNAL, Change, Document, Entry, EventBounds, Head, IndexRow, Snapshot
from corral.store.rows import (
    bounds_of,
    chain_of,
    chained_entry_of,
    change_of,
    check_commit,
    check_cursor,
    document_of,
    event_of,
    head_of,
    index_row_of,
)
from corral.store.sqlite.faults import translated
from corral.store.sqlite.stamps import from_microseconds
from corral.store.sqlite.threads import DatabaseThread
from corral.store.store_errors import StorageFailed

T = TypeVar("T")
_log: Final = structlog.get_logger("corral.store")


def read_head(db: sqlite3.Connection) -> Head:
    row = db.execute(
        """SELECT commit_number, sequence, event_epoch, entry, batch, (SELECT epoch FROM leader)
        FROM head"""
    ).fetchone()
    return head_of(row)


def read_chain(db: sqlite3.Connection) -> ChainState:
    return chain_of(
        db.execute("SELECT first, number, hash, removed_number, removed_hash FROM chain").fetchone()
    )


class SqliteReads:
    """The `ReadEngine` of the read connection."""

    def __init__(self, thread: DatabaseThread) -> None:
        self._thread = thread
        self._damage = ""
        """The damage that was logged last."""

    async def head(self) -> Head:
        return await self._read(read_head)

    async def snapshot(self, collections: Sequence[str] | None = None) -> Snapshot:
        def work(db: sqlite3.Connection) -> Snapshot:
            where, values = "", tuple(collections or ())
            if collections is not None:
                where = f"AND collection IN ({','.join('?' * len(collections))})"
            rows = db.execute(
                f"""SELECT collection, id, revision, body FROM document
                WHERE body IS NOT NULL {where} ORDER BY collection, id""",  # noqa: S608 - placeholders
                values,
            )
            return Snapshot(head=read_head(db), documents=tuple(map(document_of, rows)))

        return await self._read(work)

    async def get(self, collection: str, id: str) -> Document | None:
        def work(db: sqlite3.Connection) -> Document | None:
            row = db.execute(
                """SELECT collection, id, revision, body FROM document
                WHERE collection = ? AND id = ? AND body IS NOT NULL""",
                (collection, id),
            ).fetchone()
            return None if row is None else document_of(row)

        return await self._read(work)

    async def get_many(self, collection: str, ids: Sequence[str]) -> list[Document]:
        def work(db: sqlite3.Connection) -> list[Document]:
            rows = db.execute(
                """SELECT collection, id, revision, body FROM document
                WHERE collection = ? AND id IN (SELECT value FROM json_each(?)) AND body IS NOT NULL""",
                (collection, msgspec.json.encode(ids).decode()),
            )
            return list(map(document_of, rows))

        return await self._read(work)

    async def scan(
        self,
        collection: str,
        *,
        after: str = "",
        before: str | None = None,
        limit: int,
        size: int | None = None,
        newest: bool = False,
    ) -> list[Document]:
        def work(db: sqlite3.Connection) -> list[Document]:
            # Written so that both bounds limit the search in the index.
            upper = "" if before is None else "AND id < ?4"
            rows = db.execute(
                f"""SELECT collection, id, revision, body FROM document
                WHERE collection = ?1 AND id > ?2 {upper} AND body IS NOT NULL
                ORDER BY id {"DESC" if newest else "ASC"} LIMIT ?3""",  # noqa: S608 - fixed words
                (collection, after, limit) if before is None else (collection, after, limit, before),
            )
            return list(map(document_of, _filling(rows, size)))

        return await self._read(work)

    async def scan_index(
        self,
        index: str,
        collection: str,
        *,
        after: str = "",
        before: str | None = None,
        limit: int,
        size: int | None = None,
        newest: bool = False,
    ) -> list[IndexRow]:
        def work(db: sqlite3.Connection) -> list[IndexRow]:
            upper = "" if before is None else "AND entry.id < ?5"
            values = (index, after, limit, collection)
            rows = db.execute(
                f"""SELECT entry.collection, entry.id, entry.revision, entry.body,
                    document.collection, document.id, document.revision, document.body
                FROM document AS entry
                LEFT JOIN document ON document.collection = ?4 AND document.body IS NOT NULL
                    AND document.id = json_extract(CAST(entry.body AS TEXT), '$[0]')
                WHERE entry.collection = ?1 AND entry.id > ?2 {upper} AND entry.body IS NOT NULL
                ORDER BY entry.id {"DESC" if newest else "ASC"} LIMIT ?3""",  # noqa: S608 - fixed words
                values if before is None else (*values, before),
            )
            return list(map(index_row_of, _filling(rows, size)))

        return await self._read(work)

    async def changes(self, after: int, *, limit: int) -> list[Change]:
        def work(db: sqlite3.Connection) -> list[Change]:
            trimmed, last = db.execute(
                "SELECT tombstone, (SELECT commit_number FROM head) FROM trimmed"
            ).fetchone()
            check_commit(after, trimmed=trimmed, last=last)
            if after == last:
                return []  # the result for a follower that is up to date, without a scan
            rows = db.execute(
                """SELECT collection, id, revision, body FROM document
                WHERE revision > ?1 AND revision <= coalesce(
                    (SELECT revision FROM document WHERE revision > ?1
                     ORDER BY revision LIMIT 1 OFFSET ?2 - 1), ?3)
                ORDER BY revision, collection, id""",
                (after, limit, last),
            )
            return list(map(change_of, rows))

        return await self._read(work)

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        def work(db: sqlite3.Connection) -> list[Event]:
            trimmed, trimmed_epoch, last, before, behind = db.execute(
                """SELECT sequence, event_epoch, (SELECT sequence FROM head),
                    (SELECT epoch FROM event WHERE sequence <= ?1 ORDER BY sequence DESC LIMIT 1),
                    (SELECT epoch FROM event WHERE sequence >= ?1 ORDER BY sequence LIMIT 1) FROM trimmed""",
                (after.sequence,),
            ).fetchone()
            oldest = Cursor(trimmed_epoch, trimmed)
            check_cursor(after, trimmed=oldest, last=last, epoch_before=before, epoch_behind=behind)
            rows = db.execute(
                """SELECT sequence, epoch, type, subject, at, data FROM event
                WHERE sequence > ? ORDER BY sequence LIMIT ?""",
                (after.sequence, limit),
            )
            return [event_of(row, time=from_microseconds) for row in rows]

        return await self._read(work)

    async def cursor_at(self, sequence: int) -> Cursor:
        def work(db: sqlite3.Connection) -> Cursor:
            trimmed, trimmed_epoch, last = db.execute(
                "SELECT t.sequence, t.event_epoch, h.sequence FROM trimmed t, head h"
            ).fetchone()
            place = min(max(sequence, trimmed), last)
            if place == trimmed:
                return Cursor(trimmed_epoch, trimmed)
            found = db.execute(
                "SELECT epoch FROM event WHERE sequence <= ? ORDER BY sequence DESC LIMIT 1", (place,)
            ).fetchone()
            return Cursor(found[0] if found else trimmed_epoch, place)

        return await self._read(work)

    async def event_bounds(self, *, events: int, of_modules: int, module_bytes: int) -> EventBounds:
        def work(db: sqlite3.Connection) -> EventBounds:
            row = db.execute(
                """SELECT
                (SELECT sequence FROM event ORDER BY sequence DESC LIMIT 1 OFFSET ?1),
                (SELECT sequence FROM event WHERE type = 'MODULE_EVENT'
                    ORDER BY sequence DESC LIMIT 1 OFFSET ?2),
                (SELECT max(sequence) FROM (
                    SELECT sequence, sum(length(data)) OVER (ORDER BY sequence DESC) AS held
                    FROM event WHERE type = 'MODULE_EVENT') WHERE held > ?3)""",
                (events, of_modules, module_bytes),
            ).fetchone()
            return bounds_of(row)

        return await self._read(work)

    async def entries(
        self,
        journal: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int,
        newest: bool = False,
        prefix: bool = False,
    ) -> list[Entry]:
        named = "journal >= ?1 AND substr(journal, 1, length(?1)) = ?1" if prefix else "journal = ?1"

        def work(db: sqlite3.Connection) -> list[Entry]:
            rows = db.execute(
                f"""SELECT journal, number, at, body FROM entry
                WHERE {named} AND number > ?2 AND (?3 IS NULL OR number < ?3)
                ORDER BY number {"DESC" if newest else "ASC"} LIMIT ?4""",  # noqa: S608 - our own words
                (journal, after, before, limit),
            )
            found = [Entry(journal=j, number=n, at=from_microseconds(a), body=b) for j, n, a, b in rows]
            return found[::-1] if newest else found

        return await self._read(work)

    async def chain(self) -> ChainState:
        return await self._read(read_chain)

    async def chained_entries(
        self, *, after: int = 0, before: int | None = None, limit: int
    ) -> list[ChainedEntry]:
        def work(db: sqlite3.Connection) -> list[ChainedEntry]:
            rows = db.execute(
                """SELECT entry.number, at, body, previous, hash FROM entry
                LEFT JOIN chain_link ON chain_link.number = entry.number
                WHERE journal = ?1 AND entry.number > ?2 AND (?3 IS NULL OR entry.number < ?3)
                ORDER BY entry.number LIMIT ?4""",
                (CHAINED_JOURNAL, after, before, limit),
            )
            return [chained_entry_of(row, time=from_microseconds) for row in rows]

        return await self._read(work)

    async def journals(self, prefix: str = "") -> dict[str, tuple[int, int]]:
        def work(db: sqlite3.Connection) -> dict[str, tuple[int, int]]:
            rows = db.execute(
                """SELECT journal, min(number), count(*) FROM entry
                WHERE journal >= ?1 AND substr(journal, 1, length(?1)) = ?1 GROUP BY journal""",
                (prefix,),
            )
            return {journal: (oldest, count) for journal, oldest, count in rows}

        return await self._read(work)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def in_snapshot(db: sqlite3.Connection) -> T:
            with translated(), _snapshot(db):
                return work(db)

        try:
            return await self._thread.call(in_snapshot)
        except StorageFailed as error:
            if self._damage != str(error):
                self._damage = str(error)
                _log.critical("store_read.failed", reason=self._damage, hint=error.hint)
            raise


@contextlib.contextmanager
def _snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Everything read inside is as of one commit."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


def _filling(rows: Iterable[Any], size: int | None) -> Iterator[Any]:
    """The rows up to the one whose body, which is the last column, fills so many bytes."""
    held = 0
    for row in rows:
        yield row
        held += len(row[-1] or b"")
        if size is not None and held >= size:
            return
