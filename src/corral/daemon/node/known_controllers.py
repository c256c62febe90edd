"""Controllers that a daemon knows across restarts: their addresses, and the highest epoch it obeyed.

The epoch is on disk before a frame that carries it is obeyed, so a deposed controller is not obeyed, not even after a
restart of the daemon. Its space on the disk is allocated beforehand: a full disk must not keep a node from the next
leader.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterable
from typing import Final

import msgspec
import structlog

from corral.daemon.node.durable_files import store
from corral.domain.ids import Epoch
from corral.errors import Code, Rejected, Retryable
from corral.system.files import allocate, read_versioned, write_allocated

_FILE: Final = "link.json"
_FORMAT: Final = "corral-link"
_VERSION: Final = 1
_MAX_ADDRESSES: Final = 32
_ROOM: Final = ".link.room"
_ROOM_BYTES: Final = 16_384
_log = structlog.get_logger("corral.daemon.node")


class _StoredControllers(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int = 0
    controllers: tuple[str, ...] = ()


class KnownControllers:
    """Addresses and epoch of the control plane, on disk as far as the disk allows."""

    def __init__(self, data: pathlib.Path, configured: Iterable[str]) -> None:
        self._path = data / _FILE
        self._room = data / _ROOM
        self._configured = tuple(configured)
        found = read_versioned(self._path, _StoredControllers, name=_FORMAT, version=_VERSION)
        self._remembered = found or _StoredControllers()
        self._learned = self._remembered.controllers
        self._make_room()

    @property
    def epoch(self) -> Epoch:
        return Epoch(self._remembered.epoch)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Configured and learned ones, each once."""
        return tuple(dict.fromkeys((*self._configured, *self._learned)))

    def remember(self, addresses: Iterable[str]) -> None:
        """Store the addresses of peers that a controller sent: at once in memory, and on disk when this returns.
        Retryable when the disk refuses."""
        learned = tuple(dict.fromkeys(address for address in addresses if address))[:_MAX_ADDRESSES]
        if learned:
            self._learned = learned
            self._store(self._remembered.epoch)

    def learn(self, addresses: Iterable[str]) -> None:
        """Like `remember`, but a disk that refuses is only logged: losing them costs a detour, and they are sent again
        with the next connection."""
        try:
            self.remember(addresses)
        except Retryable as error:
            _log.warning("controller_addresses_write.failed", reason=str(error))

    def obey(self, epoch: int) -> None:
        """Accept a frame of this epoch, or refuse it as a deposed controller's. Retryable when a new epoch cannot be
        written: an epoch that is not stored must not be obeyed."""
        if epoch < self._remembered.epoch:
            raise Rejected(
                Code.STALE_EPOCH,
                f"the controller speaks for epoch {epoch}, this node already obeyed {self._remembered.epoch}",
                hint="it was deposed; if its store was restored from a backup, "
                "run 'corral cluster raise-epoch' there",
            )
        if epoch > self._remembered.epoch:
            self._store(epoch)

    def _store(self, epoch: int) -> None:
        current = _StoredControllers(epoch=epoch, controllers=self._learned)
        if current != self._remembered:
            try:
                store(self._path, current, name=_FORMAT, version=_VERSION)
            except Retryable as full:
                try:
                    write_allocated(self._room, self._path, current, name=_FORMAT, version=_VERSION)
                except OSError:
                    raise full from None
            self._remembered = current
            self._make_room()

    def _make_room(self) -> None:
        """Allocate the space for the next write; the replaced file has freed some."""
        with contextlib.suppress(OSError):
            allocate(self._room, _ROOM_BYTES)
