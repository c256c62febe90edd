"""The frames of the event stream as components of the OpenAPI document: one schema a type, made from the schemas of events.

`EventFrame` is any of them, told apart by `type`. OpenAPI 3.1 has no words for the frames of a stream, so the stream's
answer names it in `x-event`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from corral.controller.events.frames import RESYNC_REQUIRED, EventResource
from corral.domain.event_schemas.catalog import EVENT_SCHEMAS
from corral.domain.event_schemas.schema import EventData
from corral.domain.event_subjects import KINDS
from corral.domain.events import EventType
from corral.domain.field_classes.event_data import EVENT_DATA

FRAME: Final = "EventFrame"
EVENT_MARK: Final = "x-event"
"""Marks the schemas of frames and of their data."""
_REF: Final = "#/components/schemas/{}"
_RESOURCE: Final = EventResource.__name__
_RESYNC: Final = "The position is lost: read the state again. Not in the log."

DATA_TYPES: Final[Mapping[str, type[EventData]]] = {
    schema.data.__name__: schema.data for schema in EVENT_SCHEMAS.values()
}
"""The structs of events' data, by name."""


def event_frames(
    components: Mapping[str, dict[str, Any]], summaries: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The schemas of all frames. `components` have those of the data, which get marks and classes here, and those of
    `summaries`, one of which is in each resource."""
    kinds = [{"$ref": _REF.format(name)} for name in summaries]
    components[_RESOURCE]["properties"]["summary"] = {"anyOf": [*kinds, {"type": "null"}]}
    for type, schema in EVENT_SCHEMAS.items():
        described = components[schema.data.__name__]
        described[EVENT_MARK] = True
        for name, kind in EVENT_DATA[type].items():
            described["properties"][name]["x-class"] = kind.level
    frames = {type: _frame(type) for type in EventType}
    named = {_name(type): frame for type, frame in frames.items()}
    named[_name(RESYNC_REQUIRED)] = _shape(
        RESYNC_REQUIRED, _RESYNC, {"type": "object", "description": "`after`: the position that was lost."}
    )
    mapping = {str(type): _REF.format(_name(type)) for type in (*EventType, RESYNC_REQUIRED)}
    every = {
        "title": FRAME,
        "description": "`data` of a frame of the event stream, by the type of the event.",
        "anyOf": [{"$ref": ref} for ref in mapping.values()],
        "discriminator": {"propertyName": "type", "mapping": mapping},
        EVENT_MARK: True,
    }
    return {**named, FRAME: every}


def _frame(type: EventType) -> dict[str, Any]:
    schema = EVENT_SCHEMAS[type]
    data = {"$ref": _REF.format(schema.data.__name__), "description": "What belongs to this type."}
    shape = _shape(type, schema.meaning, data)
    if type in KINDS:
        shape["properties"]["resource"] = {
            "$ref": _REF.format(_RESOURCE),
            "description": f"The {KINDS[type]}, with `with=resource`.",
        }
    return shape


def _shape(type: str, meaning: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": str(type),
        "description": meaning,
        "type": "object",
        "properties": {
            "id": {
                "type": "string",
                "description": "EPOCH-SEQUENCE, as the frame's `id`.",
                "examples": ["3-1042"],
            },
            "type": {"const": str(type), "description": "Type of the event."},
            "subject": {"type": "string", "description": "Id of what it is about."},
            "at": {"type": "string", "format": "date-time", "description": "When it happened, in UTC."},
            "data": data,
        },
        "required": ["id", "type", "subject", "at", "data"],
        EVENT_MARK: True,
    }


def _name(type: str) -> str:
    return "".join(word.capitalize() for word in type.split("_")) + "Event"
