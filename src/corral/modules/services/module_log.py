"""Log lines of modules: written to the host's log under `module:ID`, at a bounded rate, with a tail in the
scope.

A module that floods is not ended for it, and its lines never push out those of others: lines above the rate
are counted and reported in one line.
"""

from __future__ import annotations

from typing import Final

import msgspec

from corral.modules.scope import Scope
from corral.modules.services.host_operations import NoticeHandler
from corral.sdk.protocol.messages import LOG, LogLine
from corral.sdk.runner.log_output import BURST, LINES_A_SECOND, MAX_LINE
from corral.system.aio.token_bucket import TokenBucket
from corral.system.clock import Clock
from corral.system.logger import Logger, logger

_TRACEBACK_MAX: Final = 16_384
_FIELD_MAX: Final = 1024
_FIELDS_MAX: Final = 32
_TAIL_LINE_MAX: Final = 500
_RESERVED: Final = frozenset({"event", "exc_info", "stack_info", "module", "version"})
_DECODER: Final = msgspec.msgpack.Decoder(LogLine)


class _ModuleLogger:
    """Log output of one module."""

    def __init__(self, module_id: str, clock: Clock) -> None:
        self._log: Logger = logger(f"module:{module_id}")
        self._bucket = TokenBucket(burst=BURST, per_second=LINES_A_SECOND, monotonic=clock.monotonic)
        self._dropped = 0

    def log(self, line: LogLine, *, version: str) -> None:
        if not self._bucket.take():
            self._dropped += 1
            return
        if self._dropped:
            self._log.warning("module_log.skipped", lines=self._dropped)
            self._dropped = 0
        fields: dict[str, str] = {"version": version}
        for name, value in list(line.fields.items())[:_FIELDS_MAX]:
            fields[f"{name}_" if name in _RESERVED else name[:100]] = value[:_FIELD_MAX]
        if line.traceback:
            fields["traceback"] = line.traceback[-_TRACEBACK_MAX:]
        getattr(self._log, _LEVELS.get(line.level.upper(), "info"))(line.message[:MAX_LINE], **fields)


_LEVELS: Final = {
    "TRACE": "trace",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "WARNING": "warning",
    "ERROR": "error",
    "CRITICAL": "critical",
}


class ModuleLogs:
    """Log output of all modules of a host. The rate belongs to a module, not to a process: a restart gives no
    new credit."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._loggers: dict[str, _ModuleLogger] = {}

    def notices(self) -> dict[str, NoticeHandler]:
        return {LOG: self.take}

    def take(self, scope: Scope, body: msgspec.Raw) -> None:
        """Take in a `LogLine`; an invalid one is ignored."""
        try:
            line = _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        scope.log_tail.append(_tail_line(line))
        output = self._loggers.get(scope.module_id)
        if output is None:
            output = self._loggers[scope.module_id] = _ModuleLogger(scope.module_id, self._clock)
        output.log(line, version=scope.version)

    def forget(self, module_id: str) -> None:
        """Forget a removed package."""
        self._loggers.pop(module_id, None)


def _tail_line(line: LogLine) -> str:
    text = f"{line.level.upper()[:8]} {line.message[:_TAIL_LINE_MAX]}"
    if line.traceback:
        text += " | " + line.traceback.strip().rpartition("\n")[2][:_TAIL_LINE_MAX]
    return text
