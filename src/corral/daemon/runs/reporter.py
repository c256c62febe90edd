"""Reports about runs to the controller: in order, and never lost.

`report` does not wait: a message goes into the spool as soon as the disk accepts it, before any later one; a callback
reports that it is stored. While the disk refuses, messages go over the live link at once and into the spool later: of
the states of one instance only the last that was sent so, because an earlier one would be received as a new state.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from corral.domain.causes import cause_of
from corral.errors import CorralError
from corral.system import log_context
from corral.wire.v1.link_pb2 import DaemonMessage

_RETRY_SECONDS: Final = 1.0
_AT_ONCE: Final = 64
_log = structlog.get_logger("corral.daemon.runs")

Spooled = Callable[[int], None]


class ReportSpool(Protocol):
    async def put(self, body: bytes) -> int:
        """Keep a record; returns its number once it is on disk."""


class _Report:
    """A message that is not in the spool yet."""

    __slots__ = ("message", "sent", "spooled")

    def __init__(self, message: DaemonMessage, spooled: Spooled | None) -> None:
        self.message = message
        self.spooled = spooled
        self.sent = False
        """Over the live link."""

    @property
    def state_of(self) -> str:
        """The instance whose state it reports, if nothing else depends on the message; else empty."""
        status = self.message.instance_status if self.message.HasField("instance_status") else None
        return status.instance_id if status is not None and self.spooled is None else ""


class Reporter:
    """A queue before the spool, which `run` moves."""

    def __init__(
        self, spool: ReportSpool, *, live: Callable[[DaemonMessage], bool] = lambda _: False
    ) -> None:
        """`live` sends to the connected controller; False when there is none."""
        self._spool = spool
        self._live = live
        self._waiting: deque[_Report] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._delayed = False

    def report(self, message: DaemonMessage, *, spooled: Spooled | None = None) -> None:
        """Queue a message; `spooled` is called with its number once it is on disk. It names the request that led to
        it."""
        if not message.cause:
            message.cause = cause_of(log_context.bound_request())
        self._waiting.append(_Report(message, spooled))
        self._idle.clear()
        self._wake.set()
        if self._delayed:
            self._send_live()

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
        puts = [self._spool.put(each.message.SerializeToString()) for each in batch]
        results = await asyncio.gather(*puts, return_exceptions=True)
        for report, result in zip(batch, results, strict=True):
            if isinstance(result, BaseException):
                await self._delay(result)
                return  # those behind it may be stored already: a repeated report is better than one out of order
            if (
                self._waiting and self._waiting[0] is report
            ):  # else it was sent live, and a later state after it
                self._waiting.popleft()
            if report.spooled is not None:
                report.spooled(result)
        self._delayed = False

    async def _delay(self, error: BaseException) -> None:
        if not isinstance(error, CorralError):
            # A fault of ours: reporting goes on, or no exit would ever be reported again.
            _log.error("report.failed", exc_info=error)
        elif not self._delayed:
            self._delayed = True
            _log.error("report.retried", waiting=len(self._waiting), reason=str(error))
        self._send_live()
        await asyncio.sleep(_RETRY_SECONDS)

    def _send_live(self) -> None:
        for report in self._waiting:
            if not report.sent and self._live(report.message):
                report.sent = True
        sent = [report for report in self._waiting if report.sent]
        last = {id: report for report in sent if (id := _instance(report.message))}
        self._waiting = deque(
            report
            for report in self._waiting
            if not report.sent or not report.state_of or last[report.state_of] is report
        )


def _instance(message: DaemonMessage) -> str:
    """The instance whose state or exit it reports."""
    return message.instance_status.instance_id if message.HasField("instance_status") else ""
