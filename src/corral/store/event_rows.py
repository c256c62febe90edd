"""How an event lies in a row, as far as both adapters agree.

A row that cannot be read is served with a stand-in: cursors have no holes, and one damaged row must not keep
every reader from all that comes after it.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec

from corral.domain.events import DATA_DEPTH, LEFT_OFF, Cursor, Event, EventType
from corral.domain.nesting import deeper_than
from corral.errors import Code, Rejected

UNREADABLE: Final = "the data of this event cannot be read"
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODER: Final = msgspec.json.Encoder()


def encode_data(data: dict[str, Any]) -> bytes:
    """As it is stored. INVALID_FIELD for what is no JSON, or so deep that not everybody could encode it."""
    try:
        body = None if deeper_than(data, DATA_DEPTH) else _ENCODER.encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Rejected(Code.INVALID_FIELD, f"the data of an event must be JSON: {error}") from None
    if body is None:
        raise Rejected(Code.INVALID_FIELD, f"the data of an event is nested deeper than {DATA_DEPTH} levels")
    return body


def read_event(*, cursor: Cursor, type: str, subject: str, at: dt.datetime, data: bytes | str) -> Event:
    """The event of a row; never raises. Data that cannot be read, or could not be written today, is left off,
    and a type that only another version of Corral knows becomes EVENT_UNREADABLE."""
    read = _read_data(data)
    if type not in EventType.__members__:
        told = {LEFT_OFF: "this version of Corral does not know the event's type", "type": type[:100]}
        return Event(cursor=cursor, type=EventType.EVENT_UNREADABLE, subject=subject, at=at, data=told)
    return Event(cursor=cursor, type=EventType(type), subject=subject, at=at, data=read)


def _read_data(data: bytes | str) -> dict[str, Any]:
    try:
        read = _DECODER.decode(data)
    except (ValueError, RecursionError):
        return {LEFT_OFF: UNREADABLE}
    return {LEFT_OFF: UNREADABLE} if deeper_than(read, DATA_DEPTH) else read
