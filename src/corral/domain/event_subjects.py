"""What an event is about: the resource that it tells of, its group and its node. Filters, scopes and the resources in
streams ask here."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

from corral.domain.events import Event, EventType


class ResourceKind(enum.StrEnum):
    """Resources that an event can be about."""

    INSTANCE = "instance"
    GROUP = "group"
    NODE = "node"
    DEPLOYMENT = "deployment"
    MODULE = "module"


_FAMILIES: Final[Mapping[str, ResourceKind]] = {
    "INSTANCE": ResourceKind.INSTANCE,
    "GROUP": ResourceKind.GROUP,
    "CRASH": ResourceKind.GROUP,
    "NODE": ResourceKind.NODE,
    "DEPLOYMENT": ResourceKind.DEPLOYMENT,
    "MODULE": ResourceKind.MODULE,
}
_OTHERS: Final = frozenset({EventType.MODULE_EVENT, EventType.MODULE_STORAGE_DROPPED})
"""Events of a family that are not about the present state of its resource."""
KINDS: Final[Mapping[EventType, ResourceKind]] = {
    type: kind
    for type in EventType
    if type not in _OTHERS and (kind := _FAMILIES.get(type.partition("_")[0])) is not None
}
"""By type, the kind of resource whose id is the event's subject."""


def group_of(event: Event) -> str:
    """The group that an event is about, or that its data names; empty: none."""
    if KINDS.get(event.type) is ResourceKind.GROUP:
        return event.subject
    return _text(event.data, "group")


def node_of(event: Event) -> str:
    """The node that an event is about, or that its data names; empty: none."""
    if KINDS.get(event.type) is ResourceKind.NODE:
        return event.subject
    return _text(event.data, "node") or _text(event.data, "node_id")


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
