"""Scopes of callers: what lies outside of one is not there for it.

The subject of a route follows from its path. A route without a subject needs its permission everywhere, unless it is
listed as one that filters what it answers or checks what it is given, or as one that shows nothing of any scope.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from corral.controller.http.pipeline.template_scopes import covers_template
from corral.controller.state.cluster_state import ClusterState
from corral.domain.access import ANY, Access
from corral.domain.event_subjects import KINDS, ResourceKind, group_of, node_of
from corral.domain.events import Event
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.groups.placement_checks import numbered_group
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

_CHANGES: Final = frozenset(
    {
        Permission.COMMANDS_EXECUTE,
        Permission.DEPLOYMENTS_MANAGE,
        Permission.GROUPS_MANAGE,
        Permission.INSTANCES_MANAGE,
        Permission.NODES_DRAIN,
        Permission.NODES_MANAGE,
        Permission.NODES_SHUTDOWN,
    }
)
"""Permissions to change a group or node, or to ask it everything, which concerns all of its instances."""


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
    TEMPLATE = enum.auto()
    """One that a group within the scope uses, or that was saved from one."""


_SUBJECTS: Final[Mapping[str, tuple[Scoping, str]]] = {
    "/api/v1/groups/{name}": (Scoping.GROUP, "name"),
    "/api/v1/instances/{id}": (Scoping.INSTANCE, "id"),
    "/api/v1/nodes/{id}": (Scoping.NODE, "id"),
    "/api/v1/deployments/{id}": (Scoping.DEPLOYMENT, "id"),
    "/api/v1/crashes/{id}": (Scoping.CRASH, "id"),
    "/api/configurations/{name}": (Scoping.GROUP, "name"),
    "/api/instances/{id}": (Scoping.INSTANCE, "id"),
    "/api/cluster/nodes/{id}": (Scoping.NODE, "id"),
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
    permission has to hold everywhere, and for changes of a group or node of which only a part is within the scope."""
    if access.allows_everywhere(permission) or scoping in (Scoping.FILTERS, Scoping.NEUTRAL):
        return
    if scoping is Scoping.EVERYWHERE:
        raise only_in_scope(permission)
    noun, covers = _CHECKS[scoping]
    id = _subject(scoping, path)
    if not covers(access, permission, state, id):
        raise not_there(noun, id)
    if permission in _CHANGES:
        _refuse_partly_outside(scoping, access, permission, state, id)


def _subject(scoping: Scoping, path: Mapping[str, str]) -> str:
    """The id of what a path is about."""
    if scoping is Scoping.TEMPLATE:
        return f"{path['group']}/{path['name']}" if "group" in path else path["name"]
    return next(path[name] for kind, name in _SUBJECTS.values() if kind is scoping)


def _refuse_partly_outside(
    scoping: Scoping, access: Access, permission: Permission, state: ClusterState, id: str
) -> None:
    match scoping:
        case Scoping.GROUP:
            refuse_group_partly_outside(access, permission, state, id)
        case Scoping.DEPLOYMENT:
            refuse_group_partly_outside(access, permission, state, state.deployments.require(id).record.group)
        case Scoping.NODE:
            there = (each.record for each in state.instances.of_node(id))
            others = any(
                not access.allows_on_instance(permission, each.group, id) for each in there if _matters(each)
            )
            if others:
                raise Rejected(
                    Code.FORBIDDEN,
                    f"'{permission}' is granted for some groups only, and node '{id}' has instances of others",
                    hint="use a token whose scope names the node and no groups; 'corral whoami' shows it",
                )


def refuse_group_partly_outside(
    access: Access, permission: Permission, state: ClusterState, name: str, *, field: str | None = None
) -> None:
    """FORBIDDEN for a group that has, or could have, instances on nodes outside of the caller's scope."""
    stored = state.groups.find(name)
    if stored is None:
        return
    there = (each.record for each in state.instances.of_group(name))
    nodes = {
        *(stored.record.spec.nodes or (ANY,)),
        *(each.home or each.node for each in there if _matters(each)),
    }
    if not all(access.allows_on_instance(permission, name, each) for each in nodes):
        raise Rejected(
            Code.FORBIDDEN,
            f"'{permission}' is granted for some nodes only, and group '{name}' has, or could have, instances on others",
            hint="use a token whose scope names the group and no nodes; 'corral whoami' shows it",
            field=field,
        )


def _matters(record: InstanceRecord) -> bool:
    """Whether there is something on its node that a change could end: a process, or the directory of a world."""
    return live(record.state) or bool(record.home)


def only_in_scope(permission: Permission) -> Rejected:
    """The refusal of what needs a permission everywhere."""
    return Rejected(
        Code.FORBIDDEN,
        f"'{permission}' is granted within a scope only, and this concerns the whole cluster",
        hint="use a token without a scope",
    )


def not_there(noun: str, id: str) -> Rejected:
    """The refusal of what does not exist for a caller with a scope: without the nearest name, which may be outside."""
    return Rejected(Code.NOT_FOUND, f"{noun} '{id[:80]}' does not exist")


def _covers_group(access: Access, permission: Permission, state: ClusterState, name: str) -> bool:
    return access.allows_on_group(permission, name) and state.groups.find(name) is not None


def _covers_node(access: Access, permission: Permission, state: ClusterState, id: str) -> bool:
    return access.allows_on_node(permission, id) and state.nodes.find(id) is not None


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
    Scoping.TEMPLATE: ("template", covers_template),
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


def refuse_start_outside(
    access: Access, permission: Permission, state: ClusterState, group: str, node: str | None
) -> None:
    """FORBIDDEN for an instance of a group, or on a node, that is outside of the caller's scope, and for one that could be
    placed on such a node; NOT_FOUND."""
    refuse_group_outside(access, permission, group, field="group")
    if state.groups.find(group) is None:
        raise not_there("group", group)
    if node is None:
        refuse_group_partly_outside(access, permission, state, group, field="node")
    elif not access.allows_on_instance(permission, group, node):
        raise Rejected(
            Code.FORBIDDEN,
            f"'{permission}' is not granted for group '{group[:80]}' on node '{node[:80]}'",
            hint="choose a node within the scope of the token; 'corral whoami' shows it",
            field="node",
        )
    elif state.nodes.find(node) is None:
        raise not_there("node", node)


def refuse_references_outside(
    access: Access, document: Mapping[str, Any], before: GroupSpec | None = None
) -> None:
    """FORBIDDEN for a document, as it was sent, that names groups outside of the caller's scope: also those that do not
    exist. References that are there already stay; `before`: the group as it is."""
    known = set(_references(msgspec.to_builtins(before))) if before is not None else set()
    kept = {(field.partition("/")[0], name) for field, name in known}
    for field, name in _references(document):
        if (field.partition("/")[0], name) not in kept:
            managed = field.partition("/")[0] in ("name", "parent", "static_names")
            permission = Permission.GROUPS_MANAGE if managed else Permission.GROUPS_READ
            refuse_group_outside(access, permission, name, field=field)


def _references(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The groups that a document names, with their fields, also by the id of an instance as a static name; what is of
    another type is refused elsewhere."""
    for field in ("name", "parent", "fallback_group"):
        if name := _text(document, field):
            yield field, name
    for field in ("depends_on", "affinity"):
        found = document.get(field)
        for position, each in enumerate(found if isinstance(found, list | tuple) else ()):
            if isinstance(each, Mapping) and (name := _text(each, "group")):
                yield f"{field}/{position}/group", name
    ids = document.get("static_names")
    for position, id in enumerate(ids if isinstance(ids, list | tuple) else ()):
        if isinstance(id, str) and (name := numbered_group(id)):
            yield f"static_names/{position}", name


def refuse_heirs_outside(access: Access, spec: GroupSpec) -> None:
    """FORBIDDEN for a change that a group outside of the caller's scope would inherit. It is named if it can be read."""
    if not access.allows_on_group(Permission.GROUPS_MANAGE, spec.name):
        readable = access.allows_on_group(Permission.GROUPS_READ, spec.name)
        heir = f"group '{spec.name}'" if readable else "a group"
        raise Rejected(
            Code.FORBIDDEN,
            f"{heir} outside of the scope of the token inherits from this one, and would change with it",
            hint="somebody who may manage both has to change it",
        )


def refuse_users_outside(access: Access, state: ClusterState, name: str) -> None:
    """CONFLICT for the removal of a group that others outside of the caller's scope name. They are not named."""
    for other, stored in state.groups.items():
        spec = stored.record.spec
        named = {spec.parent, spec.fallback_group, *(each.group for each in spec.depends_on)}
        if name in named and not access.allows_on_group(Permission.GROUPS_READ, other):
            raise Rejected(
                Code.CONFLICT,
                f"groups outside of the scope of the token inherit from '{name}', depend on it or fall back to it",
                hint="somebody who may manage those has to change them first",
            )


def refuse_document_outside(access: Access, spec: GroupSpec) -> None:
    """FORBIDDEN for the document of a group outside of the caller's scope, and for one whose instances could be placed on
    nodes outside of it."""
    permission, name = Permission.GROUPS_MANAGE, spec.name
    refuse_group_outside(access, permission, name, field="name")
    if spec.parent:
        refuse_group_outside(access, permission, spec.parent, field="parent")
    nodes = spec.nodes or (ANY,)
    outside = next((each for each in nodes if not access.allows_on_instance(permission, name, each)), None)
    if outside is not None:
        told = "any node" if outside == ANY else f"node '{outside}'"
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
        match KINDS.get(event.type):
            case ResourceKind.NODE:
                return access.allows_on_node(permission, event.subject)
            case ResourceKind.GROUP | ResourceKind.DEPLOYMENT:
                return access.allows_on_group(permission, group_of(event))
            case ResourceKind.INSTANCE:
                return access.allows_on_instance(permission, group_of(event), node_of(event))
            case _:
                return False

    return covers


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
