"""Log records and error reports of nodes as they are stored: every text bounded."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Final

from corral.domain.events import Draft, EventType
from corral.domain.ids import NodeId
from corral.domain.node_claims import reported_time
from corral.domain.records import LogRecord
from corral.wire.v1.node_pb2 import DaemonLogRecord, ErrorReport

_LEVELS: Final = frozenset({"TRACE", "DEBUG", "INFO", "WARN", "ERROR"})
_MAX_MESSAGE: Final = 16 * 1024
_MAX_THROWABLE: Final = 64 * 1024
_MAX_FIELDS: Final = 64
_MAX_FIELD: Final = 2048
_MAX_REPORT: Final = 1000


def log_record(record: DaemonLogRecord, now: dt.datetime) -> LogRecord:
    """A daemon's log record as it is stored: bounded, and with a valid time."""
    fields = dict(itertools.islice(record.mdc.items(), _MAX_FIELDS))
    return LogRecord(
        at=reported_time(record.timestamp_ms, now) or now,
        level=record.level if record.level in _LEVELS else "INFO",
        logger=record.logger[:_MAX_FIELD],
        thread=record.thread[:_MAX_FIELD],
        message=record.message[:_MAX_MESSAGE],
        throwable=record.throwable[:_MAX_THROWABLE],
        fields={key[:_MAX_FIELD]: value[:_MAX_FIELD] for key, value in fields.items()},
        dropped_before=record.dropped_before,
    )


def error_event(node_id: NodeId, report: ErrorReport, *, suppressed: int) -> Draft:
    """The event of a node's error report; `suppressed` reports before it made none."""
    return Draft(
        type=EventType.NODE_ERROR_REPORTED,
        subject=node_id,
        data={
            "code": report.error_code[:_MAX_REPORT],
            "message": report.error_message[:_MAX_REPORT],
            "context": report.context[:_MAX_REPORT],
            "suppressed_before": suppressed,
        },
    )
