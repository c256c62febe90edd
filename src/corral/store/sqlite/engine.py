"""The SQLite store: its database file created private, opened with durable settings and migrated; opened as a
whole, and closed."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import sqlite3
from typing import Final

from corral.errors import Code, Rejected
from corral.store.migrations import load_migrations, pending
from corral.store.port import Store
from corral.store.sqlite.blobs import FileBlobs
from corral.store.sqlite.commit_engine import SqliteCommits
from corral.store.sqlite.faults import refusing_damage
from corral.store.sqlite.leases import SqliteLeases
from corral.store.sqlite.read_engine import SqliteReads
from corral.store.sqlite.threads import DatabaseThread
from corral.system.files import DirectoryLock, sync_directory

APPLICATION: Final = 0x436F7272
"""The file's `application_id`, "Corr": a database of another program is refused."""

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
    if application == APPLICATION:
        return
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application or tables:
        raise Rejected(
            Code.FORMAT_INVALID,
            f"{path} is a database of another program",
            hint="use another data directory, or move the file away",
        )
    db.execute(f"PRAGMA application_id = {APPLICATION}")


def _migrate(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Apply the pending migrations. The data directory's lock excludes other processes meanwhile."""
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


DATABASE: Final = "corral.db"
WRITE_AHEAD_LOG: Final = f"{DATABASE}-wal"
ARTIFACTS: Final = "artifacts"
ROLE: Final = "controller-store"


async def open_sqlite(data: pathlib.Path) -> Store:
    """Open the store in this directory, alone: a second opener is refused (DATA_DIRECTORY_LOCKED).

    Raises FORMAT_INVALID for a damaged or foreign file, FORMAT_TOO_NEW for a newer schema.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = data / DATABASE
    async with contextlib.AsyncExitStack() as undo:
        lock = DirectoryLock(data, ROLE)
        lock.acquire()
        undo.callback(lock.release)
        writer = DatabaseThread(functools.partial(open_writer, path), name="corral/store/write")
        await writer.open()
        undo.push_async_callback(writer.close)
        reader = DatabaseThread(functools.partial(open_reader, path), name="corral/store/read")
        await reader.open()
        undo.push_async_callback(reader.close)
        blobs = FileBlobs(data / ARTIFACTS)
        undo.callback(blobs.close)
        await blobs.open()
        return Store(
            name="sqlite",
            exclusive=True,  # by the lock on the directory
            commits=SqliteCommits(writer),
            reads=SqliteReads(reader),
            leases=SqliteLeases(writer),
            blobs=blobs,
            close=undo.pop_all().aclose,
        )
    raise AssertionError("unreachable: the exit stack swallows nothing")
