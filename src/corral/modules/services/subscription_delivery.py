"""Delivery of events from a host to one subscription of a module: in batches, one delivery at a time.

The same on both hosts. The source of the events and the position of a subscription are the host's own.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec
import structlog

from corral.domain.events import DATA_DEPTH, OMITTED, Event, EventType
from corral.domain.json_limits import deeper_than
from corral.errors import Code, Rejected, Retryable
from corral.modules.scope import Scope
from corral.modules.services.event_rules import EVENTS_MISSED, name_of, subject_of
from corral.sdk.protocol.messages import DELIVER, Delivery, EventBody, Nothing
from corral.system.aio.backoff import doubled

SUBSCRIPTION: Final = "subscription"
"""Kind of registration in a scope."""
MAX_SUBSCRIPTIONS: Final = 64
BATCH: Final = 32
BATCH_BYTES: Final = 1024 * 1024
LONGEST_DELIVERY: Final = 30.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
ATTEMPTS: Final = 5
"""Most deliveries of the same event to a subscription that insists, before the event is skipped with a log
record."""
_BUSY_SECONDS: Final = 0.1
_log = structlog.get_logger("corral.modules.services")

WeighedEvent = tuple[EventBody, int]
"""An event as modules receive it, and its approximate size."""


class SubscriptionDelivery:
    """The deliveries of one subscription; to be used by one task. With `insists`, a failed delivery is
    repeated."""

    def __init__(self, scope: Scope, number: int, *, insists: bool = False) -> None:
        self._scope = scope
        self._number = number
        self._insists = insists

    async def deliver(self, events: Iterable[WeighedEvent]) -> None:
        """Deliver all events in order, in batches that fit into a frame. Returns when each is confirmed or
        given up; an exception of the module is logged, not raised."""
        batch: list[EventBody] = []
        size = 0
        for body, weight in events:
            if batch and size + weight > BATCH_BYTES:
                await self._hand_over(batch)
                batch, size = [], 0
            batch.append(body)
            size += weight
        if batch:
            await self._hand_over(batch)

    async def _hand_over(self, batch: list[EventBody]) -> None:
        """Deliver a batch until it is confirmed or given up. With `insists`, a failed batch is repeated event
        by event."""
        if await self._offered(batch) or not self._insists:
            return
        for body in batch:
            for attempt in range(ATTEMPTS):
                await asyncio.sleep(doubled(_FIRST_PAUSE, attempt, longest=_LONGEST_PAUSE))
                if await self._offered([body]):
                    break
            else:
                _log.error(
                    "module_event.lost",
                    module=self._scope.module_id,
                    type=body.type,
                    cursor=body.cursor,
                    attempts=ATTEMPTS + 1,
                )

    async def _offered(self, batch: list[EventBody]) -> bool:
        """One delivery. A busy module is waited for: it delays only itself."""
        while True:
            await self._scope.until_serving()
            try:
                await self._scope.call(
                    f"event:{batch[0].type}",
                    DELIVER,
                    Delivery(subscription=self._number, events=tuple(batch)),
                    answer=Nothing,
                    deadline=min(LONGEST_DELIVERY, self._scope.hook_deadline * len(batch)),
                    target=f"subscription:{self._number}",
                )
            except Retryable as error:
                if error.code is Code.MODULE_BUSY:
                    await asyncio.sleep(_BUSY_SECONDS)
                    continue
                if error.code is Code.MODULE_NOT_ACTIVE:
                    await asyncio.Event().wait()  # its scope is about to be closed, which cancels this task
                return self._failed(batch, error)
            except Exception as error:  # also of the host: the next event is delivered
                return self._failed(batch, error)
            return True

    def _failed(self, batch: list[EventBody], error: Exception) -> bool:
        if (unsaid := self._scope.quota.admit("event_failed")) is not None:
            _log.warning(
                "module_event.failed",
                module=self._scope.module_id,
                type=batch[0].type,
                events=len(batch),
                reason=(str(error) or repr(error))[:500],
                unsaid=unsaid,
            )
        return False


def check_room(scope: Scope, number: int, taken: Collection[tuple[int, int]]) -> None:
    """Check whether the module may have another subscription; `taken` are those of all modules, by scope and
    number."""
    if (id(scope), number) in taken:
        raise Rejected(Code.ALREADY_EXISTS, f"subscription {number} is there already")
    if sum(1 for owner, _ in taken if owner == id(scope)) >= MAX_SUBSCRIPTIONS:
        raise Rejected(
            Code.RATE_LIMITED,
            f"module '{scope.module_id}' has {MAX_SUBSCRIPTIONS} subscriptions already",
            hint="subscribe to several types at once",
        )


def event_body(event: Event) -> WeighedEvent:
    """The event's body; one that is too large for a frame comes without its data, marked as such. Never
    raises."""
    own = event.type is EventType.MODULE_EVENT
    data: dict[str, Any] = event.data.get("data", {}) if own and OMITTED not in event.data else event.data
    weight, why = _weight(data), ""
    if weight is None:
        why = "the data of this event cannot be encoded"
        _log.error("event_read.failed", cursor=str(event.cursor), type=name_of(event))
    elif weight > BATCH_BYTES:
        why = "the event is too large for a module"
    if why or weight is None:
        data, weight = {OMITTED: why}, 400
    body = EventBody(
        type=name_of(event),
        subject=subject_of(event),
        at=event.at,
        cursor=str(event.cursor),
        data=data,
        node=str(event.data.get("node", "")) if own else "",
    )
    return body, weight


def _weight(data: dict[str, Any]) -> int | None:
    """Approximate size in a frame; None for data that cannot be encoded, as a row of an earlier version may
    hold."""
    if not isinstance(data, dict):
        return None
    try:
        return None if deeper_than(data, DATA_DEPTH) else len(msgspec.msgpack.encode(data)) + 300
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def missed_body(*, after: str, until: str, at: dt.datetime) -> WeighedEvent:
    """Body that reports missed events between these two cursors."""
    body = EventBody(
        type=EVENTS_MISSED, subject="", at=at, cursor=until, data={"after": after, "until": until}
    )
    return body, 400
