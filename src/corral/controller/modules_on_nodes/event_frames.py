"""Events as frames for nodes: what a module on the controller receives of the same event, without its
sensitive fields."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.domain.events import OMITTED, Cursor, Event, MissedEvents, former_name
from corral.domain.sensitive_fields import redacted_event
from corral.modules.services.event_rules import EVENTS_MISSED, name_of
from corral.modules.services.subscription_delivery import BATCH_BYTES, event_body, missed_body
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.module_pb2 import EventCursor, ModuleEvent

_KEPT_EVENTS: Final = 256
_KEPT_BYTES: Final = 4 * 1024 * 1024
_ENCODER: Final = msgspec.json.Encoder()


class EventFrames:
    """Encodes the frame of an event once for all nodes that are at the same cursor; caches a few, and clears
    the cache when it is full. A frame is shared: a stream sets its epoch, which is that of the term, and
    nothing else may be changed."""

    def __init__(self) -> None:
        self._kept: dict[Cursor, ControllerMessage] = {}
        self._bytes = 0

    def of_former(self, event: Event) -> ControllerMessage:
        """As `of`, with the name that its type had, for a node that knows no other."""
        return _event_frame(event, former=True) if former_name(event.type) != event.type else self.of(event)

    def of(self, event: Event) -> ControllerMessage:
        known = self._kept.get(event.cursor)
        if known is not None:
            return known
        frame = _event_frame(event)
        size = frame.ByteSize()
        if len(self._kept) >= _KEPT_EVENTS or self._bytes + size > _KEPT_BYTES:
            self._kept.clear()
            self._bytes = 0
        self._kept[event.cursor] = frame
        self._bytes += size
        return frame


def _payload(event: Event, *, former: bool) -> bytes:
    body, _ = event_body(redacted_event(event))  # as for a reader without sensitive fields
    if former:
        body = msgspec.structs.replace(body, type=former_name(body.type))
    payload = _ENCODER.encode(body)
    if len(payload) <= BATCH_BYTES:
        return payload
    omitted = {OMITTED: "the event is too large for a module"}
    return _ENCODER.encode(msgspec.structs.replace(body, data=omitted))


def _event_frame(event: Event, *, former: bool = False) -> ControllerMessage:
    name = former_name(name_of(event)) if former else name_of(event)
    payload = _payload(event, former=former)
    return ControllerMessage(
        module_event=ModuleEvent(event_type=name, payload_json=payload, cursor=wire_cursor(event.cursor))
    )


def missed_frame(missed: MissedEvents, *, at: dt.datetime) -> ControllerMessage:
    body, _ = missed_body(after=str(missed.after), until=str(missed.until), at=at)
    return ControllerMessage(
        module_event=ModuleEvent(
            event_type=EVENTS_MISSED,
            payload_json=_ENCODER.encode(body),
            cursor=wire_cursor(missed.until),
            missed=True,
        )
    )


def position_frame(cursor: Cursor) -> ControllerMessage:
    """Frame without an event: up to this cursor the node has received all its subscribed events."""
    return ControllerMessage(module_event=ModuleEvent(cursor=wire_cursor(cursor)))


def wire_cursor(cursor: Cursor) -> EventCursor:
    return EventCursor(epoch=cursor.epoch, sequence=cursor.sequence)
