"""Scopes of callers: what lies outside of one is not there for it.

The subject of a route follows from its path. A route without a subject needs its permission everywhere, unless it is
listed as one that filters what it answers or checks what it is given, or as one that shows nothing of any scope.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

from corral.controller.state.cluster_state import ClusterState
from corral.domain.access import Access
from corral.domain.events import Event
from corral.domain.groups.group import GroupSpec
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

_ANY_NODE: Final = "\0"
"""No name of a node, so that only a scope without nodes covers it, and no pattern."""


class Scoping(enum.Enum):
    """How a route regards the scope of its caller."""

    EVERYWHERE = enum.auto()
    """Its permission has to hold everywhere."""
    FILTERS = enum.auto()
    """Its handler leaves out, or refuses, what is outside."""
    NEUTRAL = enum.auto()
    """It shows nothing that belongs to a group or node."""
    GROUP = enum.auto()
    INSTANCE = enum.auto()
    NODE = enum.auto()
    DEPLOYMENT = enum.auto()
    CRASH = enum.auto()


_SUBJECTS: Final[Mapping[str, tuple[Scoping, str]]] = {
    "/api/v1/groups/{name}": (Scoping.GROUP, "name"),
    "/api/v1/instances/{id}": (Scoping.INSTANCE, "id"),
    "/api/v1/nodes/{id}": (Scoping.NODE, "id"),
    "/api/v1/deployments/{id}": (Scoping.DEPLOYMENT, "id"),
    "/api/v1/crashes/{id}": (Scoping.CRASH, "id"),
}


def scoping_of(path: str) -> Scoping:
    """How the routes of a path regard scopes, as far as the path says so."""
    for start, (scoping, _) in _SUBJECTS.items():
        if path == start or path.startswith(f"{start}/"):
            return scoping
    return Scoping.EVERYWHERE


def check_scope(
    scoping: Scoping,
    access: Access,
    permission: Permission,
    state: ClusterState,
    path: Mapping[str, str],
) -> None:
    """NOT_FOUND for a subject outside of the caller's scope, as for one that does not exist; FORBIDDEN where the
    permission has to hold everywhere."""
    if access.allows_everywhere(permission) or scoping in (Scoping.FILTERS, Scoping.NEUTRAL):
        return
    if scoping is Scoping.EVERYWHERE:
        raise Rejected(
            Code.FORBIDDEN,
            f"'{permission}' is granted within a scope only, and this concerns the whole cluster",
            hint="use a token without a scope",
        )
    noun, covers = _CHECKS[scoping]
    id = next(path[name] for kind, name in _SUBJECTS.values() if kind is scoping)
    if not covers(access, permission, state, id):
        raise Rejected(Code.NOT_FOUND, f"{noun} '{id[:80]}' does not exist")


def _covers_group(access: Access, permission: Permission, state: ClusterState, name: str) -> bool:
    del state
    return access.allows_on_group(permission, name)


def _covers_node(access: Access, permission: Permission, state: ClusterState, id: str) -> bool:
    del state
    return access.allows_on_node(permission, id)


def _covers_instance(access: Access, permission: Permission, state: ClusterState, id: str) -> bool:
    stored = state.instances.find(id)
    return stored is not None and access.allows_on_instance(
        permission, stored.record.group, stored.record.node
    )


def _covers_deployment(access: Access, permission: Permission, state: ClusterState, id: str) -> bool:
    stored = state.deployments.find(id)
    return stored is not None and access.allows_on_group(permission, stored.record.group)


def _covers_crash(access: Access, permission: Permission, state: ClusterState, id: str) -> bool:
    stored = state.crashes.find(id)
    return stored is not None and access.allows_on_instance(
        permission, stored.record.group, stored.record.node
    )


_Covers = Callable[[Access, Permission, ClusterState, str], bool]
_CHECKS: Final[Mapping[Scoping, tuple[str, _Covers]]] = {
    Scoping.GROUP: ("group", _covers_group),
    Scoping.NODE: ("node", _covers_node),
    Scoping.INSTANCE: ("instance", _covers_instance),
    Scoping.DEPLOYMENT: ("deployment", _covers_deployment),
    Scoping.CRASH: ("crash", _covers_crash),
}


def refuse_group_outside(access: Access, permission: Permission, name: str, *, field: str) -> None:
    """FORBIDDEN for a group that is outside of the caller's scope, and that the caller names itself."""
    if not access.allows_on_group(permission, name):
        raise Rejected(
            Code.FORBIDDEN,
            f"'{permission}' is not granted for group '{name[:80]}'",
            hint="choose a name within the scope of the token; 'corral whoami' shows it",
            field=field,
        )


def refuse_document_outside(access: Access, spec: GroupSpec) -> None:
    """FORBIDDEN for the document of a group outside of the caller's scope, and for one whose instances could be placed on
    nodes outside of it."""
    permission, name = Permission.GROUPS_MANAGE, spec.name
    refuse_group_outside(access, permission, name, field="name")
    if spec.parent:
        refuse_group_outside(access, permission, spec.parent, field="parent")
    nodes = spec.nodes or (_ANY_NODE,)
    outside = next((each for each in nodes if not access.allows_on_instance(permission, name, each)), None)
    if outside is not None:
        told = "any node" if outside == _ANY_NODE else f"node '{outside}'"
        raise Rejected(
            Code.FORBIDDEN,
            f"'{permission}' is granted for some nodes only, and group '{name}' could be placed on {told}",
            hint="list nodes within the scope of the token in 'nodes'; 'corral whoami' shows it",
            field="nodes",
        )


def event_filter(access: Access) -> Callable[[Event], bool] | None:
    """Which events a caller gets; None: all that its permissions allow. Of those that belong to no group or node it gets
    none."""
    permission = Permission.EVENTS_READ
    if access.allows_everywhere(permission):
        return None

    def covers(event: Event) -> bool:
        family, data = event.type.partition("_")[0], event.data
        match family:
            case "NODE":
                return access.allows_on_node(permission, event.subject)
            case "GROUP":
                return access.allows_on_group(permission, event.subject)
            case "CRASH" | "DEPLOYMENT":
                return access.allows_on_group(permission, _text(data, "group") or event.subject)
            case "INSTANCE":
                return access.allows_on_instance(permission, _text(data, "group"), _text(data, "node"))
            case _:
                return False

    return covers


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
