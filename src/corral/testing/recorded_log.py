"""A log for services that share a test's process: nothing global, records given by hand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from corral.domain.records import LogRecord
from corral.system.log_ring import LogRing


class RecordedLog:
    """The second adapter of `LogPort`. `levels` remembers every switch."""

    def __init__(self) -> None:
        self.ring = LogRing(capacity=1000)
        self.levels: list[str] = []
        self._sinks: list[Callable[[LogRecord], None]] = []

    def set_level(self, level: str) -> None:
        self.levels.append(level)

    def add_sink(self, sink: Callable[[LogRecord], None]) -> Callable[[], None]:
        self._sinks.append(sink)
        return lambda: self._sinks.remove(sink)

    def write(self, message: str, *, level: str = "INFO", **fields: str) -> None:
        """Log a record as the service itself would."""
        record = LogRecord(
            at=dt.datetime.now(dt.UTC), level=level, logger="test", message=message, fields=fields
        )
        self.ring.append(record)
        for sink in list(self._sinks):
            sink(record)
