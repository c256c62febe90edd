"""Log output: the format of a record (one JSON object per line for machines, one aligned line for people),
and the threads that write to a file or a terminal, behind bounded queues.

A caller that logs never waits: a full queue drops the record and counts it, and the next record that is
written contains how many are missing before it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import queue
import threading
from collections.abc import Callable
from typing import Final, TextIO

import msgspec

from corral.domain.records import LogRecord
from corral.errors import counted
from corral.system import log_text

_COLOURS: Final = {"TRACE": "2", "DEBUG": "2", "INFO": "32", "WARN": "33", "ERROR": "31"}
_encoder: Final = msgspec.json.Encoder()


def as_json(record: LogRecord) -> bytes:
    return _encoder.encode(record) + b"\n"


def as_human(*, colour: bool) -> Callable[[LogRecord], bytes]:
    """A line for a terminal, and the lines of a traceback indented below it. Untrusted text cannot move its cursor,
    nor forge a line or a field: see `log_text`."""

    def line_of(record: LogRecord) -> bytes:
        time = record.at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
        level = f"{record.level:<5}"
        if colour:
            level = f"\x1b[{_COLOURS.get(record.level, '0')}m{level}\x1b[0m"
        source = log_text.word(record.logger)
        line = f"{time} {level} {source}: {log_text.message(record.message)}"
        line += log_text.fields(record.fields.items())
        if record.dropped_before:
            line += f" ({counted(record.dropped_before, 'record')} lost before this one)"
        if record.throwable:
            line += log_text.indented(record.throwable)
        return line.encode("utf-8", "backslashreplace") + b"\n"

    return line_of


QUEUE_RECORDS: Final = 20_000
FILE_BYTES: Final = 10 * 1000 * 1000
FILE_COUNT: Final = 10
_BATCH: Final = 256
_GATHER_SECONDS: Final = 0.01
"""How long a record may wait for others to be written with it: a thread that is woken for each of them costs more
than what it writes."""
_AT_ONCE: Final = frozenset({"WARN", "ERROR"})

Write = Callable[[bytes], None]
Format = Callable[[LogRecord], bytes]


class LogWriter:
    """One thread that formats records and hands the bytes to `write`, in order, a few milliseconds late; warnings and
    errors at once."""

    def __init__(self, *, name: str, format: Format, write: Write, limit: int = QUEUE_RECORDS) -> None:
        self._format = format
        self._write = write
        self._limit = limit
        # SimpleQueue, not Queue: its put is re-entrant, a finaliser that logs cannot deadlock
        self._queue: queue.SimpleQueue[LogRecord | threading.Event | None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._hurry: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Not empty: the next write waits for nothing more."""
        self._missing = 0
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name=f"log/write/{name}", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """How many records were not written since the start."""
        return self._dropped

    def put(self, record: LogRecord) -> None:
        """Never blocks, from any thread."""
        with self._lock:
            if self._queue.qsize() >= self._limit:
                self._lose(1)
                return
            if self._missing:
                record = msgspec.structs.replace(record, dropped_before=self._missing)
                self._missing = 0
            self._queue.put(record)
        if record.level in _AT_ONCE:
            self._write_soon()

    def flush(self, *, timeout: float) -> bool:
        """Wait until all records queued before are written; False when that took too long."""
        written = threading.Event()
        self._queue.put(written)
        self._write_soon()
        return written.wait(timeout)

    def close(self, *, timeout: float) -> bool:
        """Write the queue and end the thread; False when it hangs in a write that does not return."""
        self._queue.put(None)
        self._write_soon()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _write_soon(self) -> None:
        if self._hurry.empty():
            self._hurry.put(None)

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, LogRecord) and self._queue.qsize() < _BATCH:
                with contextlib.suppress(queue.Empty):
                    self._hurry.get(timeout=_GATHER_SECONDS)
            batch: list[LogRecord] = []
            while isinstance(item, LogRecord):
                batch.append(item)
                if len(batch) >= _BATCH or self._queue.empty():
                    break
                item = self._queue.get()
            self._write_batch(batch)
            if isinstance(item, threading.Event):
                item.set()
            elif item is None:
                return

    def _write_batch(self, batch: list[LogRecord]) -> None:
        lines: list[bytes] = []
        counted = 0
        for record in batch:
            try:
                lines.append(self._format(record))
            except Exception:  # one record that cannot be written must not take others with it
                self._lose(1 + record.dropped_before)
            else:
                counted += 1 + record.dropped_before
        if not lines:
            return
        try:
            self._write(b"".join(lines))
        except Exception:  # a full disk or a closed terminal must not end the thread
            self._lose(counted)

    def _lose(self, count: int) -> None:
        with self._lock:
            self._missing += count
            self._dropped += count


class RotatingFile:
    """`controller.log`, then `controller.log.1` … `.9`: at most `count` files of about `limit` bytes.

    A file that was moved or deleted is opened anew; a line that a crash cut short is ended by the next write.
    The constructor writes nothing, and never fails: a log that cannot be written is no reason for anything
    else to fail. `problem` is why the last write failed.
    """

    def __init__(self, path: pathlib.Path, *, limit: int = FILE_BYTES, count: int = FILE_COUNT) -> None:
        self.path: Final = path
        self._limit = limit
        self._count = count
        self._descriptor = -1
        self._size = 0
        self._torn = False
        self.problem = ""
        """Why nothing can be written at the moment; empty: it can."""
        try:
            self._open()
        except OSError as error:
            self.problem = _words(error)

    def write(self, content: bytes) -> None:
        """Write all of it, or nothing: a part that fitted on a full disk is truncated again."""
        try:
            self._write(content)
        except OSError as error:
            self.problem = _words(error)
            raise
        self.problem = ""

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, content: bytes) -> None:
        if self._descriptor < 0 or self._is_gone():
            self._open()
        if self._size and self._size + len(content) > self._limit:
            self._rotate()
        view = memoryview(b"\n" + content if self._torn else content)
        before = self._size
        try:
            while view:
                written = os.write(self._descriptor, view)
                self._size += written
                view = view[written:]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, before)
            self._measure()
            raise
        self._torn = False

    def _open(self) -> None:
        self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self.path, flags, 0o600)
        self._measure()

    def _measure(self) -> None:
        self._size = os.fstat(self._descriptor).st_size
        self._torn = bool(self._size) and os.pread(self._descriptor, 1, self._size - 1) != b"\n"

    def _is_gone(self) -> bool:
        try:
            named = self.path.stat()
        except FileNotFoundError:
            return True
        held = os.fstat(self._descriptor)
        return (named.st_ino, named.st_dev) != (held.st_ino, held.st_dev)

    def _rotate(self) -> None:
        self.close()
        for number in range(self._count - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number - 1}") if number > 1 else self.path
            if older.exists():
                older.replace(self.path.with_name(f"{self.path.name}.{number}"))
        self._open()


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def stream_write(stream: TextIO) -> Write:
    """Write to a text stream, such as stderr, and flush it."""

    def write(content: bytes) -> None:
        stream.write(content.decode("utf-8", "replace"))
        stream.flush()

    return write
