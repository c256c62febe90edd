"""The meaning of SQLite errors for the caller: wait, end the process, or restore a backup."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
from collections.abc import Iterator
from typing import Final

from corral.errors import Code, Rejected
from corral.store.store_errors import StorageFailed, StoreUnavailable

_NOT_OURS: Final = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT"})
DAMAGED: Final = (
    "copy the data directory as it is, then restore the database from a backup, or save what can be read "
    "with `sqlite3 corral.db .recover`"
)
_FLUSH_FAILED: Final = frozenset({"SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC"})


def error_name(error: sqlite3.Error) -> str:
    """SQLite's name of the error, such as SQLITE_FULL; empty for errors of the binding itself."""
    return getattr(error, "sqlite_errorname", None) or ""


def _is_damage(name: str) -> bool:
    return name in _FLUSH_FAILED or name.startswith(tuple(_NOT_OURS))


def translate(error: sqlite3.Error) -> StoreUnavailable | StorageFailed:
    """A failed flush or a damaged file is fatal; everything else (full disk, lock) may pass."""
    name = error_name(error)
    what = f"{error} ({name})" if name else str(error)
    if _is_damage(name):
        if name in _FLUSH_FAILED:
            return StorageFailed(f"the database failed: {what}")
        return StorageFailed(f"the database is damaged: {what}", hint=DAMAGED)
    return StoreUnavailable(what)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error) from error


@contextlib.contextmanager
def refusing_damage(path: pathlib.Path) -> Iterator[None]:
    """At open: refuse a damaged or foreign file with a message an operator can act on."""
    try:
        yield
    except sqlite3.Error as error:
        if not _is_damage(error_name(error)):
            raise translate(error) from error
        raise Rejected(
            Code.FORMAT_INVALID,
            f"{path} is damaged or not a database: {error}",
            hint=DAMAGED,
        ) from error
