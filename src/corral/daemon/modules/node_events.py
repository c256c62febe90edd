"""Events for the modules of a node: subscribe, unsubscribe, publish; and the decoding of event frames.

The controller forwards only the types that a module here has subscribed to, and each event once. Events carry
their cursor in its log; the last one received is the node's position, from which it resumes after a lost
connection. A subscription made before there is a connection begins at the end of the log as of the
connection. One made during a connection begins at the controller's current cursor, which the controller's
answer carries: if the connection is lost before that answer, the number of missed events is unknown, and the
node reports `EVENTS_MISSED` by itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec
import structlog

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.link import Order, Reply
from corral.daemon.modules.event_publisher import EventPublisher, EventSpool
from corral.daemon.modules.subscriptions import NodeEventRing, NodeSubscription, TypeCounts, TypeSubscription
from corral.domain.events import START, Cursor, Event, EventType, MissedEvents, event_type
from corral.domain.field_classes.event_data import NEVER_ON_NODES, OPEN_TO_NODES
from corral.domain.modules.manifest import EventsPart
from corral.errors import Code, Rejected
from corral.modules.scope import Owned, Scope
from corral.modules.services.event_rules import EventPace, name_of, requested_filter
from corral.modules.services.host_operations import Operation
from corral.modules.services.subscription_delivery import SUBSCRIPTION, check_room
from corral.sdk.protocol.messages import (
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Nothing,
    Publish,
    Subscribe,
    Unsubscribe,
)
from corral.system.clock import Clock
from corral.system.config_sections import ModuleHostSection
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import EventCursor, ModuleEvent
from corral.wire.v1.node_pb2 import HandshakeAck

RING_EVENTS: Final = 10_000
RING_BYTES: Final = 16 * 1024 * 1024
_log = structlog.get_logger("corral.daemon.modules")

Key = tuple[int, int]


class NodeEvents:
    """The subscriptions of all modules of this node, each owned by the scope that made it. Listens to
    sessions: each begins with the whole set of types, and frames of an earlier session are ignored."""

    def __init__(
        self,
        *,
        node_id: str,
        spool: EventSpool,
        send: Callable[[DaemonMessage], bool],
        clock: Clock,
        pace: EventPace | None = None,
        ring: NodeEventRing | None = None,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        pace = pace or EventPace(per_second=ModuleHostSection().events_per_second, clock=clock)
        self._publishing = EventPublisher(spool, pace=pace, clock=clock)
        if ring is None:
            ring = NodeEventRing(capacity=RING_EVENTS, capacity_bytes=RING_BYTES)
        self._ring = ring
        self._interests = TypeCounts()
        self._type_subscription = TypeSubscription(types=self._interests.all, send=send, clock=clock)
        self._open: dict[Key, tuple[NodeSubscription, Owned]] = {}
        self._seen: Cursor | None = None
        self._connected = False
        self._cut_off = False
        """A connection was lost, and some of the subscriptions of that time are still open."""
        self.handlers: dict[str, Order] = {"module_event": self._received}

    def operations(self) -> list[Operation]:
        return [
            Operation(method=SUBSCRIBE, body=Subscribe, handler=self._subscribe),
            Operation(method=UNSUBSCRIBE, body=Unsubscribe, handler=self._unsubscribe),
            Operation(method=PUBLISH, body=Publish, handler=self._publishing.publish),
        ]

    async def close(self) -> None:
        """Close all subscriptions: nothing is delivered any more."""
        for key in list(self._open):
            await self._close(key)
        self._type_subscription.end()

    # --- subscriptions --------------------------------------------------------------------------
    async def _subscribe(self, scope: Scope, asked: Subscribe) -> Nothing:
        """Subscribe from now on. UNKNOWN_EVENT_TYPE, FORBIDDEN, NOT_SUPPORTED for a durable one."""
        if asked.durable:
            raise Rejected(
                Code.NOT_SUPPORTED,
                "a subscription on a node cannot be durable",
                hint="subscribe in the module's part on the controller",
                field="durable",
            )
        event_filter = requested_filter(asked.types, asked.subjects, scope.manifest.events)
        _check_declared(event_filter.types, scope.manifest.events)
        check_room(scope, asked.subscription, self._open)
        self._interests.check_room(event_filter.types)
        key = (id(scope), asked.subscription)
        owned = scope.own(SUBSCRIPTION, ",".join(sorted(event_filter.types)[:3]), lambda: self._close(key))
        subscription = NodeSubscription(
            scope,
            asked.subscription,
            event_filter,
            ring=self._ring,
            cursor=self._seen or START,
            clock=self._clock,
        )
        self._open[key] = subscription, owned
        subscription.start()
        self._interests.add(event_filter.types)
        self._type_subscription.changed()
        return Nothing()

    async def _unsubscribe(self, scope: Scope, asked: Unsubscribe) -> Nothing:
        """Close a subscription; no effect when it does not exist."""
        key = (id(scope), asked.subscription)
        found = self._open.get(key)
        if found is not None:
            found[1].release()
            await self._close(key)
        return Nothing()

    async def _close(self, key: Key) -> None:
        found = self._open.get(key)
        if found is None:
            return
        try:
            await found[0].close()
        finally:
            if self._open.pop(key, None) is not None:
                self._interests.remove(found[0].event_filter.types)
                self._type_subscription.changed()
                self._clear_if_unused()

    def _clear_if_unused(self) -> None:
        if not self._open:
            self._ring.clear()
            self._cut_off = False
            if self._connected:  # the next subscription begins from then on
                self._seen = None

    # --- the link -------------------------------------------------------------------------------
    def on_connected(self, connection: LinkConnection) -> None:
        """Subscriptions that were cut off resume from the node's position, if it is known and the controller
        can replay the log. All others begin at the end of the log as of the session."""
        if not self._open:
            self._seen = None
        elif self._cut_off and (self._seen is None or not connection.supports.modules):
            self._missed(read_head(connection.ack))
        elif self._seen is None:
            self._seen = read_head(connection.ack)
        self._type_subscription.begin(wire_cursor(self._seen))
        self._connected = True
        self._cut_off = False

    def on_disconnected(self) -> None:
        """Ignore what still arrives from the old stream: the next session sends it again."""
        self._connected = False
        self._cut_off = bool(self._open)
        self._type_subscription.end()

    def _received(self, _: Reply, message: ControllerMessage) -> None:
        frame = message.module_event
        if not self._connected or not self._open:
            return  # without subscriptions there is no position to resume from
        cursor = read_cursor(frame)
        if frame.missed:
            self._missed(cursor)
        elif cursor is None or self._seen is None or cursor > self._seen:
            self._seen = cursor or self._seen
            if frame.event_type:
                self._take(frame, cursor or self._seen or START)

    def _missed(self, head: Cursor | None) -> None:
        """The controller continues from `head`, also where that is before the node's position: its log was
        restored."""
        missed = MissedEvents(after=self._seen or START, until=head or START)
        self._seen = head
        self._append(missed, 0)

    def _take(self, frame: ModuleEvent, cursor: Cursor) -> None:
        try:
            event = read_event(frame, cursor)
        except ValueError as error:
            _log.warning("node_event.refused", node=self._node_id, reason=str(error)[:500])
            return
        if event.type.value in self._interests or name_of(event) in self._interests:
            self._append(event, len(frame.payload_json))

    def _append(self, item: Event | MissedEvents, size: int) -> None:
        if not self._open:
            return
        self._ring.append(item, size)
        for subscription, _ in self._open.values():
            subscription.wake()


def _check_declared(types: Collection[str], declared: EventsPart) -> None:
    """FORBIDDEN unless the manifest lists them, or lists nothing and they are open: the controller forwards nothing else
    to a node."""
    if not declared.subscribes and not (types and OPEN_TO_NODES.issuperset(types)):
        what = ", ".join(sorted(set(types) - OPEN_TO_NODES)) or "every event"
        raise Rejected(
            Code.FORBIDDEN,
            f"a module on a node subscribes to {what} only if its manifest lists the types, and events.subscribes lists none",
            hint="list the types there; without a list, types whose fields are all open can be subscribed to by name",
            field="types",
        )
    never = sorted(NEVER_ON_NODES.intersection(types))
    if never:
        raise Rejected(
            Code.FORBIDDEN,
            f"events of type {', '.join(never)} never travel to nodes",
            hint="take them out of events.subscribes, and subscribe in the module's part on the controller",
            field="types",
        )


class _EventPayload(msgspec.Struct, frozen=True, kw_only=True):
    """Content of `payload_json`: the event as modules receive it."""

    type: str
    subject: str
    at: dt.datetime
    data: dict[str, Any] = {}
    node: str = ""


_DECODER = msgspec.json.Decoder(_EventPayload)


def read_cursor(frame: ModuleEvent) -> Cursor | None:
    return _cursor(frame.cursor) if frame.HasField("cursor") else None


def read_head(ack: HandshakeAck) -> Cursor | None:
    """End of the log when the session began; None from a controller that does not send it."""
    return _cursor(ack.event_head) if ack.HasField("event_head") else None


def _cursor(received: EventCursor) -> Cursor:
    return Cursor(received.epoch, received.sequence)


def read_event(frame: ModuleEvent, cursor: Cursor) -> Event:
    """The event as in the log. ValueError for an invalid payload or an unknown type."""
    try:
        payload = _DECODER.decode(frame.payload_json)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{frame.event_type[:80]}: {error}") from None
    if "/" in payload.type:  # an event that a module published
        data = {"subject": payload.subject, "data": payload.data, "node": payload.node}
        return Event(
            cursor=cursor, type=EventType.MODULE_EVENT, subject=payload.type, at=payload.at, data=data
        )
    type = event_type(payload.type)
    if type is None:
        raise ValueError(f"{payload.type[:80]} is no event type that is known here")
    return Event(cursor=cursor, type=type, subject=payload.subject, at=payload.at, data=payload.data)


def wire_cursor(cursor: Cursor | None) -> EventCursor | None:
    return None if cursor is None else EventCursor(epoch=cursor.epoch, sequence=cursor.sequence)
