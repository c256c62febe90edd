"""File of a spool: created, opened, and put aside only when it is truly damaged.

A disk that is full, failing or not writable gives no information about the file's content: every byte stays where it
is. An existing file is opened on a full disk as well, without the index file that SQLite would create beside it; the
daemon refuses to start only where there is no file yet, or the file cannot be read.
"""

from __future__ import annotations

import pathlib
import sqlite3
from typing import Final

import structlog

from corral.daemon.link.spool_table import SpoolTable
from corral.errors import Code, Rejected, Retryable
from corral.system.entropy import Entropy, new_id
from corral.system.files import sync_directory

FORMAT_VERSION: Final = 1
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY_CODE: Final = 0xFF
_COMPANIONS: Final = ("-wal", "-shm")
_log = structlog.get_logger("corral.daemon.link")

_SCHEMA: Final = """
create table meta (one integer primary key check (one = 1), spool_id text not null);
create table record (
    sequence integer primary key autoincrement,
    kind integer not null,
    dropped integer not null default 0,
    body blob not null
);
create index record_kind on record (kind, sequence);
"""
_SENT: Final = "create table sent (one integer primary key check (one = 1), through integer not null)"
"""How far records were ever sent. Added later: a spool without the table gets it, older programs ignore it."""
_BACKGROUND: Final = "create table background (id integer primary key autoincrement, body blob not null)"
"""Low-priority reports that have no number yet. Added later, too."""


def open_table(directory: pathlib.Path, *, entropy: Entropy, log_bytes: int, max_bytes: int) -> SpoolTable:
    """Open or create the spool in this directory. A damaged one is put aside, whole, and a new one is created;
    Retryable when the disk does not allow it, and then nothing was changed."""
    path = directory / "spool.db"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            return _open(path, entropy, log_bytes=log_bytes, max_bytes=max_bytes)
        except _PutAside as damaged:
            _log.error("spool.damaged", reason=str(damaged.__cause__), kept_as=str(damaged))
            return _open(path, entropy, log_bytes=log_bytes, max_bytes=max_bytes)
    except (OSError, sqlite3.Error, _PutAside) as error:
        raise Retryable(
            Code.STORE_UNAVAILABLE,
            f"the node's spool {path} cannot be opened: {error}",
            hint="make room on its disk and check its permissions, then start again; it was left as it is",
        ) from error


class _PutAside(Exception):
    """The spool was damaged; carries the path it was renamed to."""


def _open(path: pathlib.Path, entropy: Entropy, *, log_bytes: int, max_bytes: int) -> SpoolTable:
    try:
        return _connect(path, entropy, log_bytes=log_bytes, max_bytes=max_bytes, alone=False)
    except sqlite3.OperationalError as error:
        _log.warning("spool_open.retried", reason=str(error))
        return _connect(path, entropy, log_bytes=log_bytes, max_bytes=max_bytes, alone=True)


def _connect(
    path: pathlib.Path, entropy: Entropy, *, log_bytes: int, max_bytes: int, alone: bool
) -> SpoolTable:
    """`alone`: no other process can read it meanwhile, and its index is in memory, taking no room on the disk."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        path.chmod(0o600)
        if alone:
            connection.execute("pragma locking_mode = exclusive")
        _prepare(connection, path, entropy)
        return SpoolTable(connection, log_bytes=log_bytes, max_bytes=max_bytes)
    except BaseException as error:
        try:
            if isinstance(error, sqlite3.Error) and _is_damage(error):
                # Before SQLite closes it: SQLite would delete a log that it cannot read.
                raise _PutAside(_put_aside(path, entropy)) from error
        finally:
            connection.close()
        raise


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE in _DAMAGE


def _put_aside(path: pathlib.Path, entropy: Entropy) -> pathlib.Path:
    """Rename the database and its companion files; the log first, so that a new database never gets the old log."""
    aside = path.with_suffix(f".damaged-{new_id('x', entropy)}")
    for suffix in (*_COMPANIONS, ""):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    sync_directory(path.parent)
    return aside


def _prepare(connection: sqlite3.Connection, path: pathlib.Path, entropy: Entropy) -> None:
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    version = connection.execute("pragma user_version").fetchone()[0]
    if version > FORMAT_VERSION:
        raise Rejected(
            Code.FORMAT_TOO_NEW,
            f"{path} has format version {version}, this Corral reads up to {FORMAT_VERSION}",
            hint="run the version of Corral that wrote it, or a newer one",
        )
    _complete(connection, version, entropy)


def _complete(connection: sqlite3.Connection, version: int, entropy: Entropy) -> None:
    """Create what is missing, in one transaction: a spool is never without an id."""
    present = {name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")}
    whole = {"sent", "background"} <= present
    if version and whole and connection.execute("select 1 from meta").fetchone():
        return
    connection.execute("begin immediate")
    if version == 0:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
    if "sent" not in present:
        connection.execute(_SENT)
        highest = "select coalesce(max(seq), 0) from sqlite_sequence where name = 'record'"
        connection.execute(f"insert into sent select 1, ({highest})")
    if "background" not in present:
        connection.execute(_BACKGROUND)
    connection.execute("insert or ignore into meta values (1, ?)", (new_id("spool", entropy),))
    connection.execute(f"pragma user_version = {FORMAT_VERSION}")
    connection.execute("commit")
