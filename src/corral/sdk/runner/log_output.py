"""Log lines of a module, sent to the host, bounded in size and rate.

Output of the module, its child processes and C code becomes log lines, too.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import selectors
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from corral.sdk.protocol.frame_limits import body_problem
from corral.sdk.protocol.frames import encode_body
from corral.sdk.protocol.messages import LOG, LogLine
from corral.sdk.runner.failures import traceback_of

MAX_LINE: Final = 4096
LINES_A_SECOND: Final = 50
BURST: Final = 500
"""The host accepts the same from each module, and counts for itself."""
_SHORT_LINE: Final = 1000
_SHORT_TRACEBACK: Final = 8000
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_FIELDS: Final = 32


class LogBridge(logging.Handler):
    """Sends lines within the rate and counts the rest, which is reported with the next line."""

    def __init__(
        self, send: Callable[[str, object], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._send = send
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
                self._send(
                    LOG, LogLine(level="WARNING", message=f"{dropped} lines were dropped: too many at once")
                )
            if not self._send(LOG, line):
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
    """Cut to the host's limit, whatever the characters are: the end of a traceback matters most."""
    if not body_problem(LOG, encode_body(line)):
        return line
    return LogLine(
        level=line.level[:_SHORT_LINE],
        message=clean(line.message, _SHORT_LINE),
        traceback=line.traceback[-_SHORT_TRACEBACK:],
    )


def clean(text: str, size: int = MAX_LINE) -> str:
    """Encodable, and cut to this length."""
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


_READ: Final = 64 * 1024
_LEVELS: Final = {1: "INFO", 2: "WARNING"}
_NAMES: Final = {1: "stdout", 2: "stderr"}


class OutputCapture:
    """Replaces the descriptors 1 and 2. Reads in a thread of its own: output printed on the event loop would
    otherwise block that loop for ever once the pipe is full."""

    def __init__(self, send: Callable[[LogLine], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._pending: dict[int, bytes] = {}
        self.thread = threading.Thread(target=self._read_on, name="corral/output", daemon=True)

    def start(self) -> None:
        for descriptor, name in _NAMES.items():
            reading, writing = os.pipe()
            os.set_blocking(reading, False)
            os.dup2(writing, descriptor)
            os.close(writing)
            self._selector.register(reading, selectors.EVENT_READ, descriptor)
            self._pending[descriptor] = b""
            setattr(sys, name, _text(descriptor))
            setattr(sys, f"__{name}__", getattr(sys, name))
        self.thread.start()

    def drain(self) -> None:
        """Send all that was printed so far, unfinished lines too."""
        for name in _NAMES.values():
            with contextlib.suppress(Exception):
                getattr(sys, name).flush()
        with self._lock:
            for key in list(self._selector.get_map().values()):
                self._take(key.fd, key.data)
            for descriptor, rest in self._pending.items():
                if rest:
                    self._send_line(descriptor, rest)
                    self._pending[descriptor] = b""

    def _read_on(self) -> None:
        while True:
            ready = self._selector.select()
            # The memory may be exhausted here as anywhere. Without this thread, printing would hang.
            with contextlib.suppress(MemoryError), self._lock:
                for key, _ in ready:
                    self._take(key.fd, key.data)

    def _take(self, reading: int, descriptor: int) -> None:
        while True:
            try:
                data = os.read(reading, _READ)
            except BlockingIOError:
                return
            if not data:  # the module closed the descriptor, and so did all its children
                self._selector.unregister(reading)
                return
            *lines, rest = (self._pending[descriptor] + data).split(b"\n")
            while len(rest) > MAX_LINE:
                lines.append(rest[:MAX_LINE])
                rest = rest[MAX_LINE:]
            self._pending[descriptor] = rest
            for line in lines:
                self._send_line(descriptor, line)

    def _send_line(self, descriptor: int, line: bytes) -> None:
        text = clean(line.decode("utf-8", "backslashreplace").rstrip("\r"))
        if text:
            fields = {"stream": _NAMES[descriptor]}
            self._send(LogLine(level=_LEVELS[descriptor], message=text, fields=fields))


def _text(descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
