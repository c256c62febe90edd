"""The types of events: what each means, who gets it, and the fields of its data."""

from __future__ import annotations

import functools
from typing import Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.messages.paging import Page
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.state.cluster_state import ClusterState
from corral.domain.event_schemas.catalog import EVENT_SCHEMAS, data_fields
from corral.domain.event_subjects import KINDS, ResourceKind
from corral.domain.events import EventType
from corral.domain.field_classes.event_data import EVENT_DATA, EVENT_PERMISSIONS, NEVER_ON_NODES
from corral.domain.permissions import Permission


class EventFieldShape(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the data of events of a type."""

    name: str
    type: str
    required: bool
    class_: str = msgspec.field(name="class")
    meaning: str
    example: Any


class EventTypeShape(msgspec.Struct, frozen=True, kw_only=True):
    """A type of event."""

    type: EventType
    meaning: str
    permission: Permission
    resource: ResourceKind | None
    to_nodes: bool
    fields: tuple[EventFieldShape, ...]


def _shape(type: EventType) -> EventTypeShape:
    classes = EVENT_DATA[type]
    return EventTypeShape(
        type=type,
        meaning=EVENT_SCHEMAS[type].meaning,
        permission=EVENT_PERMISSIONS.get(type, Permission.EVENTS_READ),
        resource=KINDS.get(type),
        to_nodes=type not in NEVER_ON_NODES,
        fields=tuple(
            EventFieldShape(
                name=field.name,
                type=field.type,
                required=field.required,
                class_=classes[field.name].value,
                meaning=field.meaning,
                example=field.example,
            )
            for field in data_fields(type)
        ),
    )


@functools.cache
def _types() -> tuple[EventTypeShape, ...]:
    """Made when first asked for: it takes some milliseconds."""
    return tuple(_shape(type) for type in EventType)


async def list_types(state: ClusterState, call: ApiCall[None, NoQuery]) -> Page[EventTypeShape]:
    """All of them, also those that the caller does not get."""
    del state, call
    return Page(items=list(_types()), next=None)


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/events/types",
        permission=Permission.EVENTS_READ,
        scope=Scoping.NEUTRAL,
        summary="The types of events, with the fields of their data",
        response=Page[EventTypeShape],
        handler=list_types,
    ),
)
