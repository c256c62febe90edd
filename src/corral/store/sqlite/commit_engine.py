"""Batches in SQLite: one immediate transaction that checks the fence, compares, and writes; and the removal
of old rows, a few hundred at a time, so that the write lock is never held long.

Many rows go into one statement. `executemany` steps once per row, and the binding releases the interpreter
lock at each step: with a busy event loop every single row may then wait milliseconds to get it back. A
statement with 64 rows releases it once. Sizes are powers of two, so that a handful of statements stays
prepared.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from corral.domain.audit_chain import GENESIS, entry_hash
from corral.domain.ids import Epoch
from corral.store.port import CHAINED_JOURNAL, BatchOutcome, Head, Put, Refusal, Transaction
from corral.store.rows import decode_outcome, encode_outcome, outcome_of
from corral.store.sqlite.faults import translate, translated
from corral.store.sqlite.read_engine import read_chain, read_head
from corral.store.sqlite.stamps import from_microseconds, to_microseconds
from corral.store.sqlite.threads import DatabaseThread
from corral.store.store_errors import Fenced, StorageFailed, StoreUnavailable

_LARGEST: Final = 64
"""64 rows of up to 15 values stay below 999, the fewest parameters any SQLite allows."""


class ManyRows:
    """A statement around `VALUES (...), (...)`: `head` before the rows, `tail` after them."""

    def __init__(self, head: str, *, width: int, tail: str) -> None:
        row = "(" + ",".join("?" * width) + ")"
        self._sql = functools.cache(lambda size: f"{head} VALUES {','.join([row] * size)} {tail}")

    def run(self, db: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Execute over all rows; yields the rows that the statements return. Must be consumed."""
        start = 0
        while start < len(rows):
            size = min(_LARGEST, 1 << ((len(rows) - start).bit_length() - 1))
            values = tuple(itertools.chain.from_iterable(rows[start : start + size]))
            yield from db.execute(self._sql(size), values)
            start += size

    def store(self, db: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Execute over all rows for their effect."""
        for _ in self.run(db, rows):
            pass


_ENCODE: Final = msgspec.json.Encoder().encode

_MISMATCHES: Final = ManyRows(
    "WITH wanted (place, collection, id, expect) AS (",
    width=4,
    tail=""")
    SELECT wanted.place, wanted.collection, wanted.id, wanted.expect, coalesce(document.revision, 0)
    FROM wanted LEFT JOIN document
        ON document.collection = wanted.collection AND document.id = wanted.id
        AND document.body IS NOT NULL
    WHERE coalesce(document.revision, 0) <> wanted.expect""",
)
_DOCUMENTS: Final = ManyRows(
    "INSERT INTO document (collection, id, revision, body)",
    width=4,
    tail="""ON CONFLICT (collection, id)
    DO UPDATE SET revision = excluded.revision, body = excluded.body""",
)
_EVENTS: Final = ManyRows("INSERT INTO event (sequence, epoch, type, subject, at, data)", width=6, tail="")
_ENTRIES: Final = ManyRows("INSERT INTO entry (number, journal, at, body)", width=4, tail="")
_LINKS: Final = ManyRows("INSERT INTO chain_link (number, previous, hash)", width=3, tail="")


class SqliteCommits:
    """The `CommitEngine` of the writer's connection."""

    def __init__(self, thread: DatabaseThread) -> None:
        self._thread = thread

    async def commit_batch(
        self, *, epoch: Epoch, batch: str, at: dt.datetime, transactions: Sequence[Transaction]
    ) -> BatchOutcome:
        return await self._thread.call(
            functools.partial(
                _commit, epoch=epoch, batch=batch, at=to_microseconds(at), transactions=transactions
            )
        )

    async def resolve_batch(self, batch: str, *, epoch: Epoch) -> BatchOutcome | None:
        return await self._thread.call(functools.partial(_resolve, batch=batch, epoch=epoch))

    async def trim(
        self,
        *,
        epoch: Epoch,
        events_through: int,
        tombstones_through: int,
        journals: Sequence[tuple[str, int]],
    ) -> int:
        def work(db: sqlite3.Connection) -> int:
            with translated(), immediate(db):
                check_fence(db, epoch)
                return trim(db, events_through, tombstones_through, journals)

        return await self._thread.call(work)

    async def drop_module_events(self, *, epoch: Epoch, through: int) -> int:
        def work(db: sqlite3.Connection) -> int:
            with translated(), immediate(db):
                check_fence(db, epoch)
                return drop_module_events(db, through)

        return await self._thread.call(work)


@contextlib.contextmanager
def immediate(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the write lock from its start; rolled back on any error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself after some errors, a full disk for one.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def check_fence(db: sqlite3.Connection, epoch: Epoch) -> Head:
    """The head, if this epoch may still write."""
    head = read_head(db)
    if head.epoch != epoch:
        raise Fenced(epoch, head.epoch)
    return head


def _commit(
    db: sqlite3.Connection, *, epoch: Epoch, batch: str, at: int, transactions: Sequence[Transaction]
) -> BatchOutcome:
    try:
        with immediate(db):
            before = check_fence(db, epoch)
            outcome = outcome_of(
                before=before, transactions=len(transactions), refused=_refusals(db, transactions)
            )
            _write(db, outcome, transactions, batch=batch, epoch=epoch, at=at)
        return outcome
    except sqlite3.Error as error:
        return _outcome_after(db, error, batch=batch, epoch=epoch)


def _outcome_after(db: sqlite3.Connection, error: sqlite3.Error, *, batch: str, epoch: Epoch) -> BatchOutcome:
    """After an error the head row decides: the batch is stored if and only if the row names it."""
    fault = translate(error)
    if isinstance(fault, StorageFailed):
        raise fault from error
    try:
        stored = _resolve(db, batch=batch, epoch=epoch)
    except StoreUnavailable:
        raise StoreUnavailable(fault.why, in_doubt=True) from error
    if stored is None:
        raise fault from error
    return stored


def _resolve(db: sqlite3.Connection, *, batch: str, epoch: Epoch) -> BatchOutcome | None:
    with translated():
        last, outcome, fence = db.execute(
            "SELECT batch, outcome, (SELECT epoch FROM leader) FROM head"
        ).fetchone()
    if last == batch:
        return decode_outcome(outcome)
    if fence != epoch:
        raise Fenced(epoch, fence)
    return None


def _refusals(db: sqlite3.Connection, transactions: Sequence[Transaction]) -> list[tuple[int, Refusal]]:
    """The first write of each transaction that does not find the revision it expects."""
    expected = [
        (place, write.collection, write.id, write.expect)
        for place, transaction in enumerate(transactions)
        for write in transaction.writes
        if write.expect is not None
    ]
    first: dict[int, Refusal] = {}
    for place, collection, name, expect, found in _MISMATCHES.run(db, expected):
        first.setdefault(place, Refusal(collection=collection, id=name, expect=expect, found=found))
    return sorted(first.items())


def _write(
    db: sqlite3.Connection,
    outcome: BatchOutcome,
    transactions: Sequence[Transaction],
    *,
    batch: str,
    epoch: Epoch,
    at: int,
) -> None:
    """Number the accepted transactions and store them; `commits_of` numbers in the same way."""
    before = outcome.before
    number, sequence, entry = before.commit, before.sequence, before.entry
    documents: list[tuple[Any, ...]] = []
    events: list[tuple[Any, ...]] = []
    entries: list[tuple[Any, ...]] = []
    for transaction, refusal in zip(transactions, outcome.refusals, strict=True):
        if refusal is not None:
            continue
        number += 1
        for write in transaction.writes:
            body = write.body if isinstance(write, Put) else None
            documents.append((write.collection, write.id, number, body))
        for draft in transaction.events:
            sequence += 1
            events.append((sequence, epoch, draft.type.value, draft.subject, at, _ENCODE(draft.data)))
        for append in transaction.entries:
            entry += 1
            entries.append((entry, append.journal, at, append.body))
    _DOCUMENTS.store(db, documents)
    _EVENTS.store(db, events)
    _ENTRIES.store(db, entries)
    _extend_chain(db, [(row[0], row[3]) for row in entries if row[1] == CHAINED_JOURNAL], at=at)
    event_epoch = epoch if events else before.event_epoch
    db.execute(
        "UPDATE head SET commit_number = ?, sequence = ?, event_epoch = ?, entry = ?, batch = ?, outcome = ?",
        (number, sequence, event_epoch, entry, batch, encode_outcome(outcome)),
    )


def _extend_chain(db: sqlite3.Connection, added: Sequence[tuple[int, bytes]], *, at: int) -> None:
    """Chain the entries of the batch, in the transaction that stores them."""
    if not added:
        return
    chain, when = read_chain(db), from_microseconds(at)
    previous = chain.head.hash or GENESIS
    links: list[tuple[int, bytes, bytes]] = []
    for number, body in added:
        hash = entry_hash(previous, number, when, body)
        links.append((number, previous, hash))
        previous = hash
    _LINKS.store(db, links)
    newest, _, hash = links[-1]
    db.execute("UPDATE chain SET first = ?, number = ?, hash = ?", (chain.first or added[0][0], newest, hash))


ROWS_A_CALL: Final = 500


def trim(
    db: sqlite3.Connection,
    events_through: int,
    tombstones_through: int,
    journals: Sequence[tuple[str, int]],
) -> int:
    """Drop the oldest rows first, at most ROWS_A_CALL in all; runs inside a transaction."""
    dropped = _trim_events(db, events_through, ROWS_A_CALL)
    dropped += _trim_tombstones(db, tombstones_through, ROWS_A_CALL - dropped)
    for journal, through in journals:
        if dropped >= ROWS_A_CALL:
            break
        if journal == CHAINED_JOURNAL:
            _trim_chain(db, through, ROWS_A_CALL - dropped)
        dropped += db.execute(
            """DELETE FROM entry WHERE number IN (
                SELECT number FROM entry WHERE journal = ? AND number <= ? ORDER BY number LIMIT ?)""",
            (journal, through, ROWS_A_CALL - dropped),
        ).rowcount
    return dropped


def _trim_chain(db: sqlite3.Connection, through: int, limit: int) -> None:
    """Drop the hashes of the oldest entries, before these; the last one stays known."""
    (last,) = db.execute(
        "SELECT max(number) FROM (SELECT number FROM entry WHERE journal = ? AND number <= ? ORDER BY number LIMIT ?)",
        (CHAINED_JOURNAL, through, limit),
    ).fetchone()
    if last is not None:
        db.execute(
            """UPDATE chain SET removed_number = ?1,
            removed_hash = (SELECT hash FROM chain_link WHERE number = ?1)""",
            (last,),
        )
        db.execute("DELETE FROM chain_link WHERE number <= ?", (last,))


def drop_module_events(db: sqlite3.Connection, through: int) -> int:
    """The oldest first, at most ROWS_A_CALL; runs inside a transaction."""
    return db.execute(
        """DELETE FROM event WHERE sequence IN (
            SELECT sequence FROM event WHERE type = 'MODULE_EVENT' AND sequence <= ?
            ORDER BY sequence LIMIT ?)""",
        (through, ROWS_A_CALL),
    ).rowcount


def _trim_events(db: sqlite3.Connection, through: int, limit: int) -> int:
    last = db.execute(
        """SELECT sequence, epoch FROM event WHERE sequence = (SELECT max(sequence) FROM (
            SELECT sequence FROM event WHERE sequence <= ? ORDER BY sequence LIMIT ?))""",
        (through, limit),
    ).fetchone()
    if last is None:
        return 0
    db.execute("UPDATE trimmed SET sequence = ?, event_epoch = ?", last)
    return db.execute("DELETE FROM event WHERE sequence <= ?", (last[0],)).rowcount


def _trim_tombstones(db: sqlite3.Connection, through: int, limit: int) -> int:
    (last,) = db.execute(
        """SELECT max(revision) FROM (
            SELECT revision FROM document WHERE body IS NULL AND revision <= ?
            ORDER BY revision LIMIT ?)""",
        (through, limit),
    ).fetchone()
    if last is None:
        return 0
    db.execute("UPDATE trimmed SET tombstone = ?", (last,))
    return db.execute("DELETE FROM document WHERE body IS NULL AND revision <= ?", (last,)).rowcount
