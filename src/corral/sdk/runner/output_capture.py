"""What the module prints, line by line, as log lines; also what its child processes and C code print."""

from __future__ import annotations

import contextlib
import io
import os
import selectors
import sys
import threading
from collections.abc import Callable
from typing import Final

from corral.sdk.protocol.messages import LogLine
from corral.sdk.runner.log_output import MAX_LINE, clean

_READ: Final = 64 * 1024
_LEVELS: Final = {1: "INFO", 2: "WARNING"}
_NAMES: Final = {1: "stdout", 2: "stderr"}


class OutputCapture:
    """Takes the place of the descriptors 1 and 2. Reads in a thread of its own: somebody who prints on the
    event loop would otherwise wait for himself once the pipe is full."""

    def __init__(self, say: Callable[[LogLine], None]) -> None:
        self._say = say
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
        """All that was printed so far is told, unfinished lines too."""
        for name in _NAMES.values():
            with contextlib.suppress(Exception):
                getattr(sys, name).flush()
        with self._lock:
            for key in list(self._selector.get_map().values()):
                self._take(key.fd, key.data)
            for descriptor, rest in self._pending.items():
                if rest:
                    self._tell(descriptor, rest)
                    self._pending[descriptor] = b""

    def _read_on(self) -> None:
        while True:
            ready = self._selector.select()
            # The memory may be at an end here as anywhere. Without this thread, who prints would hang.
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
                self._tell(descriptor, line)

    def _tell(self, descriptor: int, line: bytes) -> None:
        text = clean(line.decode("utf-8", "backslashreplace").rstrip("\r"))
        if text:
            fields = {"stream": _NAMES[descriptor]}
            self._say(LogLine(level=_LEVELS[descriptor], message=text, fields=fields))


def _text(descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
