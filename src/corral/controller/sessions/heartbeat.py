"""Pings to one node and their pongs: whether the daemon responds, and the round-trip time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from corral.controller.sessions.live_nodes import SessionFacts
from corral.errors import Code, Retryable
from corral.system.aio.tasks import first_of
from corral.system.clock import Clock
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.node_pb2 import Ping


class Heartbeat:
    """The heartbeat of one stream. A pong counts once, and only for a ping that was sent."""

    def __init__(
        self,
        facts: SessionFacts,
        *,
        send: Callable[[ControllerMessage], bool],
        seconds: float,
        missed_pongs: int,
        clock: Clock,
        on_round_trip: Callable[[float], None],
    ) -> None:
        self._facts = facts
        self._send = send
        self._seconds = seconds
        self._missed_pongs = missed_pongs
        self._clock = clock
        self._on_round_trip = on_round_trip
        self._pinged_at = 0.0
        self._answered = asyncio.Event()
        self._probes = 0
        self._unanswered = 0
        """Intervals in a row without any pong. Probes do not count: many of them in one interval, while the
        first answer is still in flight, are no missed heartbeats."""
        self.pinged = 0
        """The sequence of the last ping."""
        self.ponged = 0
        """The last one that was answered."""

    async def run(self) -> None:
        """Ping until too many stay unanswered: UNREACHABLE."""
        while True:
            if self._unanswered >= self._missed_pongs:
                raise Retryable(
                    Code.UNREACHABLE, f"node '{self._facts.node_id}' left {self._unanswered} pings unanswered"
                )
            self._unanswered += 1
            self._ping()
            await asyncio.sleep(self._seconds)

    def _ping(self) -> None:
        self.pinged += 1
        self._pinged_at = self._clock.monotonic()
        self._send(ControllerMessage(ping=Ping(sequence=self.pinged)))

    def pong(self, sequence: int) -> None:
        if not self.ponged < sequence <= self.pinged:
            return
        self.ponged = sequence
        self._unanswered = 0
        self._answered.set()
        if sequence == self.pinged:
            self._on_round_trip(self._clock.monotonic() - self._pinged_at)

    async def answers(self, *, within: float, over: asyncio.Event) -> bool:
        """Does the daemon respond? Sends a ping, unless another probe is waiting, and waits for any answer; False as
        soon as the stream is over."""
        self._answered.clear()
        if not self._probes:
            self._ping()
        self._probes += 1
        try:
            name = f"session/answer/{self._facts.id}"
            answered, ended = await first_of(self._answered, over, timeout=within, name=name)
            return answered is not None and ended is None
        finally:
            self._probes -= 1
