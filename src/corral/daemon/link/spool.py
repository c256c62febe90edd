"""Spool of reports that the controller has not confirmed yet, on this node's disk.

Records are numbered once and for ever, sent in order, and dropped when confirmed. It has two bounds: log records make
room for newer ones (each survivor knows how many were given up before it); everything else is refused when full,
which its caller must handle. What may wait (events of modules) lies in the background, without numbers, and becomes
records a little at a time: so reports never wait behind much of it.

The spool is a small SQLite database (`spool_file`, `spool_table`) behind one thread that commits in groups
(`spool_worker`). Only what must not be lost makes it commit at once: log records, and the dropping of what was
confirmed, wait a moment to ride along. `LogForwarding` puts every record of the daemon's log into the spool.
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

_log = structlog.get_logger("corral.daemon.spool")


class Spool:
    """Durable, ordered, bounded. All methods may be called from the event loop; none blocks it.

    Those that are awaited raise Retryable STORE_UNAVAILABLE when the disk refuses, and have then
    changed nothing.
    """

    def __init__(self, table: SpoolTable, *, entropy: Entropy) -> None:
        self._table = table
        self._entropy = entropy
        self._on_growth: Callable[[], None] | None = None
        self._worker = SpoolWorker(table, on_growth=self._grown)
        self._worker.start()

    @classmethod
    def open(cls, directory: pathlib.Path, *, entropy: Entropy, log_bytes: int, max_bytes: int) -> Spool:
        """Open or make the spool. A damaged one is put aside, and we say so; Retryable when the disk
        does not let us open it, and then it is left as it is."""
        table = open_table(directory, entropy=entropy, log_bytes=log_bytes, max_bytes=max_bytes)
        return cls(table, entropy=entropy)

    @property
    def spool_id(self) -> str:
        """Names the numbering: the same id and number is the same record."""
        return self._table.committed.spool_id

    @property
    def sent(self) -> int:
        """The highest number that was ever handed out for sending; nobody can have confirmed more."""
        return self._table.committed.sent

    @property
    def head(self) -> int:
        """The highest number ever given to a record."""
        return self._table.committed.highest

    @property
    def through(self) -> int:
        """Everything up to this number was confirmed. What the last moments before a crash confirmed is known
        again when the controller greets."""
        return max(self._worker.dropping, self._table.committed.forgotten)

    def confirmed(self, number: int) -> bool:
        """Has the controller stored the record of this number?"""
        return number <= self.through

    def on_growth(self, callback: Callable[[], None] | None) -> None:
        """Called from the spool's thread whenever records were added."""
        self._on_growth = callback

    def stream(self, on: bool) -> None:
        """A sender is there that takes each record at once, or is not any more. Only for a controller
        that was found to have confirmed no more than `sent`: meanwhile additions raise that mark."""
        self._table.streaming = on

    def log(self, body: bytes) -> None:
        """Keep a log record, as well as can be: never blocks, never fails, counts what it gives up. It
        is on disk with the next record that must not be lost, at the latest a moment later."""
        self._worker.post(lambda table: table.add_log(body))

    async def put(self, body: bytes) -> int:
        """Keep a record that must not be lost; returns its number once it is on disk."""
        number: int = await self._ask(lambda table: table.add_state(body))
        return number

    async def put_background(self, body: bytes) -> int:
        """Keep what must not be lost, and may wait: order among these is kept, and everything else goes before
        them but for a little. Returns its id among these once it is on disk."""
        id: int = await self._ask(lambda table: table.add_background(body))
        return id

    def background_confirmed(self, id: int) -> bool:
        """Has the controller stored what `put_background` answered with this id? A moment late."""
        return id <= self._table.committed.background_confirmed

    async def take(self, after: int, *, limit: int) -> list[Spooled]:
        """The oldest records on disk after this number that are not confirmed, to be sent."""
        after = max(after, self._worker.dropping)
        look = self._worker.look(lambda table: table.take(after, limit))
        found: list[Spooled] = await asyncio.wrap_future(look)
        return found

    def confirm(self, through: int) -> None:
        """The controller has stored everything up to this number. It is dropped with what is written
        next, before that asks for room. A crash until then has it sent again, which does no harm."""
        self._worker.drop(min(through, self.head))

    async def start_over(self, *, confirmed: int) -> None:
        """Take a new id, because the controller has more of the present one than was ever sent: this
        disk was put back to an earlier state, and its numbers would mean two things."""
        former, fresh = self.spool_id, new_id("spool", self._entropy)
        await self._ask(lambda table: table.rename(fresh, confirmed=confirmed))
        _log.warning("spool.started_over", spool=fresh, former=former, confirmed=confirmed)

    async def close(self) -> None:
        """Write what is queued, then close. Whoever comes afterwards is refused."""
        await asyncio.to_thread(self._worker.close)

    async def _ask(self, work: Work) -> Any:
        return await asyncio.wrap_future(self._worker.ask(work))

    def _grown(self) -> None:
        callback = self._on_growth  # it may be taken away while we are here
        if callback is not None:
            callback()


def open_spool(config: DaemonConfig, entropy: Entropy) -> Spool:
    """The spool of this node, as its configuration bounds it; as `Spool.open`."""
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
