"""Senders of consoles over one connection: in order, each byte once, fair among them, under the credit.

A console that grew is read at once if it was quiet, and then polled until nothing was found for a while: every few
milliseconds while it is watched, less often otherwise and under load. Output that was not acknowledged when the connection ends is
sent again by the next one.

`LineSender` is for a controller that knows single lines only: nothing is acknowledged, so the connection's own queue is
the limit, and lines handed to a connection that ends are not sent again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final, Protocol

import structlog

from corral.daemon.console.feed import BLOCK_BYTES, ConsoleSource, SendCredit
from corral.daemon.console.growing import GrowingConsoles
from corral.daemon.console.growth_watch import GrowthWatch
from corral.daemon.link.connection import LinkConnection
from corral.system.aio.pace import Pace
from corral.system.clock import Clock
from corral.wire.frames import CONSOLE_BLOCKS
from corral.wire.v1.instance_pb2 import ConsoleOutput
from corral.wire.v1.link_pb2 import DaemonMessage

WATCHED_SECONDS: Final = 0.005
UNWATCHED_SECONDS: Final = 0.02
LONGEST_SECONDS: Final = 0.04
"""Under load, both."""
STEP_SECONDS: Final = 0.01
"""Consoles are not all read at once, but in parts so far apart: what is read, sent and passed on together waits for each
other."""
COLD_SECONDS: Final = 0.1
"""A console that did not grow for so long is no longer polled, only watched."""
NOTIFIED_SECONDS: Final = 10.0
"""So often a console is looked at by itself for whose growth the kernel sends a notification."""
BATCH_BYTES: Final = 120 * 1024
"""A batch and its envelope fit into one frame of the link."""
_SMALLEST_SHARE: Final = 4096
_SWEEP_BYTES: Final = 1 << 20
_TIMER_SLACK: Final = 0.001
_PAUSE_PER_COST: Final = 12.0
"""Polling takes a twelfth of a core, until the longest pause is not enough for that. What it finds costs more: to send
it here, and to pass it on there."""
_log = structlog.get_logger("corral.daemon.console")


class Sender(Protocol):
    """Sends consoles that have new output, over one connection."""

    def grown(self, feed: ConsoleSource) -> None:
        """There may be output to send. Never blocks."""

    def removed(self, feed: ConsoleSource) -> None: ...

    def acknowledged(self, positions: list[tuple[ConsoleSource, int]]) -> None:
        """The controller has everything before these offsets."""

    def look_at_all(self, feeds: list[ConsoleSource]) -> None:
        """Periodic check: finds growth for which there was no notification."""

    def close(self) -> None: ...


class BatchSender:
    """For a controller that takes blocks and acknowledges them."""

    def __init__(self, connection: LinkConnection, watch: GrowthWatch[ConsoleSource], clock: Clock) -> None:
        self._connection = connection
        self._watch = watch
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._growing = GrowingConsoles()
        self._swept_at = 0.0
        self._pace = Pace(per_cost=_PAUSE_PER_COST, shortest=WATCHED_SECONDS, longest=LONGEST_SECONDS)
        self._starved = False
        self.credit = SendCredit()

    def grown(self, feed: ConsoleSource) -> None:
        if feed not in self._growing:
            feed.grew_at = self._clock.monotonic()
            self._growing.add(feed)
            self._schedule(self._swept_at + self._step())

    def removed(self, feed: ConsoleSource) -> None:
        self._growing.discard(feed)
        self.credit.lost(feed.forget_under_way())
        self._credit_came()

    def acknowledged(self, positions: list[tuple[ConsoleSource, int]]) -> None:
        for feed, _ in positions:
            self._growing.note(feed)
        departures = [departure for feed, offset in positions for departure in feed.arrived(offset)]
        if departures:
            self.credit.arrived(departures, self._clock.monotonic())
        self._credit_came()

    def look_at_all(self, feeds: list[ConsoleSource]) -> None:
        now = self._clock.monotonic()
        for feed in feeds:
            if feed in self._growing:
                feed.release_old()
            elif self._watch.is_armed(feed) and now - feed.looked_at < NOTIFIED_SECONDS:
                continue
            elif not feed.settled:
                feed.looked_at = now
                if feed.changed_since_quiet():
                    self.grown(feed)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._growing.clear()

    def _credit_came(self) -> None:
        """Continue as soon as there is enough credit for a batch that is worth a frame."""
        if self._starved and self.credit.left >= BATCH_BYTES:
            self._starved = False
            self._schedule(0.0)

    def _pause(self, watched: bool) -> float:
        """Between two polls of a console of this kind."""
        return self._pace.pause if watched else max(UNWATCHED_SECONDS, self._pace.pause)

    def _step(self) -> float:
        """Between two sweeps: each takes the part of the consoles whose turn it is."""
        return min(STEP_SECONDS, self._pace.pause)

    def _schedule(self, at: float) -> None:
        """Sweep at this time, or earlier if that is planned; at once when it is past."""
        if self._starved:
            return
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        now = self._clock.monotonic()
        self._timer_at = max(now, at)
        self._timer = self._loop.call_later(self._timer_at - now, self._sweep)

    def _sweep(self) -> None:
        """Give each console whose turn it is one, repeatedly, until none has more or the credit is used up."""
        self._timer = None
        began, cpu = self._clock.monotonic(), time.thread_time()
        since = max(self._step(), began - self._swept_at)
        turns: deque[ConsoleSource] = deque()
        for watched in (True, False):
            pause = self._pause(watched)
            turns += self._growing.turns(
                watched=watched, before=began + _TIMER_SLACK - pause, part=min(1.0, since / pause)
            )
        self._swept_at = began
        self._send_turns(turns)
        self._pace.ran(due=self._timer_at, began=began, cost=time.thread_time() - cpu)
        for feed in reversed(turns):
            self._growing.add(feed)
        if turns:
            self._schedule(began)
        elif self._growing:
            self._schedule(max(began + self._step(), self._growing.next_at(self._pause)))

    def _send_turns(self, turns: deque[ConsoleSource]) -> None:
        """Send one round; leaves those in `turns` that may have more."""
        message, size, total = DaemonMessage(), 0, 0
        share = self.credit.left // (2 * len(turns)) if turns else 0
        share = min(BLOCK_BYTES, max(_SMALLEST_SHARE, share))
        while turns and total < _SWEEP_BYTES:
            if self.credit.left < share:
                self._starved = True
                break
            if size + share > BATCH_BYTES or len(message.console_batch.blocks) >= CONSOLE_BLOCKS:
                self._connection.send(message)
                message, size = DaemonMessage(), 0
            feed = turns.popleft()
            taken = self._take(feed, message, share)
            size, total = size + taken, total + taken
            if taken >= share // 2:
                turns.append(feed)
        if size:
            self._connection.send(message)

    def _take(self, feed: ConsoleSource, message: DaemonMessage, limit: int) -> int:
        """One block of this console; 0 when it has nothing. A served console goes to the end of the queue."""
        self._growing.discard(feed)
        try:
            size = feed.add_block(message.console_batch, limit)
            if not size and self._swept_at - feed.grew_at >= COLD_SECONDS:
                self._watch.arm(feed, feed.directory)
                feed.note_quiet()
                feed.looked_at = self._swept_at
                # output from before the watch was armed
                size = feed.add_block(message.console_batch, limit, thorough=True)
                if not size:
                    feed.release()
                    return 0
        except OSError as error:
            _log.warning("console_read.failed", instance=feed.key.instance_id, reason=str(error))
            feed.note_unreadable()
            return 0  # the periodic check retries
        self._growing.add(feed, self._swept_at)
        if size:
            feed.grew_at = self._swept_at
            feed.departed(self.credit.departed(size, self._swept_at))
        return size


PAUSE_SECONDS: Final = 0.02
QUEUE_MESSAGES: Final = 2000
QUEUE_BYTES: Final = 1 << 20
_BYTES_A_TURN: Final = BLOCK_BYTES // 4
_LINES_A_TURN: Final = 500


class LineSender:
    """Sends each line as a message, as long as few of them are queued."""

    def __init__(self, connection: LinkConnection, watch: GrowthWatch[ConsoleSource]) -> None:
        self._connection = connection
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._growing: dict[ConsoleSource, None] = {}

    def grown(self, feed: ConsoleSource) -> None:
        self._growing[feed] = None
        if self._timer is None:
            self._timer = self._loop.call_later(PAUSE_SECONDS, self._sweep)

    def removed(self, feed: ConsoleSource) -> None:
        self._growing.pop(feed, None)

    def acknowledged(self, positions: list[tuple[ConsoleSource, int]]) -> None:
        """Single lines are never acknowledged."""

    def look_at_all(self, feeds: list[ConsoleSource]) -> None:
        """The periodic check; a line that was unfinished for that long is sent as it is."""
        for feed in feeds:
            if feed not in self._growing and not feed.settled:
                if self._has_room():
                    self._send(feed, partial=True)
                self.grown(feed)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._growing.clear()

    def _sweep(self) -> None:
        self._timer = None
        for feed in list(self._growing):
            if not self._has_room():
                break
            del self._growing[feed]
            if self._send(feed, partial=feed.ended):
                self._growing[feed] = None
                continue
            self._watch.arm(feed, feed.directory)
            if self._send(feed, partial=feed.ended):
                self._growing[feed] = None
            else:
                feed.release()
        if self._growing:
            self._timer = self._loop.call_later(PAUSE_SECONDS, self._sweep)

    def _send(self, feed: ConsoleSource, *, partial: bool) -> bool:
        try:
            lines = feed.next_lines(_BYTES_A_TURN, max_lines=_LINES_A_TURN, partial=partial)
        except OSError as error:
            _log.warning("console_read.failed", instance=feed.key.instance_id, reason=str(error))
            return False  # the periodic check retries
        for line in lines:
            output = ConsoleOutput(
                instance_id=feed.key.instance_id,
                line=line.text,
                timestamp_ms=line.timestamp_ms,
                incarnation=feed.key.incarnation,
                offset=line.offset,
            )
            self._connection.send(DaemonMessage(console_output=output))
        return bool(lines)

    def _has_room(self) -> bool:
        outbox = self._connection.outbox
        return len(outbox) < QUEUE_MESSAGES and outbox.waiting_bytes < QUEUE_BYTES
