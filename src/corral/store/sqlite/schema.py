"""The database file: created private, opened with the settings durability rests on, migrated."""

from __future__ import annotations

import os
import pathlib
import sqlite3
from typing import Final

from corral.errors import Code, Rejected
from corral.store.migrations import load_migrations, pending
from corral.store.sqlite.faults import refusing_damage
from corral.system.files import sync_directory

_APPLICATION: Final = 0x436F7272
"""The file's `application_id`, "Corr": a database of somebody else is refused."""

_SETTINGS: Final = (
    "PRAGMA busy_timeout = 5000",
    "PRAGMA synchronous = FULL",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -16384",
)


def open_writer(path: pathlib.Path) -> sqlite3.Connection:
    """Create or open the file, check that it is ours, and bring its schema up to date."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        sync_directory(path.parent)
    with refusing_damage(path):
        db = _connect(path)
        try:
            _claim(db, path)
            _migrate(db, path)
        except BaseException:
            db.close()
            raise
    return db


def open_reader(path: pathlib.Path) -> sqlite3.Connection:
    with refusing_damage(path):
        db = _connect(path)
        db.execute("PRAGMA query_only = ON")
    return db


def _connect(path: pathlib.Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    try:
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise Rejected(
                Code.INVALID_CONFIG,
                f"{path} cannot use a write-ahead log (SQLite says '{mode}')",
                hint="put the data directory on a local disk",
            )
        for setting in _SETTINGS:
            db.execute(setting)
    except BaseException:
        db.close()
        raise
    return db


def _claim(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Mark an empty database as ours; refuse one that belongs to another program."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application == _APPLICATION:
        return
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application or tables:
        raise Rejected(
            Code.FORMAT_INVALID,
            f"{path} is a database of another program",
            hint="use another data directory, or move the file away",
        )
    db.execute(f"PRAGMA application_id = {_APPLICATION}")


def _migrate(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Apply what is pending. The data directory's lock keeps everybody else away meanwhile."""
    db.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    (current,) = db.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()
    for step in pending(load_migrations("corral.store.sqlite"), current=current, where=str(path)):
        try:
            db.executescript(
                f"BEGIN IMMEDIATE;\n{step.sql}\n"
                f"INSERT INTO schema_version VALUES ({step.version}, '{step.name}');\nCOMMIT;"
            )
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
