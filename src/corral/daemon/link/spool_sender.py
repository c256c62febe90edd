"""Sends the spool over one connection: in order, a bounded window ahead of the confirmations."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from corral.daemon.link.connection import Connection
from corral.daemon.link.spool import Kind, Spool, Spooled
from corral.wire.v1.link_pb2 import DaemonMessage

WINDOW_RECORDS: Final = 512
WINDOW_BYTES: Final = 256 * 1024
_READ: Final = 128


class SpoolSender:
    """Belongs to one connection. What it sent and nobody confirmed is sent again by the next one."""

    def __init__(self, *, spool: Spool, connection: Connection) -> None:
        self._spool = spool
        self._connection = connection
        self._confirmed = connection.ack.spool_confirmed
        self._sent = self._confirmed
        self._under_way: dict[int, int] = {}
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()

    def confirmed(self, through: int) -> None:
        """The controller has stored everything up to here."""
        self._confirmed = max(self._confirmed, through)
        for sequence in [s for s in self._under_way if s <= through]:
            del self._under_way[sequence]
        self._wake.set()

    async def run(self) -> None:
        self._spool.on_growth(self._grown)
        try:
            forgotten = 0
            while True:
                self._wake.clear()
                if self._confirmed > forgotten:
                    forgotten = self._confirmed
                    await self._spool.confirm(forgotten)
                if self._has_room() and await self._send_some():
                    continue
                await self._wake.wait()
        finally:
            self._spool.on_growth(None)

    def _grown(self) -> None:
        """Called from the spool's thread, which may outlive the loop by a moment."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake.set)

    def _has_room(self) -> bool:
        return len(self._under_way) < WINDOW_RECORDS and sum(self._under_way.values()) < WINDOW_BYTES

    async def _send_some(self) -> bool:
        """Send what the window allows; False when nothing waits."""
        records = await self._spool.waiting(self._sent, limit=_READ)
        for record in records:
            if not self._has_room():
                break
            self._connection.outbox.send(as_message(record))
            self._under_way[record.sequence] = len(record.body)
            self._sent = record.sequence
        return bool(records)


def as_message(record: Spooled) -> DaemonMessage:
    message = DaemonMessage.FromString(record.body)
    message.spool_sequence = record.sequence
    if record.kind is Kind.LOG:
        message.daemon_log_record.dropped_before = record.dropped
    return message
