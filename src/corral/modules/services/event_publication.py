"""What a module may tell, and how large it may be; the same on both hosts."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from corral.domain.json_limits import MAX_DEPTH, deeper_than
from corral.domain.module_manifest import EventsPart
from corral.errors import Code, Rejected
from corral.modules.services.event_names import check_published
from corral.sdk.protocol.messages import Publish
from corral.system.aio.token_bucket import TokenBucket
from corral.system.clock import Clock

DATA_BYTES: Final = 65_536
SUBJECT_MAX: Final = 200
BYTES_PER_SECOND: Final = 1024 * 1024
BURST_SECONDS: Final = 5
"""Of its rate a module may spend so much at once."""


class EventPace:
    """How fast each module may publish: some at once, then so many and so many bytes a second. Whoever is faster
    waits, and is not refused: its own calls are all that it holds up."""

    def __init__(self, *, per_second: float, clock: Clock) -> None:
        self._per_second = per_second
        self._clock = clock
        self._modules: dict[str, tuple[TokenBucket, TokenBucket]] = {}

    async def turn(self, module_id: str, size: int) -> None:
        """Returns when the module may publish an event of this size."""
        events, bytes = self._modules.get(module_id) or self._new(module_id)
        while (pause := max(events.wait(), bytes.wait())) > 0:
            await asyncio.sleep(pause)
        events.spend(1)
        bytes.spend(size)

    def _new(self, module_id: str) -> tuple[TokenBucket, TokenBucket]:
        pair = self._modules[module_id] = self._bucket(self._per_second), self._bucket(BYTES_PER_SECOND)
        return pair

    def _bucket(self, per_second: float) -> TokenBucket:
        monotonic = self._clock.monotonic
        return TokenBucket(burst=BURST_SECONDS * per_second, per_second=per_second, monotonic=monotonic)


def published_data(asked: Publish, allowed: EventsPart) -> bytes:
    """The event's data as JSON. UNKNOWN_EVENT_TYPE, INVALID_FIELD for what may not be told."""
    check_published(asked.type, allowed)
    if len(asked.subject) > SUBJECT_MAX:
        raise Rejected(
            Code.INVALID_FIELD, f"the subject is longer than {SUBJECT_MAX} characters", field="subject"
        )
    return encoded_data(asked.data)


def encoded_data(data: dict[str, Any]) -> bytes:
    """The data of an event as JSON. INVALID_FIELD unless everybody on its way can carry it: not too deep,
    before anything is encoded, and neither too large nor with numbers that not every encoder knows."""
    if deeper_than(data, MAX_DEPTH):
        raise Rejected(
            Code.INVALID_FIELD,
            f"the data of an event is nested deeper than {MAX_DEPTH} levels",
            hint="tell less, or flatten it",
            field="data",
        )
    try:
        encoded = msgspec.json.encode(data)
        msgspec.msgpack.encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Rejected(
            Code.INVALID_FIELD, f"the data of an event must be JSON: {error}", field="data"
        ) from None
    if len(encoded) > DATA_BYTES:
        raise Rejected(
            Code.INVALID_FIELD,
            f"the data of an event has {len(encoded)} bytes, at most {DATA_BYTES} are taken",
            hint="store it as a document and tell its id",
            field="data",
        )
    return encoded
