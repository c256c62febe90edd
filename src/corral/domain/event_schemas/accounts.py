"""Schemas of events about credentials and people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import UNSET, UnsetType

from corral.domain.event_schemas.schema import By, EventData, EventSchema, NoData, Reason, said
from corral.domain.events import EventType
from corral.domain.permissions import Role


class JoinTokenCreatedData(EventData, frozen=True, kw_only=True):
    """What a join token is for."""

    node_id: Annotated[str | None, said("The node id that it is bound to; null: any.", "web-2")]
    replace: Annotated[bool, said("Whether a host with it may take over an existing id.", False)]
    labels: Annotated[dict[str, str], said("Labels that its node gets.", {"zone": "a"})] | UnsetType = UNSET


class JoinTokenUsedData(EventData, frozen=True, kw_only=True):
    """Who used a join token."""

    node_id: Annotated[str, said("The node that used it.", "web-2")]


class JoinTokenRevokedData(EventData, frozen=True, kw_only=True):
    """What a join token was for."""

    node_id: (
        Annotated[str | None, said("The node id that it was bound to; null: any.", "web-2")] | UnsetType
    ) = UNSET


class TokenCreatedData(EventData, frozen=True, kw_only=True):
    """An API token."""

    name: Annotated[str, said("What the token is called.", "ci")]
    role: Annotated[Role, said("The most that it allows.", "OPERATOR")]


class TokenRevokedData(EventData, frozen=True, kw_only=True):
    """An API token that is gone."""

    name: Annotated[str, said("What the token was called.", "ci")]


class SessionEndedData(EventData, frozen=True, kw_only=True):
    """Whose session ended."""

    user: Annotated[str, said("The user whose session it was.", "anna")]
    reason: Reason


class UserBindingsData(EventData, frozen=True, kw_only=True):
    """The roles of a user."""

    bindings: (
        Annotated[list[str], said("The roles; `(scoped)` behind those that hold within a scope.", ["VIEWER"])]
        | UnsetType
    ) = UNSET


class UserLockedData(EventData, frozen=True, kw_only=True):
    """Who locked a user."""

    by: By
    reason: Reason


class RolePermissionsData(EventData, frozen=True, kw_only=True):
    """What a role grants."""

    permissions: Annotated[list[str], said("The permissions that it grants.", ["groups.read"])]


_T = EventType
SCHEMAS: Final[Mapping[EventType, EventSchema]] = {
    _T.JOIN_TOKEN_CREATED: EventSchema("A join token was made.", JoinTokenCreatedData),
    _T.JOIN_TOKEN_USED: EventSchema("A join token was exchanged.", JoinTokenUsedData),
    _T.JOIN_TOKEN_REVOKED: EventSchema(
        "A join token was made useless before it was used.", JoinTokenRevokedData
    ),
    _T.TOKEN_CREATED: EventSchema("An API token was made.", TokenCreatedData),
    _T.TOKEN_REVOKED: EventSchema("An API token was revoked; its open streams end.", TokenRevokedData),
    _T.SESSION_ENDED: EventSchema("A session was ended; its open streams end.", SessionEndedData),
    _T.USER_CREATED: EventSchema("A user was made.", UserBindingsData),
    _T.USER_UPDATED: EventSchema(
        "Something of a user changed; streams of whose rights changed end.", UserBindingsData
    ),
    _T.USER_LOCKED: EventSchema("A user was locked; its open streams end.", UserLockedData),
    _T.USER_UNLOCKED: EventSchema("The lock of a user was ended.", NoData),
    _T.USER_DELETED: EventSchema("A user was removed, with its tokens.", NoData),
    _T.ROLE_CREATED: EventSchema("A role was made.", RolePermissionsData),
    _T.ROLE_UPDATED: EventSchema(
        "What a role grants changed; streams of whose rights changed end.", RolePermissionsData
    ),
    _T.ROLE_DELETED: EventSchema("A role was removed.", NoData),
}
