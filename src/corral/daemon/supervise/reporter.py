"""Tells the controller what became of runs: in order, and never lost.

Whoever reports does not wait: a message goes into the spool as soon as the disk takes it, before any
that is reported later. Those who must know that it is there pass a callback.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from corral.errors import CorralError
from corral.wire.v1.link_pb2 import DaemonMessage

_RETRY_SECONDS: Final = 1.0
_AT_ONCE: Final = 64
_log = structlog.get_logger("corral.daemon.supervise")

Spooled = Callable[[int], None]


class ReportSpool(Protocol):
    async def put(self, body: bytes) -> int:
        """Keep a record; returns its number once it is on disk."""


class Reporter:
    """A queue before the spool, which `run` moves."""

    def __init__(self, spool: ReportSpool) -> None:
        self._spool = spool
        self._waiting: deque[tuple[bytes, Spooled | None]] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._delayed = False

    def report(self, message: DaemonMessage, *, spooled: Spooled | None = None) -> None:
        """Queue a message; `spooled` is called with its number once it is on disk."""
        self._waiting.append((message.SerializeToString(), spooled))
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._move()
            self._idle.set()

    @property
    def waiting(self) -> int:
        """How many messages are not in the spool yet."""
        return len(self._waiting)

    async def settled(self) -> None:
        """Until everything that was reported is in the spool."""
        await self._idle.wait()

    async def _move(self) -> None:
        """Put what waits, a bounded number at once; the spool commits them together and in order."""
        batch = [self._waiting[position] for position in range(min(_AT_ONCE, len(self._waiting)))]
        puts = [asyncio.ensure_future(self._spool.put(body)) for body, _ in batch]
        results = await asyncio.gather(*puts, return_exceptions=True)
        for (_, spooled), result in zip(batch, results, strict=True):
            if isinstance(result, BaseException):
                await self._delay(result)
                return  # those behind it may be in already: said twice is better than out of order
            self._waiting.popleft()
            if spooled is not None:
                spooled(result)
        self._delayed = False

    async def _delay(self, error: BaseException) -> None:
        if not isinstance(error, CorralError):
            # A fault of ours: nothing is given up for it, or nobody would ever hear of an end again.
            _log.error("instances.report_failed", exc_info=error)
        elif not self._delayed:
            self._delayed = True
            _log.error("instances.reports_delayed", waiting=len(self._waiting), reason=str(error))
        await asyncio.sleep(_RETRY_SECONDS)
