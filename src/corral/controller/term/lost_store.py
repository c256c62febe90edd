"""Detection at the start of a store that was lost, or has lost commits; nothing is changed until an operator
decides.

A database that is missing or empty where a cluster was is not a first start: creating a new cluster there
would replace the administrator's token, and SQLite would discard the write-ahead log of the lost one.

A database without its write-ahead log, an older copy, a lagging replica: each is consistent in itself and
cannot show what it lacks. So the number of the last commit is noted in the controller's own directory, after
that commit: the note is never ahead of a store that has lost nothing.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog

from corral.errors import Code, Rejected
from corral.store.engine_selection import is_embedded
from corral.store.port import ReadEngine
from corral.system.controller_config import ControllerConfig
from corral.system.files import read_versioned, write_versioned
from corral.system.threads import to_end


def refuse_lost_database(config: ControllerConfig, *, admin_token: str, on_purpose: bool) -> None:
    """CONFLICT where the file of an embedded store is missing or empty, and files of a cluster lie beside it.

    With `on_purpose` the files that would be overwritten are renamed. To be called before the store is
    opened, under the lock of its directory.
    """
    if not is_missing(config):
        return
    from corral.store.sqlite.engine import ARTIFACTS, DATABASE, WRITE_AHEAD_LOG

    database = config.data / DATABASE
    log, artifacts = config.data / WRITE_AHEAD_LOG, config.data / ARTIFACTS
    former = [
        path
        for path in (log, config.cluster_key_path, config.data / admin_token, artifacts)
        if _holds_something(path)
    ]
    if not former:
        return
    if not on_purpose:
        what = f"{database} is {'empty' if database.exists() else 'missing'}"
        raise database_lost(what, former, config.data)
    put_aside([database, log, artifacts])


def is_missing(config: ControllerConfig) -> bool:
    """Is the file of an embedded store missing or empty? False for a database server."""
    if not is_embedded(config.store.url):
        return False
    from corral.store.sqlite.engine import DATABASE

    return not _holds_something(config.data / DATABASE)


def database_lost(what: str, former: Sequence[pathlib.Path], data: pathlib.Path) -> Rejected:
    """The refusal, with the operator's options."""
    names = ", ".join(
        str(path.relative_to(data)) if path.is_relative_to(data) else str(path) for path in former
    )
    return Rejected(
        Code.CONFLICT,
        f"{what}, but {data} was the directory of a cluster: it has {names}; nothing was changed",
        hint="restore the database, with its write-ahead log where it has one; or, to found a new cluster that no node of the old one "
        "belongs to, move the directory away, or start once with --found-cluster",
    )


def put_aside(paths: Iterable[pathlib.Path]) -> None:
    """Rename existing files to NAME.former-1, or the next free number."""
    for path in paths:
        if path.exists():
            number = 1
            while (target := path.with_name(f"{path.name}.former-{number}")).exists():
                number += 1
            path.rename(target)


def _holds_something(path: pathlib.Path) -> bool:
    """Is this a file with content, or a directory with a file at any depth?"""
    try:
        if path.is_dir():
            return any(each.is_file() for each in path.rglob("*"))
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


_FILE: Final = "store-position.json"
_FORMAT: Final = "corral-store-position"
_VERSION: Final = 1
_SECONDS: Final = 2.0
"""The interval between notes: the loss of commits younger than this is not detected."""
_log = structlog.get_logger("corral.controller.term")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    commit: int


class StorePosition:
    """The noted commit number of one data directory."""

    def __init__(self, data: pathlib.Path) -> None:
        self._path = data / _FILE
        self._noted = 0

    async def check(self, reads: ReadEngine, *, accept: bool) -> None:
        """CONFLICT for a store whose last commit is before the noted one; with `accept` the store is taken as
        it is, and the note is set to its last commit. An empty store is left to the creation of clusters."""
        noted = await to_end(self._read)
        found = (await reads.head()).commit
        if found == 0 or found >= noted:
            return
        lost = f"commits {found + 1} to {noted}"
        if not accept:
            raise Rejected(
                Code.CONFLICT,
                f"the store ends at commit {found}, and this controller has seen commit {noted}: {lost} are lost; "
                "nothing was changed",
                hint="put the write-ahead log (corral.db-wal) or a newer copy of the database back; to go on without "
                "them, as after the restore of a backup, start once with --accept-older-store",
            )
        _log.error("older_store.accepted", found=found, noted=noted)
        await self.note(found)

    async def keep(self, commit: Callable[[], int]) -> None:
        """Keep the note at the number that `commit` returns, until cancelled."""
        while True:
            await self.note(commit())
            await asyncio.sleep(_SECONDS)

    async def note(self, commit: int) -> None:
        """Write the number if it has changed. A failed write is no reason to stop: other checks report a full
        or broken disk."""
        if commit in (0, self._noted):
            return
        try:
            position = Position(commit=commit)
            await to_end(write_versioned, self._path, position, name=_FORMAT, version=_VERSION)
            self._noted = commit
        except OSError as error:
            _log.warning("store_position_write.failed", reason=str(error))

    def _read(self) -> int:
        try:
            found = read_versioned(self._path, Position, name=_FORMAT, version=_VERSION)
        except Rejected as error:
            _log.warning("store_position_read.failed", reason=str(error))
            return 0
        return found.commit if found is not None else 0
