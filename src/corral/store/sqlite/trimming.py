"""Dropping old rows in SQLite, a few hundred at a time: the write lock is never held long."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

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
        dropped += db.execute(
            """DELETE FROM entry WHERE number IN (
                SELECT number FROM entry WHERE journal = ? AND number <= ? ORDER BY number LIMIT ?)""",
            (journal, through, ROWS_A_CALL - dropped),
        ).rowcount
    return dropped


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
