"""The daemon's log on its way to the controller: every record goes into the spool first."""

from __future__ import annotations

from corral.daemon.link.spool import Spool
from corral.domain.records import LogRecord
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import DaemonLogRecord


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
