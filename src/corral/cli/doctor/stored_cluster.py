"""What the doctor reads of a SQLite store, beside a controller that may write to it at the same time."""

from __future__ import annotations

import contextlib
import datetime as dt
import pathlib
import sqlite3
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

from corral.controller.state.collections import AUTHORITY, TOKENS, USERS, StateCollection
from corral.domain.accounts.records import UserRecord
from corral.domain.records import ApiTokenRecord, AuthorityRecord, Record
from corral.errors import Code, Rejected
from corral.store.migrations import load_migrations, pending
from corral.store.sqlite.engine import APPLICATION, DATABASE, WRITE_AHEAD_LOG

R = TypeVar("R", bound=Record)
_INDEX: Final = f"{DATABASE}-shm"


class StoredCluster(NamedTuple):
    commits: int
    size: int
    """Of the database and its write-ahead log."""
    written: dt.datetime
    users: list[UserRecord]
    tokens: list[ApiTokenRecord]
    authorities: list[AuthorityRecord]


def read_store(data: pathlib.Path) -> StoredCluster:
    """Nothing is written, and no file is made. NOT_FOUND where there is no database; FORMAT_INVALID for one that is damaged or
    not ours, FORMAT_TOO_NEW for one of a newer Corral; OSError where it cannot be read without a change."""
    path, log = data / DATABASE, data / WRITE_AHEAD_LOG
    if not path.is_file() or not path.stat().st_size:
        raise Rejected(
            Code.NOT_FOUND, f"there is no cluster in {data}", hint="Name its directory with --data."
        )
    # A file that is missing would be made by SQLite, as our user, who may be another than the controller's.
    live = log.exists() and (data / _INDEX).exists()
    if not live and log.exists() and log.stat().st_size:
        raise OSError(f"changes in {log} wait for the next start of the controller")
    mode = "mode=ro" if live else "immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True)) as db:
            return _read(db, [each for each in (path, log) if each.exists()])
    except (sqlite3.DatabaseError, ValueError, TypeError) as damage:
        hint = "Restore it with its write-ahead log; see 'Backup' in the guide 'Operate'."
        raise Rejected(Code.FORMAT_INVALID, f"{path} cannot be read: {damage}", hint=hint) from damage


def _read(db: sqlite3.Connection, files: list[pathlib.Path]) -> StoredCluster:
    def records(collection: StateCollection[R]) -> list[R]:
        query = "SELECT body FROM document WHERE collection = ? AND body IS NOT NULL"
        return [collection.decode(body) for (body,) in db.execute(query, (collection.name,))]

    if db.execute("PRAGMA application_id").fetchone() != (APPLICATION,):
        raise ValueError("it is of another program")
    db.execute("BEGIN")
    (version,) = db.execute("SELECT max(version) FROM schema_version").fetchone()
    pending(load_migrations("corral.store.sqlite"), current=version, where=str(files[0]))
    (commits,) = db.execute("SELECT commit_number FROM head").fetchone()
    found = [each.stat() for each in files]
    return StoredCluster(
        commits=commits,
        size=sum(each.st_size for each in found),
        written=dt.datetime.fromtimestamp(max(each.st_mtime for each in found), dt.UTC),
        users=records(USERS),
        tokens=records(TOKENS),
        authorities=records(AUTHORITY),
    )
