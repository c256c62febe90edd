"""Contact with the controller: when there certainly was one, across restarts of the daemon.

A ping of the node that is answered proves that there was a controller when the ping was sent, not when the answer was
read: frames may wait in a socket while a process stands still. The time is of `Clock.boottime`, so no step of the wall
clock moves it. It is on disk for the next daemon; not flushed, because a crash of the host ends the runs as well.
"""

from __future__ import annotations

import asyncio
import math
import pathlib
from typing import Final

import msgspec
import structlog

from corral.daemon.link.connection import LinkConnection
from corral.errors import CorralError
from corral.system.clock import Clock, boot_id
from corral.system.files import read_versioned, replace_versioned
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import Ping

_FILE: Final = "contact.json"
_FORMAT: Final = "corral-contact"
_VERSION: Final = 1
_MOST_PINGS: Final = 64
_log = structlog.get_logger("corral.daemon.link")


class _StoredContact(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    at: float


class ControllerContact:
    """A listener of the link. `ping` while somebody needs to know, `seconds_without` to ask."""

    def __init__(self, data: pathlib.Path, *, clock: Clock) -> None:
        self._path = data / _FILE
        self._clock = clock
        self.boot_id = boot_id()
        self._connection: LinkConnection | None = None
        self._pings: dict[int, float] = {}
        self._sequence = 0
        self._pinged_at = -math.inf
        self._saved: float | None = None
        self._at = self._found()

    def _found(self) -> float:
        """The last contact of an earlier daemon. Of another boot: none, however short ago that may be. Without a
        file nothing is known, and it counts from now."""
        try:
            stored = read_versioned(self._path, _StoredContact, name=_FORMAT, version=_VERSION)
        except (CorralError, OSError) as error:
            _log.warning("contact_read.failed", reason=str(error))
            stored = None
        now = self._clock.boottime()
        if stored is None:
            return now
        self._saved = stored.at
        return min(stored.at, now) if stored.boot_id == self.boot_id else -math.inf

    def on_connected(self, connection: LinkConnection) -> None:
        self._connection = connection
        self._at = self._clock.boottime()
        self._pinged_at = -math.inf

    def on_disconnected(self) -> None:
        if self._connection is not None and not self._connection.supports.contact:
            self._at = self._clock.boottime()
        self._connection = None
        self._pings.clear()

    def ordered(self) -> None:
        """The controller has ordered a start. No ping was needed before: nothing depended on it."""
        self._at = self._clock.boottime()

    def ping(self, *, every: float = 0.0) -> None:
        """Ask the connected controller, if there is one, and if the last time was so many seconds ago. With one that
        does not answer pings, an open session has to do as a proof."""
        connection, now = self._connection, self._clock.boottime()
        if connection is None or now - self._pinged_at < every:
            return
        if not connection.supports.contact:
            self._at = now
            return
        self._sequence += 1
        self._pinged_at = self._pings[self._sequence] = now
        while len(self._pings) > _MOST_PINGS:
            del self._pings[next(iter(self._pings))]
        connection.outbox.replace("ping", DaemonMessage(ping=Ping(sequence=self._sequence)))

    def answered(self, sequence: int) -> None:
        """A pong: there was a controller when this ping, and every one before it, was sent."""
        sent = self._pings.pop(sequence, None)
        if sent is None:
            return
        self._at = max(self._at, sent)
        for earlier in [number for number in self._pings if number < sequence]:
            del self._pings[earlier]

    def seconds_without(self) -> float:
        """How long ago there was a controller, as far as that is proven."""
        return self._clock.boottime() - self._at

    async def save(self) -> None:
        """Write it for the next daemon. A disk that refuses is logged: that daemon then counts from an earlier time."""
        if self._at == self._saved or not math.isfinite(self._at):
            return
        saved = self._at
        stored = _StoredContact(boot_id=self.boot_id, at=saved)
        try:
            await asyncio.to_thread(replace_versioned, self._path, stored, name=_FORMAT, version=_VERSION)
        except OSError as error:
            _log.warning("contact_write.failed", reason=str(error))
        else:
            self._saved = saved
