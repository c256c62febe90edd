"""The newest log records in memory, numbered, for readers on an event loop and writers in any thread; and the
interface to the process's log that a service uses."""

from __future__ import annotations

import asyncio
import collections
import itertools
import threading
from collections.abc import Callable
from typing import Protocol

from corral.domain.records import LogRecord


class LogRing:
    """A bounded range of records numbered from 1 without holes; the oldest are dropped first.

    A reader that finds the first number above `after + 1` has missed those between. Numbers start again with
    the process.
    """

    def __init__(self, *, capacity: int) -> None:
        self._records: collections.deque[tuple[int, LogRecord]] = collections.deque(maxlen=capacity)
        self._last = 0
        self._waiters: set[asyncio.Future[None]] = set()
        # re-entrant: a finaliser that logs may run while this very thread holds it
        self._lock = threading.RLock()

    @property
    def last(self) -> int:
        """The number of the newest record; 0 before the first."""
        return self._last

    def append(self, record: LogRecord) -> None:
        with self._lock:
            self._last += 1
            self._records.append((self._last, record))
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            try:
                waiter.get_loop().call_soon_threadsafe(_finish, waiter)
            except RuntimeError:
                continue  # its loop has closed: it has no waiter

    def read(self, after: int, limit: int) -> list[tuple[int, LogRecord]]:
        """Up to `limit` records with numbers above `after`, oldest first."""
        if after >= self._last or limit <= 0:
            return []
        with self._lock:
            held = list(self._records)
        newer = list(itertools.takewhile(lambda item: item[0] > after, reversed(held)))
        newer.reverse()
        return newer[:limit]

    def tail(self, limit: int) -> list[tuple[int, LogRecord]]:
        """The newest `limit` records, oldest first."""
        return self.read(max(0, self._last - limit), limit)

    def wake(self, after: int | None = None) -> asyncio.Future[None]:
        """A future of the running loop, done when a record comes; at once if one above `after` is here.

        Pass the last number that was read: records that came between reading and waiting then end the wait at
        once. Cancel the future, or drop the task that awaits it, to stop waiting.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if after is not None and self._last > after:
                future.set_result(None)
                return future
            self._waiters.add(future)
        future.add_done_callback(self._waiters_discard)
        return future

    def _waiters_discard(self, future: asyncio.Future[None]) -> None:
        with self._lock:
            self._waiters.discard(future)


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class LogPort(Protocol):
    """The running log: its newest records, its level, and its sinks."""

    @property
    def ring(self) -> LogRing: ...

    def set_level(self, level: str) -> None:
        """Switch at run time; "" goes back to the configured level."""

    def add_sink(self, sink: Callable[[LogRecord], None]) -> Callable[[], None]:
        """Pass every later record to `sink`, in the thread that logged it; returns the function that stops
        it."""
