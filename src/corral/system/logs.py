"""The log of the process: structlog on top, the standard library's `logging` below.

Our own code calls `logger(__name__).info("node.online", node=node_id)`; records of libraries that use
`logging` take the same way. Every record is masked, then goes to a ring in memory, to the sinks, to
`<directory>/<role>.log` and to stderr; none of these ever makes the caller wait.
"""

from __future__ import annotations

import atexit
import datetime as dt
import logging
import os
import pathlib
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

import structlog

from corral.domain.records import LogRecord
from corral.errors import encodable
from corral.system.log_context import bound_ids
from corral.system.log_mask import mask_fields, mask_text
from corral.system.log_output import (
    FILE_BYTES,
    FILE_COUNT,
    LogWriter,
    RotatingFile,
    as_human,
    as_json,
    stream_write,
)
from corral.system.log_ring import LogRing
from corral.system.logger import (
    FIELDS_ATTRIBUTE,
    LEVELS,
    PROCESSORS,
    Logger,
    level_name,
    level_number,
    logger,
)

__all__ = ["LEVELS", "LogRing", "Logger", "Logs", "Sink", "logger", "start_logging"]

Sink = Callable[[LogRecord], None]

_MAX_MESSAGE: Final = 16_384
_MAX_THROWABLE: Final = 32_768
_CLOSE_SECONDS: Final = 3.0
_LAST_WRITE_SECONDS: Final = 1.0


def start_logging(
    *,
    role: str,
    directory: pathlib.Path,
    level: str,
    format: str,
    ring_records: int = 10_000,
    stream: TextIO | None = None,
    file_bytes: int = FILE_BYTES,
    file_count: int = FILE_COUNT,
) -> Logs:
    """Start logging. Refuses an unknown level.

    `directory` is made if it is missing (`DATA/logs`); `stream` is stderr unless given. A file that cannot be
    written does not prevent the start: the failure goes to stderr and to every sink, and writing is retried
    with each record. The caller owns the result and closes it; at the latest the interpreter's exit does.
    """
    level_number(level)
    file = RotatingFile(directory / f"{role}.log", limit=file_bytes, count=file_count)
    target = stream if stream is not None else sys.stderr
    human = as_human(colour=target.isatty() and not os.environ.get("NO_COLOR"))
    writers = (
        LogWriter(name=role, format=as_json, write=_checked_write(file)),
        LogWriter(name="stderr", format=as_json if format == "json" else human, write=stream_write(target)),
    )
    logs = Logs(level=level, ring=LogRing(capacity=ring_records), file=file, writers=writers)
    if file.problem:
        _log_problem(file)
    return logs


def _checked_write(file: RotatingFile) -> Callable[[bytes], None]:
    """Writes to the file, and logs when that begins to fail, and when it works again."""

    def write(content: bytes) -> None:
        before = file.problem
        try:
            file.write(content)
        finally:
            if file.problem != before:
                _log_problem(file)

    return write


def _log_problem(file: RotatingFile) -> None:
    log = logger("corral.system")
    if file.problem:
        log.error("log_write.failed", path=str(file.path), reason=file.problem)
    else:
        log.info("log_write.recovered", path=str(file.path))


class Logs:
    """The running log of this process, from `start_logging` to `close`."""

    def __init__(
        self, *, level: str, ring: LogRing, file: RotatingFile, writers: tuple[LogWriter, ...]
    ) -> None:
        self.ring: Final = ring
        self._configured_level = level
        self._file = file
        self._writers = writers
        self._handler = _Spreader(ring=ring, writers=writers)
        self._closed = False
        root = logging.getLogger()
        self._former_level = root.level
        self._former_structlog = structlog.get_config() if structlog.is_configured() else None
        structlog.configure(
            processors=list(PROCESSORS),
            wrapper_class=Logger,
            logger_factory=lambda name="corral", *_: logging.getLogger(name),
            cache_logger_on_first_use=False,
        )
        root.addHandler(self._handler)
        root.setLevel(level_number(level))
        atexit.register(self.close)

    @property
    def level(self) -> str:
        """The level in force."""
        return level_name(logging.getLogger().level)

    @property
    def dropped(self) -> int:
        """Records that the file or stderr was too slow, or unable, to take."""
        return sum(writer.dropped for writer in self._writers)

    @property
    def problem(self) -> str:
        """Why the file cannot be written at the moment; empty: it can."""
        return f"{self._file.path} cannot be written: {self._file.problem}" if self._file.problem else ""

    def set_level(self, level: str) -> None:
        """Switch at run time; "" goes back to the configured level."""
        logging.getLogger().setLevel(level_number(level or self._configured_level))

    def add_sink(self, sink: Sink) -> Callable[[], None]:
        """Pass every later record to `sink`, in order, in the thread that logged it.

        A sink must be quick and thread-safe; its exceptions are swallowed and its own records do not go to
        sinks. Returns the function that removes it.
        """
        return self._handler.add_sink(sink)

    def flush(self, *, timeout: float = _CLOSE_SECONDS) -> bool:
        """Block until all that was logged is written; not for an event loop."""
        flushed = [writer.flush(timeout=timeout) for writer in self._writers]
        return all(flushed)

    def close(self) -> None:
        """Write what is queued, end the threads, and leave `logging` as it was found. Idempotent."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self.flush(timeout=_LAST_WRITE_SECONDS)  # a write that fails, or works again, is logged as well
        root = logging.getLogger()
        root.removeHandler(self._handler)
        root.setLevel(self._former_level)
        self._handler.close()
        if self._former_structlog is None:
            structlog.reset_defaults()
        else:
            structlog.configure(**self._former_structlog)
        ended = [writer.close(timeout=_CLOSE_SECONDS) for writer in self._writers]
        if ended[0]:  # a thread that still hangs in a write keeps its descriptor
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Spreader(logging.Handler):
    """Converts a stdlib record to ours, once, and passes it to every output."""

    def __init__(self, *, ring: LogRing, writers: tuple[LogWriter, ...]) -> None:
        super().__init__()
        self._ring = ring
        self._writers = writers
        self._sinks: tuple[Sink, ...] = ()
        self._inside = threading.local()

    def add_sink(self, sink: Sink) -> Callable[[], None]:
        self._sinks = (*self._sinks, sink)

        def remove() -> None:
            self._sinks = tuple(kept for kept in self._sinks if kept is not sink)

        return remove

    def emit(self, record: logging.LogRecord) -> None:
        try:
            converted = _converted(record)
        except Exception:  # logging must never break its caller
            self.handleError(record)
            return
        self._ring.append(converted)
        for writer in self._writers:
            writer.put(converted)
        self._feed_sinks(converted)

    def _feed_sinks(self, record: LogRecord) -> None:
        if getattr(self._inside, "sink", False):
            return  # a sink that logs would feed itself for ever
        self._inside.sink = True
        try:
            for sink in self._sinks:
                try:
                    sink(record)
                except Exception:
                    self.handleError(logging.makeLogRecord({"msg": "a log sink failed"}))
        finally:
            self._inside.sink = False


def _converted(record: logging.LogRecord) -> LogRecord:
    fields = getattr(record, FIELDS_ATTRIBUTE, None)
    if fields is None:  # a library's record: it has no bound ids
        fields = bound_ids()
    return LogRecord(
        at=dt.datetime.fromtimestamp(record.created, dt.UTC),
        level=level_name(record.levelno),
        logger=encodable(record.name),
        message=_cut(mask_text(encodable(_message(record))), _MAX_MESSAGE),
        thread=encodable(record.threadName or ""),
        throwable=_cut(mask_text(encodable(_throwable(record))), _MAX_THROWABLE),
        fields={encodable(name): encodable(value) for name, value in mask_fields(fields).items()},
    )


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # a library's format does not fit its arguments: still worth reading
        return f"{record.msg} {record.args!r}"


def _throwable(record: logging.LogRecord) -> str:
    parts: list[str] = []
    if record.exc_info and record.exc_info[0] is not None:
        parts += traceback.format_exception(*record.exc_info)
    if record.stack_info:
        parts.append(record.stack_info)
    return "".join(parts)


def _cut(text: str, limit: int) -> str:
    """The beginning and the end: both matter in a traceback."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"
