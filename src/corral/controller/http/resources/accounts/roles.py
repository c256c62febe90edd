"""Roles: the fixed ones, and those that administrators make."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.accounts import roles as changes
from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.pipeline.route_table import Mutate, Read, Route
from corral.controller.http.resources.accounts.users import refuse_more
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation
from corral.domain.access import Access, Grant
from corral.domain.accounts.records import RoleRecord, valid_role_name
from corral.domain.permissions import GRANTS, Permission, Role
from corral.errors import Code, Rejected

_ONE: Final = "/api/v1/roles/{name}"
_FIXED: Final = {
    Role.ADMIN: "Everything.",
    Role.OPERATOR: "Runs groups, instances, deployments and templates, and empties nodes.",
    Role.VIEWER: "Reads, without what is sensitive.",
}


class RoleShape(msgspec.Struct, frozen=True, kw_only=True):
    """A role; `users` counts those who have it. A fixed one has no revision."""

    name: str
    fixed: bool
    description: str
    permissions: list[str]
    users: int
    created_at: dt.datetime | None
    created_by: str
    revision: int


class RoleList(msgspec.Struct, frozen=True, kw_only=True):
    """All roles: there are few, so this is one page."""

    items: list[RoleShape]
    next: str | None = None


RoleNameText = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
RoleDescription = Annotated[str, msgspec.Meta(max_length=1000)]
PermissionList = Annotated[tuple[Permission, ...], msgspec.Meta(min_length=1, max_length=200)]


class NewRole(RequestBody, frozen=True, kw_only=True):
    name: RoleNameText
    permissions: PermissionList
    description: RoleDescription = ""


class RoleEdit(RequestBody, frozen=True, kw_only=True):
    permissions: PermissionList | UnsetType = UNSET
    description: RoleDescription | UnsetType = UNSET


def _users(state: ClusterState, name: str) -> int:
    return sum(any(each.role == name for each in stored.record.all_bindings) for stored in state.users)


def _fixed(state: ClusterState, role: Role) -> RoleShape:
    return RoleShape(
        name=role.value,
        fixed=True,
        description=_FIXED[role],
        permissions=sorted(GRANTS[role]),
        users=_users(state, role.value),
        created_at=None,
        created_by="",
        revision=0,
    )


def role_shape(state: ClusterState, stored: StoredRecord[RoleRecord]) -> RoleShape:
    record = stored.record
    return RoleShape(
        name=record.name,
        fixed=False,
        description=record.description,
        permissions=sorted(record.permissions),
        users=_users(state, record.name),
        created_at=record.created_at,
        created_by=record.created_by,
        revision=stored.revision,
    )


async def list_roles(state: ClusterState, call: ApiCall[None, NoQuery]) -> RoleList:
    del call
    own = sorted((role_shape(state, stored) for stored in state.roles), key=lambda each: each.name)
    return RoleList(items=[*(_fixed(state, role) for role in Role), *own])


async def get_role(state: ClusterState, call: ApiCall[None, NoQuery]) -> RoleShape:
    name = call.path["name"]
    if name in Role.__members__:
        return _fixed(state, Role(name))
    return role_shape(state, state.roles.require(name))


def create_role(state: ClusterState, call: ApiCall[NewRole, NoQuery]) -> Mutation:
    asked = call.body
    name = valid_role_name(asked.name)
    if state.roles.find(name) is not None:
        raise Rejected(
            Code.CONFLICT, f"role '{name}' exists already", hint="choose another name", field="name"
        )
    if len(state.roles) >= MOST_ROLES:
        raise Rejected(
            Code.CONFLICT, f"there are {MOST_ROLES} roles already", hint="remove one that is not used"
        )
    _check_grant(call, asked.permissions)
    record = RoleRecord(
        name=name,
        permissions=frozenset(each.value for each in asked.permissions),
        description=asked.description,
        created_at=call.now,
        created_by=call.caller.actor.name,
    )
    return _stored(state, "roles.create", None, record, changes.creation(record), status=201)


def update_role(state: ClusterState, call: ApiCall[RoleEdit, NoQuery]) -> Mutation:
    asked, name = call.body, call.path["name"]
    before = state.roles.require(name).record
    _check_grant(call, before.granted)
    given: dict[str, Any] = {}
    if asked.description is not UNSET:
        given["description"] = asked.description
    if asked.permissions is not UNSET:
        _check_grant(call, asked.permissions)
        given["permissions"] = frozenset(each.value for each in asked.permissions)
    record, steps = changes.update(state, name, **given)
    return _stored(state, "roles.update", before, record, steps)


def delete_role(state: ClusterState, call: ApiCall[None, NoQuery]) -> Mutation:
    steps = changes.removal(state, call.path["name"])
    before = state.roles.require(call.path["name"]).record
    _check_grant(call, before.granted)
    return Mutation(
        action="roles.delete", subject=before.name, steps=steps, status=204, before=_audited(before)
    )


def _check_grant(call: ApiCall[Any, Any], permissions: Iterable[Permission]) -> None:
    """FORBIDDEN for permissions that the caller does not have itself, everywhere: neither to give them to a role, nor to
    take them from those who have it."""
    asked = Access(grants=(Grant(permissions=frozenset(permissions)),))
    refuse_more(asked, call.caller, field="permissions")


def _stored(
    state: ClusterState,
    action: str,
    before: RoleRecord | None,
    record: RoleRecord,
    steps: tuple[Any, ...],
    *,
    status: int = 200,
) -> Mutation:
    return Mutation(
        action=action,
        subject=record.name,
        steps=steps,
        body=role_shape(state, StoredRecord(0, record)),
        status=status,
        before=_audited(before) if before is not None else None,
        after=_audited(record),
    )


def _audited(record: RoleRecord) -> dict[str, object]:
    return {"permissions": sorted(record.permissions), "description": record.description}


def the_role(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[RoleRecord]:
    changes.refuse_fixed(path["name"])
    return state.roles.require(path["name"])


MOST_ROLES: Final = 200

ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/roles",
        permission=Permission.ROLES_READ,
        summary="List roles and what they grant",
        response=RoleList,
        handler=list_roles,
    ),
    Mutate(
        method="POST",
        path="/api/v1/roles",
        permission=Permission.ROLES_MANAGE,
        summary="Create a role, with no permission that the caller does not have",
        body=NewRole,
        response=RoleShape,
        status=201,
        handler=create_role,
    ),
    Read(
        method="GET",
        path=_ONE,
        permission=Permission.ROLES_READ,
        summary="Show a role",
        response=RoleShape,
        handler=get_role,
    ),
    Mutate(
        method="PATCH",
        path=_ONE,
        permission=Permission.ROLES_MANAGE,
        summary="Change what a role grants; open streams of those who have it end",
        body=RoleEdit,
        response=RoleShape,
        handler=update_role,
        revises=the_role,
    ),
    Mutate(
        method="DELETE",
        path=_ONE,
        permission=Permission.ROLES_MANAGE,
        summary="Remove a role that nobody has",
        status=204,
        handler=delete_role,
        revises=the_role,
    ),
)
