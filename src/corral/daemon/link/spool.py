"""Spool of reports that the controller has not confirmed yet, on this node's disk.

Records are numbered once and for ever, sent in order, and dropped when confirmed. The spool has two bounds: old log
records are dropped for newer ones (each remaining record carries the number dropped before it); everything else is
refused when the spool is full, which its caller must handle. Low-priority reports (events of modules) are in the
background queue, without numbers, and become records a few at a time: so other reports never wait behind many of them.

The spool is a small SQLite database (`spool_file`, `spool_table`) behind one thread that commits in groups
(`spool_worker`). Only records that must not be lost cause a commit at once: log records, and the dropping of confirmed
records, wait a moment to share the next one. `LogForwarding` puts every record of the daemon's log into the spool.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable
from typing import Any

import structlog

from corral.daemon.link.spool_file import open_table
from corral.daemon.link.spool_table import Spooled, SpoolTable
from corral.daemon.link.spool_worker import SpoolWorker, Work
from corral.domain.records import LogRecord
from corral.system.daemon_config import DaemonConfig
from corral.system.entropy import Entropy, new_id
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import DaemonLogRecord

_log = structlog.get_logger("corral.daemon.link")


class Spool:
    """Durable, ordered, bounded. All methods may be called from the event loop; none blocks it.

    Those that are awaited raise Retryable STORE_UNAVAILABLE when the disk refuses, and have then changed nothing.
    """

    def __init__(self, table: SpoolTable, *, entropy: Entropy) -> None:
        self._table = table
        self._entropy = entropy
        self._on_growth: Callable[[], None] | None = None
        self._worker = SpoolWorker(table, on_growth=self._grown)
        self._worker.start()

    @classmethod
    def open(cls, directory: pathlib.Path, *, entropy: Entropy, log_bytes: int, max_bytes: int) -> Spool:
        """Open or create the spool. A damaged one is put aside, which is logged; Retryable when the disk does not allow
        opening it, and then it is left as it is."""
        table = open_table(directory, entropy=entropy, log_bytes=log_bytes, max_bytes=max_bytes)
        return cls(table, entropy=entropy)

    @property
    def spool_id(self) -> str:
        """Identifies the numbering: the same id and number is the same record."""
        return self._table.committed.spool_id

    @property
    def sent(self) -> int:
        """The highest number that was ever handed out for sending; no controller can have confirmed more."""
        return self._table.committed.sent

    @property
    def head(self) -> int:
        """The highest number ever given to a record."""
        return self._table.committed.highest

    @property
    def through(self) -> int:
        """Everything up to this number was confirmed. Confirmations of the last moments before a crash are received
        again with the controller's handshake."""
        return max(self._worker.dropping, self._table.committed.forgotten)

    def confirmed(self, number: int) -> bool:
        """Has the controller stored the record of this number?"""
        return number <= self.through

    def on_growth(self, callback: Callable[[], None] | None) -> None:
        """Called from the spool's thread whenever records were added."""
        self._on_growth = callback

    def stream(self, on: bool) -> None:
        """Set whether a sender takes each record at once. Only for a controller that was found to have confirmed no
        more than `sent`: while streaming, additions raise that mark."""
        self._table.streaming = on

    def log(self, body: bytes) -> None:
        """Store a log record, best effort: never blocks, never fails, counts dropped records. It is on disk with the
        next record that must not be lost, at the latest a moment later."""
        self._worker.post(lambda table: table.add_log(body))

    async def put(self, body: bytes) -> int:
        """Store a record that must not be lost; returns its number once it is on disk."""
        number: int = await self._ask(lambda table: table.add_state(body))
        return number

    async def put_background(self, body: bytes) -> int:
        """Store a report that must not be lost but may wait: these keep their order, and all but a few of them come
        after every other record. Returns its id in the background queue once it is on disk."""
        id: int = await self._ask(lambda table: table.add_background(body))
        return id

    def background_confirmed(self, id: int) -> bool:
        """Has the controller stored the report for which `put_background` returned this id? Known with a short
        delay."""
        return id <= self._table.committed.background_confirmed

    async def take(self, after: int, *, limit: int) -> list[Spooled]:
        """The oldest unconfirmed records on disk after this number, to be sent."""
        after = max(after, self._worker.dropping)
        look = self._worker.look(lambda table: table.take(after, limit))
        found: list[Spooled] = await asyncio.wrap_future(look)
        return found

    def confirm(self, through: int) -> None:
        """The controller has stored everything up to this number. These records are dropped with the next write, before
        it needs room. After a crash before that they are sent again, which does no harm."""
        self._worker.drop(min(through, self.head))

    async def start_over(self, *, confirmed: int) -> None:
        """Take a new id, because the controller has more records of the current one than were ever sent: this disk was
        restored to an earlier state, and its numbers would be ambiguous."""
        former, fresh = self.spool_id, new_id("spool", self._entropy)
        await self._ask(lambda table: table.rename(fresh, confirmed=confirmed))
        _log.warning("spool.restarted", spool=fresh, former=former, confirmed=confirmed)

    async def close(self) -> None:
        """Write what is queued, then close. Later calls are refused."""
        await asyncio.to_thread(self._worker.close)

    async def _ask(self, work: Work) -> Any:
        return await asyncio.wrap_future(self._worker.ask(work))

    def _grown(self) -> None:
        callback = self._on_growth  # it may be removed meanwhile
        if callback is not None:
            callback()


def open_spool(config: DaemonConfig, entropy: Entropy) -> Spool:
    """The spool of this node, with the bounds of its configuration; as `Spool.open`."""
    return Spool.open(
        config.data / "spool",
        entropy=entropy,
        log_bytes=config.spool.log_bytes,
        max_bytes=config.spool.max_bytes,
    )


class LogForwarding:
    """A log sink. Called by any thread; only ever puts bytes into a queue."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def __call__(self, record: LogRecord) -> None:
        self._spool.log(encoded(record))


def encoded(record: LogRecord) -> bytes:
    message = DaemonMessage(
        daemon_log_record=DaemonLogRecord(
            timestamp_ms=int(record.at.timestamp() * 1000),
            level=record.level,
            logger=record.logger,
            thread=record.thread,
            message=record.message,
            throwable=record.throwable,
            mdc=record.fields,
        )
    )
    return message.SerializeToString()
