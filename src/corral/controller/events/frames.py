"""Server-sent events as bytes: the frame of an event, and the other frames of a stream."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec
import structlog
from msgspec import UNSET, UnsetType

from corral.domain.event_subjects import ResourceKind
from corral.domain.events import Cursor, Event, without_data

RESYNC_REQUIRED: Final = "RESYNC_REQUIRED"
"""Not an event of the log: the reader's position is lost and the state it holds is stale."""

MAX_FRAME: Final = 1024 * 1024
_ENCODER: Final = msgspec.json.Encoder()
_log = structlog.get_logger("corral.controller.events")


class EventResource(msgspec.Struct, frozen=True, kw_only=True):
    """The resource that an event is about, as of the event's commit or later. Of one that is gone `summary` is null, and
    `revision` the number of a commit in which it was gone: lower revisions of it are older."""

    kind: ResourceKind
    id: str
    revision: int
    summary: Any


class EventShape(msgspec.Struct, frozen=True, kw_only=True):
    """An event as the API shows it, in lists and as the data of a stream's frame."""

    id: str
    type: str
    subject: str
    at: dt.datetime
    data: dict[str, Any]
    resource: EventResource | UnsetType = UNSET


def event_shape(event: Event, resource: EventResource | None = None) -> EventShape:
    return EventShape(
        id=str(event.cursor),
        type=event.type.value,
        subject=event.subject,
        at=event.at,
        data=event.data,
        resource=UNSET if resource is None else resource,
    )


def framed(event: Event, resource: EventResource | None = None) -> tuple[Event, bytes]:
    """An event and its whole frame, which is encoded once for all readers. Never raises: data that cannot be
    encoded, or is too large for a stream, is removed, from the event as well, and with it the resource."""
    try:
        body = event_frame(event, resource)
        why = "" if len(body) <= MAX_FRAME else "the event is too large for a stream"
    except Exception as error:
        why = "the data of this event cannot be encoded"
        _log.error(
            "event_read.failed", cursor=str(event.cursor), type=event.type.value, reason=repr(error)[:500]
        )
    if why:
        event = without_data(event, why)
        body = event_frame(event)
    return event, body


def event_frame(event: Event, resource: EventResource | None = None) -> bytes:
    """The whole frame of an event that can be encoded."""
    return frame(id=str(event.cursor), event=event.type.value, data=event_shape(event, resource))


def frame(*, id: str, event: str, data: msgspec.Struct) -> bytes:
    """One frame. The encoded JSON has no line breaks, so the data is always a single line."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id.encode(), event.encode(), _ENCODER.encode(data))


def resync_frame(*, head: Cursor, lost: Cursor, at: dt.datetime) -> bytes:
    """A frame that makes a reader load the state again; the following events come after `head`."""
    data = EventShape(id=str(head), type=RESYNC_REQUIRED, subject="", at=at, data={"after": str(lost)})
    return frame(id=str(head), event=RESYNC_REQUIRED, data=data)


def position_frame(comment: str, position: str) -> bytes:
    """A comment that keeps the connection alive and moves the reader's `Last-Event-ID`.

    A frame without data dispatches nothing in a browser, but its id counts: a reader whose filter
    lets little through does not fall out of the log while it is connected.
    """
    return b": %b\nid: %b\n\n" % (comment.encode(), position.encode())


def comment_frame(comment: str) -> bytes:
    return b": %b\n\n" % comment.encode()
