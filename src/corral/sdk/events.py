"""Events of the cluster, and events that a module publishes."""

from __future__ import annotations

import asyncio
import builtins
import datetime as dt
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from corral.sdk.protocol.messages import (
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Delivery,
    Nothing,
    Publish,
    Published,
    Subscribe,
    Unsubscribe,
)
from corral.sdk.runner_port import HostLink, Invoke

T = TypeVar("T")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event. `type` is a stable name (`GROUP_CREATED`; a module's own: `ID/NAME`), `subject` the object it
    is about, `cursor` its place in the order of all events.

    ```python
    async def on_group(event: Event) -> None:
        ctx.logger.info("%s: %s", event.type, event.subject)
    ```
    """

    type: str
    subject: str
    at: dt.datetime
    cursor: str
    data: dict[str, Any] = {}
    node: str = ""
    """Node on which a module published it; empty for all other events."""

    def data_as(self, kind: builtins.type[T]) -> T:
        """`data` as a struct of yours; raises msgspec.ValidationError."""
        return msgspec.convert(self.data, kind)


EventHandler: TypeAlias = Callable[[Event], object]
"""`def` or `async def`; its result is ignored."""


class Subscription:
    """Lasts until it is cancelled or the module stops.

    ```python
    subscription = await ctx.events.subscribe("GROUP_CREATED", on_group)
    await subscription.cancel()
    ```
    """

    def __init__(self, bus: EventBus, number: int, types: tuple[str, ...]) -> None:
        self._bus = bus
        self._number = number
        self.types = types

    async def cancel(self) -> None:
        """No event is delivered after this. Cancelling twice is harmless."""
        await self._bus._unsubscribe(self._number)


class EventBus:
    """`ctx.events`. Events of one subscription are delivered one at a time, in their order.

    ```python
    async def on_start(self, ctx):
        await ctx.events.subscribe(["INSTANCE_RUNNING", "INSTANCE_CRASHED"], self.on_instance)
        await ctx.events.publish("ROUND_OVER", {"winner": "red"}, subject="lobby-3")
    ```
    """

    def __init__(self, link: HostLink) -> None:
        self._link = link
        self._numbers = itertools.count(1)
        self._handlers: dict[int, EventHandler] = {}

    async def subscribe(
        self,
        types: str | Sequence[str],
        handler: EventHandler,
        *,
        subjects: str | Sequence[str] = (),
        durable: str | bool = False,
    ) -> Subscription:
        """Subscribe from now on. `subjects`: exact ones, none means any. `durable` (on the controller) stores
        the position under a name, True under that of the types: events of the meantime are delivered after a
        restart, and events on which the handler raised are delivered again."""
        requested = _tuple(types)
        number = next(self._numbers)
        name = ",".join(sorted(requested)) if durable is True else (durable or "")
        body = Subscribe(subscription=number, types=requested, subjects=_tuple(subjects), durable=name)
        self._handlers[number] = handler  # before the call: the first event may arrive before its answer
        try:
            await self._link.call(SUBSCRIBE, body, Nothing)
        except BaseException:
            del self._handlers[number]
            raise
        return Subscription(self, number, requested)

    async def publish(self, type: str, data: object = None, *, subject: str = "") -> str:
        """Publish an event. The type has to be in the manifest's `events.publishes`; other modules receive it
        as `ID/TYPE`. `data` is a dict or a struct. Returns its cursor once it is stored."""
        body = Publish(type=type, subject=subject, data=msgspec.to_builtins(data) if data else {})
        return (await self._link.call(PUBLISH, body, Published)).cursor

    async def _unsubscribe(self, number: int) -> None:
        if self._handlers.pop(number, None) is not None:
            await self._link.call(UNSUBSCRIBE, Unsubscribe(subscription=number), Nothing)

    async def _deliver(self, delivery: Delivery, invoke: Invoke) -> None:
        """Every event is passed to the handler, also when it raised on an earlier one; then the first of
        these exceptions is raised."""
        first: BaseException | None = None
        for body in delivery.events:
            handler = self._handlers.get(delivery.subscription)
            if handler is None:  # cancelled while the delivery was on its way
                break
            event = Event(
                type=body.type,
                subject=body.subject,
                at=body.at,
                cursor=body.cursor,
                data=body.data,
                node=body.node,
            )
            try:
                await invoke(f"event {body.type}", handler, event)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                first = first or error
        if first is not None:
            raise first


def _tuple(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
