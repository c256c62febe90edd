"""Publishes events of a node's modules through the spool: they survive an outage and arrive once, in order."""

from __future__ import annotations

import collections
from typing import Final, Protocol

from corral.errors import Code, Retryable
from corral.modules.scope import Scope
from corral.modules.services.event_rules import EventPace, published_data
from corral.sdk.protocol.messages import Publish, Published
from corral.system.clock import Clock
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.module_pb2 import EventPublish

MODULE_BYTES: Final = 1024 * 1024
"""Bytes of events of one module that may wait for the controller."""
_SPAN_BYTES: Final = 65_536


class EventSpool(Protocol):
    async def put_background(self, body: bytes) -> int:
        """Spool an event behind everything that must be reported; returns its id once it is on disk."""

    def background_confirmed(self, id: int) -> bool:
        """Has the controller stored the event of this id?"""


class _Waiting:
    """Bytes of one module in the spool, as far as this daemon knows."""

    def __init__(self) -> None:
        self.spans: collections.deque[tuple[int, int]] = collections.deque()
        """Spans of records: the number of the last one, and their bytes."""
        self.bytes = 0

    def kept(self, number: int, size: int) -> None:
        if self.spans and self.spans[-1][1] < _SPAN_BYTES:
            size += self.spans.pop()[1]
        self.spans.append((number, size))


class EventPublisher:
    """Serves `events.publish`."""

    def __init__(
        self, spool: EventSpool, *, pace: EventPace, clock: Clock, module_bytes: int = MODULE_BYTES
    ) -> None:
        self._spool = spool
        self._pace = pace
        self._clock = clock
        self._module_bytes = module_bytes
        self._waiting: dict[str, _Waiting] = {}

    async def publish(self, scope: Scope, asked: Publish) -> Published:
        """Spool an event; returns when it is on this node's disk. Its cursor is not known here.
        UNKNOWN_EVENT_TYPE, INVALID_FIELD, STORE_UNAVAILABLE when the disk refuses or too much waits for the
        controller."""
        data = published_data(asked, scope.manifest.events)
        await self._pace.turn(scope.module_id, len(data))
        event = EventPublish(
            event_type=asked.type,
            payload_json=data,
            module_id=scope.module_id,
            subject=asked.subject,
            published_at_ms=int(self._clock.now().timestamp() * 1000),
        )
        body = DaemonMessage(event_publish=event).SerializeToString()
        waiting = self._room(scope.module_id, len(body))
        waiting.bytes += len(body)
        try:
            waiting.kept(await self._spool.put_background(body), len(body))
        except BaseException:
            waiting.bytes -= len(body)
            raise
        return Published(cursor="")

    def _room(self, module_id: str, size: int) -> _Waiting:
        waiting = self._waiting.setdefault(module_id, _Waiting())
        while waiting.spans and self._spool.background_confirmed(waiting.spans[0][0]):
            waiting.bytes -= waiting.spans.popleft()[1]
        if waiting.bytes + size > self._module_bytes:
            raise Retryable(
                Code.STORE_UNAVAILABLE,
                f"{waiting.bytes} bytes of events of module '{module_id}' wait for the controller already",
                hint="publish less while the controller is away",
                retry_after=1.0,
            )
        return waiting
