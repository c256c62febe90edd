"""Principals: whom a token stands for now, and what it may do.

A caller keeps its id for as long as a request or a stream lasts. What it may do is looked up again whenever accounts
change, so that a stream ends when its rights do. A token allows what its owner may and it says itself: an owner that is
narrowed, locked or removed takes the tokens along.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.controller.state.api_tokens import is_expired
from corral.controller.state.cluster_state import ClusterState
from corral.domain.access import Access, Grant
from corral.domain.accounts.records import UserRecord
from corral.domain.bindings import Binding
from corral.domain.events import EventType
from corral.domain.ids import CallerId, UserName
from corral.domain.permissions import GRANTS, Permission, Role
from corral.domain.records import ApiTokenRecord

ACCOUNT_EVENTS: Final = frozenset(
    {
        EventType.TOKEN_REVOKED,
        EventType.USER_UPDATED,
        EventType.USER_DELETED,
        EventType.USER_LOCKED,
        EventType.ROLE_UPDATED,
        EventType.ROLE_DELETED,
    }
)
"""Events after which somebody may do less than before."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may call the API at this moment."""

    id: CallerId
    user: UserName
    """Whose rights these are."""
    name: str
    """As the audit names it: `token:ID`."""
    label: str
    access: Access
    expires_at: dt.datetime | None = None


def role_permissions(state: ClusterState, name: str) -> frozenset[Permission]:
    """The permissions of a fixed or custom role; none where there is no such role."""
    if name in Role.__members__:
        return GRANTS[Role(name)]
    stored = state.roles.find(name)
    return stored.record.granted if stored is not None else frozenset()


def bound_access(state: ClusterState, bindings: tuple[Binding, ...]) -> Access:
    """What bindings allow together."""
    grants = (
        Grant(
            permissions=role_permissions(state, each.role),
            scopes=() if each.scope.is_everything else (each.scope,),
        )
        for each in bindings
    )
    return Access(grants=tuple(each for each in grants if each.permissions))


def user_access(state: ClusterState, user: UserRecord) -> Access:
    return bound_access(state, user.bindings) if user.locked is None else Access()


def token_limits(record: ApiTokenRecord) -> Access:
    """What a token says itself, whatever its owner may."""
    permissions = GRANTS[record.role]
    if record.permissions is not None:
        permissions = frozenset(each for each in permissions if each.value in record.permissions)
    scopes = () if record.scope.is_everything else (record.scope,)
    return Access(grants=(Grant(permissions=permissions, scopes=scopes),))


class Principals:
    """All who may call the API, by the ids of their credentials."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def find(self, id: CallerId, now: dt.datetime) -> Principal | None:
        """The principal as it is now; None: its credential is not valid any more, see `reason`."""
        stored = self._state.tokens.find(id)
        if stored is None or is_expired(stored.record, now):
            return None
        return self.of_token(stored.record)

    def of_token(self, record: ApiTokenRecord) -> Principal | None:
        """The principal of a token that is valid; None: its owner is locked, or not there any more."""
        owner = self._state.users.find(record.owner)
        if owner is None or owner.record.locked is not None:
            return None
        return Principal(
            id=CallerId(record.id),
            user=record.owner,
            name=f"token:{record.id}",
            label=record.name,
            access=bound_access(self._state, owner.record.bindings).narrowed(token_limits(record)),
            expires_at=record.expires_at,
        )

    def reason(self, id: CallerId, now: dt.datetime) -> str:
        """Why a credential is not valid any more."""
        stored = self._state.tokens.find(id)
        if stored is None:
            return "the token was revoked"
        if is_expired(stored.record, now):
            return "the token expired"
        owner = self._state.users.find(stored.record.owner)
        if owner is None:
            return f"user '{stored.record.owner}', whose token it is, was removed"
        return f"user '{stored.record.owner}', whose token it is, is locked"
