"""Which types of events the controller was told that this node wants: the difference, and not every change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from corral.system.aio.token_bucket import TokenBucket
from corral.system.clock import Clock
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.module_pb2 import EventCursor, EventSubscribe, EventUnsubscribe

BURST: Final = 256
PER_SECOND: Final = 20.0
_LATER_SECONDS: Final = 0.1


class TypesTold:
    """Tells at once while changes are few. A module that subscribes and unsubscribes without end is told of only
    so often: what waits to be sent must not come to end the connection of the whole node."""

    def __init__(
        self,
        *,
        wanted: Callable[[], Collection[str]],
        send: Callable[[DaemonMessage], bool],
        clock: Clock,
    ) -> None:
        self._wanted = wanted
        self._send = send
        self._told: set[str] | None = None
        """None: there is no connection."""
        self._bucket = TokenBucket(burst=BURST, per_second=PER_SECOND, monotonic=clock.monotonic)
        self._later: asyncio.TimerHandle | None = None

    def begin(self, after: EventCursor | None) -> None:
        """A connection: everything at once, from where the last one was cut."""
        types = sorted(self._wanted())
        self._told = set(types)
        if types:
            self._send(DaemonMessage(event_subscribe=EventSubscribe(event_types=types, after=after)))

    def end(self) -> None:
        """Without a connection nothing is told. Idempotent."""
        self._told = None
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def changed(self) -> None:
        """Other types are wanted than were."""
        if self._told is None or self._later is not None or set(self._wanted()) == self._told:
            return
        if self._bucket.take():
            self._tell(self._told)
        else:
            self._later = asyncio.get_running_loop().call_later(_LATER_SECONDS, self._again)

    def _again(self) -> None:
        self._later = None
        self.changed()

    def _tell(self, told: set[str]) -> None:
        wanted = set(self._wanted())
        new, gone = sorted(wanted - told), sorted(told - wanted)
        self._told = wanted
        if new:
            self._send(DaemonMessage(event_subscribe=EventSubscribe(event_types=new)))
        if gone:
            self._send(DaemonMessage(event_unsubscribe=EventUnsubscribe(event_types=gone)))
