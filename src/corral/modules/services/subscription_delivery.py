"""Events on their last step, from a host to one subscription of a module: in batches, one delivery at a time.

Both hosts hand over alike. Where the events come from, and where a subscription stands, is up to each of them.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec
import structlog

from corral.domain.events import DATA_DEPTH, LEFT_OFF, Event, EventType
from corral.domain.json_limits import deeper_than
from corral.errors import Code, Rejected, Retryable
from corral.modules.scope import Scope
from corral.modules.services.event_rules import EVENTS_MISSED, name_of, subject_of
from corral.sdk.protocol.messages import DELIVER, Delivery, EventBody, Nothing
from corral.system.aio.backoff import doubled

SUBSCRIPTION: Final = "subscription"
"""What a scope calls it."""
MAX_SUBSCRIPTIONS: Final = 64
BATCH: Final = 32
BATCH_BYTES: Final = 1024 * 1024
LONGEST_DELIVERY: Final = 30.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
ATTEMPTS: Final = 5
"""How often the same event is given again to one that insists, before it is given up with a word in the log."""
_BUSY_SECONDS: Final = 0.1
_log = structlog.get_logger("corral.modules.services")

WeighedEvent = tuple[EventBody, int]
"""An event as modules see it, and about how large it is."""


class SubscriptionDelivery:
    """The deliveries of one subscription; to be used by one task. With `insists`, what failed comes again."""

    def __init__(self, scope: Scope, number: int, *, insists: bool = False) -> None:
        self._scope = scope
        self._number = number
        self._insists = insists

    async def deliver(self, events: Iterable[WeighedEvent]) -> None:
        """All of them in their order, in batches that a frame can carry. Returns when each is confirmed or
        given up: what a module raises is its own affair."""
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
        """Confirmed, or given up. A batch that failed comes again one by one to whom insists."""
        if await self._offered(batch) or not self._insists:
            return
        for body in batch:
            for attempt in range(ATTEMPTS):
                await asyncio.sleep(doubled(_FIRST_PAUSE, attempt, longest=_LONGEST_PAUSE))
                if await self._offered([body]):
                    break
            else:
                _log.error(
                    "module.event_given_up",
                    module=self._scope.module_id,
                    type=body.type,
                    cursor=body.cursor,
                    attempts=ATTEMPTS + 1,
                )

    async def _offered(self, batch: list[EventBody]) -> bool:
        """One delivery. A module that is busy is waited for: it holds up nobody but itself."""
        while True:
            await self._scope.until_serving()
            try:
                await self._scope.call(
                    f"event:{batch[0].type}",
                    DELIVER,
                    Delivery(subscription=self._number, events=tuple(batch)),
                    answer=Nothing,
                    deadline=min(LONGEST_DELIVERY, self._scope.hook_deadline * len(batch)),
                )
            except Retryable as error:
                if error.code is Code.MODULE_BUSY:
                    await asyncio.sleep(_BUSY_SECONDS)
                    continue
                if error.code is Code.MODULE_NOT_ACTIVE:
                    await asyncio.Event().wait()  # its scope is about to be closed, and we with it
                return self._failed(batch, error)
            except Exception as error:  # ours included: the subscription goes on with what comes next
                return self._failed(batch, error)
            return True

    def _failed(self, batch: list[EventBody], error: Exception) -> bool:
        if (unsaid := self._scope.quota.admit("event_failed")) is not None:
            _log.warning(
                "module.event_failed",
                module=self._scope.module_id,
                type=batch[0].type,
                events=len(batch),
                reason=(str(error) or repr(error))[:500],
                unsaid=unsaid,
            )
        return False


def check_room(scope: Scope, number: int, taken: Collection[tuple[int, int]]) -> None:
    """Whether the module may have another subscription; `taken` are those of all, by scope and number."""
    if (id(scope), number) in taken:
        raise Rejected(Code.ALREADY_EXISTS, f"subscription {number} is there already")
    if sum(1 for owner, _ in taken if owner == id(scope)) >= MAX_SUBSCRIPTIONS:
        raise Rejected(
            Code.RATE_LIMITED,
            f"module '{scope.module_id}' has {MAX_SUBSCRIPTIONS} subscriptions already",
            hint="subscribe to several types at once",
        )


def event_body(event: Event) -> WeighedEvent:
    """One that no frame could carry comes without its data, and says so. Never raises."""
    own = event.type is EventType.MODULE_EVENT
    data: dict[str, Any] = event.data.get("data", {}) if own and LEFT_OFF not in event.data else event.data
    weight, why = _weight(data), ""
    if weight is None:
        why = "the data of this event cannot be encoded"
        _log.error("event.unreadable", cursor=str(event.cursor), type=name_of(event))
    elif weight > BATCH_BYTES:
        why = "the event is too large for a module"
    if why or weight is None:
        data, weight = {LEFT_OFF: why}, 400
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
    """About how large it is in a frame; None for what cannot be in one, as a row of an earlier version may hold."""
    if not isinstance(data, dict):
        return None
    try:
        return None if deeper_than(data, DATA_DEPTH) else len(msgspec.msgpack.encode(data)) + 300
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def missed_body(*, after: str, until: str, at: dt.datetime) -> WeighedEvent:
    """Says that some events between these two cursors did not reach the subscription."""
    told = EventBody(
        type=EVENTS_MISSED, subject="", at=at, cursor=until, data={"after": after, "until": until}
    )
    return told, 400
