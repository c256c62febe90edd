"""All consoles of this node, as the rest of the daemon uses them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog

from corral.daemon.console.feed import ConsoleKey, ConsoleSource
from corral.daemon.console.growth_watch import GrowthWatch
from corral.daemon.console.queries import Queries
from corral.daemon.console.sender import BatchSender, LineSender, Sender
from corral.daemon.link.connection import LinkConnection
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.wire.v1.instance_pb2 import ConsoleAck, ConsolePosition, ConsoleQuery, ConsoleQueryResult

FLOOR_SECONDS: Final = 1.0
RunLister = Callable[[ConsoleQuery], ConsoleQueryResult]
"""Finds the runs of an instance on disk; in a thread."""
_log = structlog.get_logger("corral.daemon.console")


class NodeConsoles:
    """Sends every attached console to the controller of the current connection and answers queries about them. Use as
    `async with`; all methods belong to the loop's thread and never block.

    It has no state worth storing: the controller sends the position of each console at the beginning of a session, and
    everything else is in the run directories.
    """

    def __init__(self, clock: Clock, *, list_runs: RunLister | None = None) -> None:
        self._clock = clock
        self._list_runs = list_runs
        self._feeds: dict[ConsoleKey, ConsoleSource] = {}
        self._watch: GrowthWatch[ConsoleSource] = GrowthWatch(self._grown)
        self._known: dict[ConsoleKey, ConsolePosition] = {}
        """Positions of the controller at the beginning of the current connection."""
        self._sender: Sender | None = None
        self._queries: Queries | None = None
        self._acknowledging = False
        self._closing = Tasks()
        self._floor: asyncio.TimerHandle | None = None
        self._stack = contextlib.ExitStack()

    async def __aenter__(self) -> NodeConsoles:
        self._stack.enter_context(self._watch)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.on_disconnected()
        try:
            await self._closing.wait()
        finally:
            await self._closing.close()
        self._stack.close()
        for feed in self._feeds.values():
            feed.release()
        self._feeds.clear()

    def attach(
        self, instance_id: str, incarnation: int, directory: str, *, ended: bool = False, nonce: str = ""
    ) -> None:
        """Add this console. One that is attached as `ended` is sent only if the controller names it at the beginning of
        a session, but can be queried. Idempotent."""
        key = ConsoleKey(instance_id, incarnation)
        if key in self._feeds:
            return
        feed = self._feeds[key] = ConsoleSource(key, directory, ended=ended, nonce=nonce)
        _log.debug("console.opened", instance=instance_id, incarnation=incarnation, ended=ended)
        if self._sender is not None and (not ended or key in self._known):
            self._begin(feed)

    def ended(self, instance_id: str, incarnation: int) -> None:
        """Its last byte is on disk: the rest of it is sent, then it is kept for queries only."""
        feed = self._feeds.get(ConsoleKey(instance_id, incarnation))
        if feed is not None and not feed.ended:
            feed.ended = True
            self._grown(feed)

    def detach(self, instance_id: str, incarnation: int) -> None:
        """Its files are about to be removed; unsent output is no longer sent."""
        feed = self._feeds.pop(ConsoleKey(instance_id, incarnation), None)
        if feed is None:
            return
        _log.debug("console.closed", instance=instance_id, incarnation=incarnation, sent=feed.sent)
        self._watch.disarm(feed)
        if self._sender is not None:
            self._sender.removed(feed)
        feed.release()

    def on_connected(self, connection: LinkConnection) -> None:
        """A session began; its HandshakeAck has the controller's positions."""
        self.on_disconnected()
        self._acknowledging = connection.supports.consoles
        if self._acknowledging:
            self._sender = BatchSender(connection, self._watch, self._clock)
        else:
            self._sender = LineSender(connection, self._watch)
        if connection.supports.console_queries:
            self._queries = Queries(connection, self._clock.monotonic)
        self._known = {ConsoleKey(p.instance_id, p.incarnation): p for p in connection.ack.consoles}
        for feed in self._feeds.values():
            if not feed.ended or feed.key in self._known or (feed.sent >= 0 and not feed.settled):
                self._begin(feed)
        self._floor = asyncio.get_running_loop().call_later(FLOOR_SECONDS, self._look_at_all)

    def on_disconnected(self) -> None:
        """The session has ended: nothing is sent until the next. Idempotent."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
            for feed in self._feeds.values():
                feed.release()  # the outage may be long, and an unlinked segment takes space
        if self._floor is not None:
            self._floor.cancel()
            self._floor = None
        if self._queries is not None:
            self._closing.spawn(self._queries.close(), name="console/close")
            self._queries = None

    def on_ack(self, ack: ConsoleAck) -> None:
        """The controller has so much of these consoles. Positions of removed consoles are ignored."""
        if self._sender is None:
            return
        positions: list[tuple[ConsoleSource, int]] = []
        for position in ack.positions:
            feed = self._feeds.get(ConsoleKey(position.instance_id, position.incarnation))
            if feed is not None and feed.sent >= 0:
                feed.watched = position.watched
                positions.append((feed, position.offset))
        self._sender.acknowledged(positions)

    def answer(self, query: ConsoleQuery) -> None:
        """Answer over the data channel of the connection that the query came from."""
        if self._queries is None:
            _log.warning("console_query.refused", instance=query.instance_id, reason="no data channel")
            return
        if query.runs and (list_runs := self._list_runs) is not None:
            self._queries.answer_with(query, lambda: list_runs(query))
            return
        feed = self._feeds.get(ConsoleKey(query.instance_id, query.incarnation))
        self._queries.answer(query, feed.directory if feed is not None else None)

    def _begin(self, feed: ConsoleSource) -> None:
        assert self._sender is not None
        position = self._known.get(feed.key)
        try:
            if self._acknowledging or feed.sent < 0:
                feed.begin(position)
        except OSError as error:
            _log.warning("console_read.failed", instance=feed.key.instance_id, reason=str(error))
            return
        self._sender.grown(feed)

    def _grown(self, feed: ConsoleSource) -> None:
        if self._sender is not None and feed.sent >= 0:
            self._sender.grown(feed)

    def _look_at_all(self) -> None:
        """Periodic check of every console: none depends on the kernel's notifications alone. One that is notified is
        looked at less often."""
        assert self._sender is not None
        self._floor = asyncio.get_running_loop().call_later(FLOOR_SECONDS, self._look_at_all)
        for feed in self._feeds.values():
            if feed.sent < 0 and (not feed.ended or feed.key in self._known):
                self._begin(feed)  # it could not be read earlier
        self._sender.look_at_all([feed for feed in self._feeds.values() if feed.sent >= 0])
