"""Outgoing frames of a module's socket, written by any thread without waiting.

Bytes go to the kernel at once where it takes them: the last log line before a segmentation fault, or
before a loop that never ends, has been sent already. The rest waits for the event loop.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
import threading
from typing import Final

DROP_NOTICES_AT: Final = 1024 * 1024
"""Waiting bytes above which log lines and samples are dropped; calls and answers never are."""


class RunnerOutbox:
    """Frames in the order in which they were put in. Once the socket is broken everything is dropped: the
    reader of the socket reports that."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._sock = sock
        self._loop = loop
        self._lock = threading.RLock()
        self._frames: collections.deque[bytes] = collections.deque()
        self._sent_of_first = 0
        self._waiting = 0
        self._writing = False
        self._watched = False
        self._closed = False

    def put(self, frame: bytes) -> None:
        with self._lock:
            if self._closed:
                return
            self._frames.append(frame)
            self._waiting += len(frame)
            # A finaliser may run anywhere, also while this very thread is within `_write`, and log
            # something. The lock lets it pass; writing must not begin in the middle of a frame.
            if not self._writing:
                self._write()
            if self._frames and not self._watched:
                self._watched = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: nothing reads any more
                    self._loop.call_soon_threadsafe(self._watch)

    def offer(self, frame: bytes) -> bool:
        """Like `put`, unless much is waiting already; False: dropped."""
        if self._waiting > DROP_NOTICES_AT:
            return False
        self.put(frame)
        return True

    def close(self) -> None:
        """Stop writing; to be called on the loop. The socket stays open."""
        with self._lock:
            self._closed = True
            self._frames.clear()
            self._waiting = 0
        if self._watched:
            self._watched = False
            self._loop.remove_writer(self._sock)

    def flush(self, seconds: float) -> None:
        """Wait, off the loop, until everything is written to the kernel; at most so long. The last use of a
        process's socket."""
        with self._lock, contextlib.suppress(OSError):
            self._sock.settimeout(seconds)
            while self._frames:
                self._sock.sendall(memoryview(self._frames[0])[self._sent_of_first :])
                self._frames.popleft()
                self._sent_of_first = 0

    def _write(self) -> None:
        self._writing = True
        try:
            while self._frames:
                first = self._frames[0]
                sent = self._sock.send(memoryview(first)[self._sent_of_first :])
                self._waiting -= sent
                self._sent_of_first += sent
                if self._sent_of_first == len(first):
                    self._frames.popleft()
                    self._sent_of_first = 0
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._closed = True
            self._frames.clear()
        finally:
            self._writing = False

    def _watch(self) -> None:
        if self._watched:
            self._loop.add_writer(self._sock, self._on_writable)

    def _on_writable(self) -> None:
        with self._lock:
            if not self._writing:
                self._write()
            if not self._frames:
                self._watched = False
                self._loop.remove_writer(self._sock)
