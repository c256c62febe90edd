"""Events as they come over the link and as they leave by the spool."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from corral.domain.events import Cursor, Event, EventType
from corral.wire.v1.module_pb2 import EventCursor, ModuleEvent
from corral.wire.v1.node_pb2 import HandshakeAck


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What `payload_json` says: the event as modules see it."""

    type: str
    subject: str
    at: dt.datetime
    data: dict[str, Any] = {}
    node: str = ""


_DECODER = msgspec.json.Decoder(_Told)


def read_cursor(frame: ModuleEvent) -> Cursor | None:
    return _cursor(frame.cursor) if frame.HasField("cursor") else None


def read_head(ack: HandshakeAck) -> Cursor | None:
    """Where the log ended when the session began; None from a controller that does not say."""
    return _cursor(ack.event_head) if ack.HasField("event_head") else None


def _cursor(told: EventCursor) -> Cursor:
    return Cursor(told.epoch, told.sequence)


def read_event(frame: ModuleEvent, cursor: Cursor) -> Event:
    """As the log has it. ValueError for a payload that is none, or of a type nobody knows here."""
    try:
        told = _DECODER.decode(frame.payload_json)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{frame.event_type[:80]}: {error}") from None
    if "/" in told.type:  # what a module told
        data = {"subject": told.subject, "data": told.data, "node": told.node}
        return Event(cursor=cursor, type=EventType.MODULE_EVENT, subject=told.type, at=told.at, data=data)
    type = EventType(told.type)
    return Event(cursor=cursor, type=type, subject=told.subject, at=told.at, data=told.data)


def wire_cursor(cursor: Cursor | None) -> EventCursor | None:
    return None if cursor is None else EventCursor(epoch=cursor.epoch, sequence=cursor.sequence)
