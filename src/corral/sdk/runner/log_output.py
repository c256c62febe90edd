"""The module's log lines on their way to the host: bounded in size and rate."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from corral.sdk.protocol.frame_limits import body_problem
from corral.sdk.protocol.framing import encode_body
from corral.sdk.protocol.messages import LOG, LogLine
from corral.sdk.runner.failures import traceback_of

MAX_LINE: Final = 4096
LINES_A_SECOND: Final = 50
BURST: Final = 500
"""The host takes as much of each module, and counts for itself."""
_SHORT_LINE: Final = 1000
_SHORT_TRACEBACK: Final = 8000
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_FIELDS: Final = 32


class LogBridge(logging.Handler):
    """Sends what it may and counts the rest, which is told with the next line that is sent."""

    def __init__(
        self, say: Callable[[str, object], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._say = say
        self._clock = clock
        self._guard = threading.RLock()
        self._allowance = float(BURST)
        self._counted_at = clock()
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = _line(record)
        except BaseException as error:  # a `__str__` of the module's may raise anything
            kind, place = type(error).__name__, f"{record.pathname}:{record.lineno}"
            line = LogLine(
                level="ERROR", message=clean(f"a log line cannot be formatted: {kind}, in {place}")
            )
        self.line(line)

    def line(self, line: LogLine) -> None:
        with self._guard:
            if not self._allowed():
                self._dropped += 1
                return
            line = _fitting(line)
            dropped, self._dropped = self._dropped, 0
            if dropped:
                self._say(
                    LOG, LogLine(level="WARNING", message=f"{dropped} lines were dropped: too many at once")
                )
            if not self._say(LOG, line):
                self._dropped += dropped + 1

    def _allowed(self) -> bool:
        now = self._clock()
        self._allowance = min(BURST, self._allowance + (now - self._counted_at) * LINES_A_SECOND)
        self._counted_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True


def _fitting(line: LogLine) -> LogLine:
    """Within what the host takes, whatever the characters are: the end of a traceback says most."""
    if not body_problem(LOG, encode_body(line)):
        return line
    return LogLine(
        level=line.level[:_SHORT_LINE],
        message=clean(line.message, _SHORT_LINE),
        traceback=line.traceback[-_SHORT_TRACEBACK:],
    )


def clean(text: str, size: int = MAX_LINE) -> str:
    """Encodable, and not longer than that."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= size else text[:size] + " …"


def _line(record: logging.LogRecord) -> LogLine:
    extra = {name: value for name, value in vars(record).items() if name not in _USUAL}
    fields = {clean(name, 64): clean(str(value), 1024) for name, value in list(extra.items())[:_MAX_FIELDS]}
    if not record.name.startswith("module:"):
        fields["logger"] = clean(record.name, 200)
    error = record.exc_info[1] if record.exc_info else None
    return LogLine(
        level=record.levelname,
        message=clean(record.getMessage()),
        fields=fields,
        traceback=traceback_of(error) if error is not None else "",
    )
