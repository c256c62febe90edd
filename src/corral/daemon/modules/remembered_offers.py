"""What the controller offered last, on this node's disk: modules that need it start without a controller, too."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Final

import msgspec
import structlog

from corral.daemon.node.durable_files import store
from corral.errors import CorralError
from corral.system.aio.tasks import Tasks
from corral.system.files import make_directory, read_versioned

_FORMAT: Final = "corral-offers"
_VERSION: Final = 1
_log = structlog.get_logger("corral.daemon.modules.capabilities")


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    provider: str
    deprecated: bool = False


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    offers: dict[str, Offer] = {}


class RememberedOffers:
    """`offers` is always the latest; the file follows, written by a task of its own. What the disk refuses is
    written with the next change: the worst that comes of it is a module that waits for a controller at boot."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self.offers: dict[str, Offer] = self._load()
        self._written = self.offers
        self._tasks = Tasks()

    def _load(self) -> dict[str, Offer]:
        try:
            found = read_versioned(self._path, _Document, name=_FORMAT, version=_VERSION)
        except (CorralError, OSError) as error:
            _log.warning("capability.offers_lost", path=str(self._path), reason=str(error))
            return {}
        return found.offers if found else {}

    def replace(self, offers: dict[str, Offer]) -> None:
        self.offers = offers
        if not self._tasks:
            self._tasks.spawn(self._write(), name="modules/offers")

    async def _write(self) -> None:
        while self._written is not self.offers:
            taken = self.offers
            try:
                await asyncio.to_thread(self._store, taken)
            except (CorralError, OSError) as error:
                _log.warning("capability.offers_not_kept", reason=str(error))
                return
            self._written = taken

    def _store(self, offers: dict[str, Offer]) -> None:
        make_directory(self._path.parent)
        store(self._path, _Document(offers=offers), name=_FORMAT, version=_VERSION)

    async def close(self) -> None:
        """What is being written is written."""
        try:
            await self._tasks.wait()
        finally:
            await self._tasks.close()
