"""Sender of the spool over one connection: in order, a bounded window ahead of the confirmations."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Final

import structlog

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.spool import Spool
from corral.daemon.link.spool_table import Kind, Spooled
from corral.errors import CorralError
from corral.wire.v1.link_pb2 import DaemonMessage

WINDOW_RECORDS: Final = 512
WINDOW_BYTES: Final = 256 * 1024
_READ: Final = 128
_RETRY_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.daemon.link")


class SpoolSender:
    """Belongs to one connection. Records it sent that were not confirmed are sent again by the next one."""

    def __init__(self, *, spool: Spool, connection: LinkConnection) -> None:
        self._spool = spool
        self._connection = connection
        self._confirmed = connection.ack.spool_confirmed
        self._sent = self._confirmed
        self._under_way: deque[tuple[int, int]] = deque()
        """Number and size of each record that was sent and not confirmed, in the order of their numbers."""
        self._bytes_under_way = 0
        self._delayed = False
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()

    def confirmed(self, through: int) -> None:
        """The controller has stored everything up to here; a number above the highest one sent is lowered to that."""
        self._confirmed = max(self._confirmed, min(through, self._sent))
        self._spool.confirm(self._confirmed)
        while self._under_way and self._under_way[0][0] <= through:
            self._bytes_under_way -= self._under_way.popleft()[1]
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled. A disk that refuses only delays it: the stream carries more than the spool."""
        self._spool.on_growth(self._grown)
        self._spool.confirm(self._confirmed)
        try:
            while True:
                self._wake.clear()
                try:
                    more = await self._step()
                except CorralError as error:
                    self._delay(error)
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                self._delayed = False
                if not more:
                    await self._wake.wait()
        finally:
            self._spool.stream(False)
            self._spool.on_growth(None)

    async def _step(self) -> bool:
        """Send what the window allows; False when there is nothing to do. While the window is full, added records are
        not about to be sent, and must not count as sent."""
        room = self._has_room()
        self._spool.stream(room)
        return room and self._spool.head > self._sent and await self._send_some()

    def _delay(self, error: CorralError) -> None:
        if not self._delayed:
            self._delayed = True
            _log.warning("spool_send.retried", address=self._connection.address, reason=str(error))

    def _grown(self) -> None:
        """Called from the spool's thread, which may outlive the loop by a moment."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake.set)

    def _has_room(self) -> bool:
        return len(self._under_way) < WINDOW_RECORDS and self._bytes_under_way < WINDOW_BYTES

    async def _send_some(self) -> bool:
        """Send what the window allows; False when no record waits, or the stream has ended."""
        records = await self._spool.take(self._sent, limit=_READ)
        for record in records:
            if not self._has_room():
                break
            if not self._connection.send(as_message(record)):
                return False  # the stream has ended: the next connection sends it
            self._under_way.append((record.sequence, len(record.body)))
            self._bytes_under_way += len(record.body)
            self._sent = record.sequence
        return bool(records)


def as_message(record: Spooled) -> DaemonMessage:
    message = DaemonMessage.FromString(record.body)
    message.spool_sequence = record.sequence
    if record.kind is Kind.LOG:
        message.daemon_log_record.dropped_before = record.dropped
    return message
