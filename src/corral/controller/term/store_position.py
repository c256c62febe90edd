"""How far the store has come, noted beside it: a store that has lost commits is noticed at the next start.

A database without its write-ahead log, a copy from before, a replica that lags behind: each is whole by itself,
and none can know what it lacks. The note lies in the controller's own directory and is written after the commits it
tells of, so it is never ahead of a store that has lost nothing.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from corral.errors import Code, Rejected
from corral.store.port import ReadEngine
from corral.system.files import read_versioned, write_versioned
from corral.system.threads import to_end

_FILE: Final = "store-position.json"
_FORMAT: Final = "corral-store-position"
_VERSION: Final = 1
_SECONDS: Final = 2.0
"""So old is the note at most: what was committed later and lost is not noticed by it."""
_log = structlog.get_logger("corral.controller.store")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    commit: int


class StorePosition:
    """The note of one data directory."""

    def __init__(self, data: pathlib.Path) -> None:
        self._path = data / _FILE
        self._noted = 0

    async def check(self, reads: ReadEngine, *, accept: bool) -> None:
        """CONFLICT for a store that ends before the commit which the note names; with `accept` it is taken as it
        is, and the note follows it. An empty one is left to those who found clusters."""
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
        _log.error("store.older_accepted", found=found, noted=noted)
        await self.note(found)

    async def keep(self, commit: Callable[[], int]) -> None:
        """Follow the number that `commit` gives, until this is cancelled."""
        while True:
            await self.note(commit())
            await asyncio.sleep(_SECONDS)

    async def note(self, commit: int) -> None:
        """Write it down, if it is news. A disk that does not take it is no reason to stop: others tell of it."""
        if commit in (0, self._noted):
            return
        try:
            position = Position(commit=commit)
            await to_end(write_versioned, self._path, position, name=_FORMAT, version=_VERSION)
            self._noted = commit
        except OSError as error:
            _log.warning("store.position_not_noted", reason=str(error))

    def _read(self) -> int:
        try:
            found = read_versioned(self._path, Position, name=_FORMAT, version=_VERSION)
        except Rejected as error:
            _log.warning("store.position_unreadable", reason=str(error))
            return 0
        return found.commit if found is not None else 0
