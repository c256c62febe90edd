"""Consoles for a controller that knows single lines only: nothing is acknowledged, so the connection's own
queue is the measure, and what was handed to a connection that ends is not sent again."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from corral.daemon.console.feed import BLOCK_BYTES, Feed
from corral.daemon.console.growth_watch import GrowthWatch
from corral.daemon.link.connection import Connection
from corral.wire.v1.instance_pb2 import ConsoleOutput
from corral.wire.v1.link_pb2 import DaemonMessage

PAUSE_SECONDS: Final = 0.02
QUEUE_MESSAGES: Final = 2000
QUEUE_BYTES: Final = 1 << 20
_BYTES_A_TURN: Final = BLOCK_BYTES // 4
_LINES_A_TURN: Final = 500
_log = structlog.get_logger("corral.daemon.console")


class LineSender:
    """Sends each line as a message, as long as few of them wait."""

    def __init__(self, connection: Connection, watch: GrowthWatch[Feed]) -> None:
        self._connection = connection
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._growing: dict[Feed, None] = {}

    def grown(self, feed: Feed) -> None:
        self._growing[feed] = None
        if self._timer is None:
            self._timer = self._loop.call_later(PAUSE_SECONDS, self._sweep)

    def removed(self, feed: Feed) -> None:
        self._growing.pop(feed, None)

    def acknowledged(self, positions: list[tuple[Feed, int]]) -> None:
        """Nobody acknowledges single lines."""

    def look_at_all(self, feeds: list[Feed]) -> None:
        """The floor; a line that was not finished within it is sent as it is."""
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

    def _send(self, feed: Feed, *, partial: bool) -> bool:
        try:
            lines = feed.next_lines(_BYTES_A_TURN, max_lines=_LINES_A_TURN, partial=partial)
        except OSError as error:
            _log.warning("console.unreadable", instance=feed.key.instance_id, reason=str(error))
            return False  # the floor tries again
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
