"""Principals: whom a token or a session stands for now, and what it may do.

A caller keeps its id for as long as a request or a stream lasts. What it may do is looked up again whenever accounts
change, so that a stream ends when its rights do. A session allows what its user may. A token allows what its owner may
and it says itself: an owner that is narrowed, locked or removed takes the tokens along.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.controller.accounts.user_sessions import PREFIX, UserSessions
from corral.controller.state.api_tokens import is_expired
from corral.controller.state.cluster_state import ClusterState
from corral.domain.access import Access, Grant
from corral.domain.accounts.records import SESSION_LIFE, SessionRecord, UserRecord
from corral.domain.bindings import Binding
from corral.domain.events import EventType
from corral.domain.ids import CallerId, UserName
from corral.domain.permissions import GRANTS, OF_EVERY_SESSION, OF_EVERY_TOKEN, Permission, Role
from corral.domain.records import ApiTokenRecord

ACCOUNT_EVENTS: Final = frozenset(
    {
        EventType.SESSION_ENDED,
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
    """As the audit names it: `token:ID` or `user:NAME`."""
    label: str
    """The name of the token, or of the user as people know it."""
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
    return bound_access(state, user.all_bindings) if user.locked is None else Access()


def session_access(state: ClusterState, user: UserRecord) -> Access:
    """What a user may do in a session: what it may at all, and look after its own account."""
    return _with(user_access(state, user), OF_EVERY_SESSION)


def _with(access: Access, permissions: frozenset[Permission]) -> Access:
    """The access with these permissions in each grant, so that what holds in all of them still does."""
    grants = access.grants or (Grant(permissions=frozenset()),)
    return Access(
        grants=tuple(
            msgspec.structs.replace(each, permissions=each.permissions | permissions) for each in grants
        )
    )


def token_limits(record: ApiTokenRecord) -> Access:
    """What a token says itself, whatever its owner may."""
    permissions = GRANTS[record.role]
    if record.permissions is not None:
        permissions = frozenset(each for each in permissions if each.value in record.permissions)
    scopes = () if record.scope.is_everything else (record.scope,)
    return Access(grants=(Grant(permissions=permissions, scopes=scopes),))


class Principals:
    """All who may call the API, by the ids of their credentials."""

    def __init__(self, state: ClusterState, sessions: UserSessions) -> None:
        self._state = state
        self._sessions = sessions

    def find(self, id: CallerId, now: dt.datetime) -> Principal | None:
        """The principal as it is now; None: its credential is not valid any more, see `reason`."""
        if id.startswith(PREFIX):
            session = self._state.user_sessions.find(id)
            if session is None or self._sessions.is_over(session.record, now):
                return None
            return self.of_session(session.record)
        token = self._state.tokens.find(id)
        if token is None or is_expired(token.record, now):
            return None
        return self.of_token(token.record)

    def of_token(self, record: ApiTokenRecord) -> Principal | None:
        """The principal of a token that is valid; None: its owner is locked, or not there any more."""
        owner = self._active(record.owner)
        if owner is None:
            return None
        return Principal(
            id=CallerId(record.id),
            user=record.owner,
            name=f"token:{record.id}",
            label=record.name,
            access=_with(
                bound_access(self._state, owner.all_bindings).narrowed(token_limits(record)), OF_EVERY_TOKEN
            ),
            expires_at=record.expires_at,
        )

    def of_session(self, record: SessionRecord) -> Principal | None:
        """The principal of a session that is not over; None: its user is locked, or not there any more."""
        user = self._active(record.user)
        if user is None:
            return None
        return Principal(
            id=CallerId(record.id),
            user=user.name,
            name=f"user:{user.name}",
            label=user.display_name or user.name,
            access=session_access(self._state, user),
            expires_at=record.created_at + SESSION_LIFE,
        )

    def _active(self, name: UserName) -> UserRecord | None:
        stored = self._state.users.find(name)
        return stored.record if stored is not None and stored.record.locked is None else None

    def reason(self, id: CallerId, now: dt.datetime) -> str:
        """Why a credential is not valid any more."""
        if id.startswith(PREFIX):
            return self._session_reason(id, now)
        stored = self._state.tokens.find(id)
        if stored is None:
            return "the token was revoked"
        if is_expired(stored.record, now):
            return "the token expired"
        owner = self._state.users.find(stored.record.owner)
        if owner is None:
            return f"user '{stored.record.owner}', whose token it is, was removed"
        return f"user '{stored.record.owner}', whose token it is, is locked"

    def _session_reason(self, id: CallerId, now: dt.datetime) -> str:
        stored = self._state.user_sessions.find(id)
        if stored is None:
            return "the session was ended"
        if self._sessions.is_over(stored.record, now):
            return self._sessions.over_reason(stored.record, now)
        return f"user '{stored.record.user}' is locked, or was removed"
