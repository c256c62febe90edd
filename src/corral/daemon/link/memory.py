"""What a daemon remembers of its controllers across restarts: where they are, and whom it obeyed.

The epoch is on disk before a frame that carries it is obeyed, so a deposed controller finds no
ear here, not even after a restart of the daemon.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Final

import msgspec

from corral.domain.ids import Epoch
from corral.errors import Code, Rejected
from corral.system.files import read_versioned, write_versioned

_FILE: Final = "link.json"
_FORMAT: Final = "corral-link"
_VERSION: Final = 1
_MAX_ADDRESSES: Final = 32


class _Remembered(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int = 0
    controllers: tuple[str, ...] = ()


class LinkMemory:
    """The daemon's memory of the control plane. Every change is durable when the method returns."""

    def __init__(self, data: pathlib.Path, configured: Iterable[str]) -> None:
        self._path = data / _FILE
        self._configured = tuple(configured)
        found = read_versioned(self._path, _Remembered, name=_FORMAT, version=_VERSION)
        self._remembered = found or _Remembered()

    @property
    def epoch(self) -> Epoch:
        return Epoch(self._remembered.epoch)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Configured ones and learned ones, each once."""
        return tuple(dict.fromkeys((*self._configured, *self._remembered.controllers)))

    def learn(self, addresses: Iterable[str]) -> None:
        """Remember what a controller told about its peers."""
        learned = tuple(dict.fromkeys(address for address in addresses if address))[:_MAX_ADDRESSES]
        if learned and learned != self._remembered.controllers:
            self._store(msgspec.structs.replace(self._remembered, controllers=learned))

    def obey(self, epoch: int) -> None:
        """Accept a frame of this epoch, or refuse it as a deposed controller's."""
        if epoch < self._remembered.epoch:
            raise Rejected(
                Code.STALE_EPOCH,
                f"the controller speaks for epoch {epoch}, this node already obeyed {self._remembered.epoch}",
                hint="it was deposed; if its store was restored from a backup, "
                "run 'corral cluster raise-epoch' there",
            )
        if epoch > self._remembered.epoch:
            self._store(msgspec.structs.replace(self._remembered, epoch=epoch))

    def _store(self, remembered: _Remembered) -> None:
        write_versioned(self._path, remembered, name=_FORMAT, version=_VERSION)
        self._remembered = remembered
