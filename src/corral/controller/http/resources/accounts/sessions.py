"""Sessions: one's own, and those of all users."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from corral.controller.accounts.user_sessions import UserSessions, ending
from corral.controller.http.messages.call import ApiCall, Caller, NoQuery
from corral.controller.http.messages.paging import Page, PageQuery, page_of
from corral.controller.http.pipeline.route_table import Mutate, Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.resources.accounts.users import refuse_stronger
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation
from corral.domain.accounts.records import SESSION_LIFE, AuthenticatedBy, SessionKind, SessionRecord
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

_ALL: Final = "/api/v1/sessions"
_OWN: Final = "/api/v1/auth/sessions"


class _SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a session to everybody who may see it; `address` and `agent` are those of the login."""

    id: str
    kind: SessionKind
    authenticated_by: AuthenticatedBy
    address: str
    agent: str
    created_at: dt.datetime
    last_used_at: dt.datetime
    expires_at: dt.datetime


class SessionShape(_SessionFacts, frozen=True, kw_only=True):
    """A session of a user; `address` and `agent` are those of the login."""

    user: str
    revision: int


class OwnSessionShape(_SessionFacts, frozen=True, kw_only=True):
    """A session of the caller's own user, who sees all of it."""

    current: bool


class OwnSessionList(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions of one user: there are few, so this is one page."""

    items: list[OwnSessionShape]
    next: str | None = None


class SessionQuery(PageQuery, frozen=True, kw_only=True):
    user: Annotated[str, msgspec.Meta(max_length=100, description="Only those of this user.")] | None = None


def session_shape(user_sessions: UserSessions, stored: StoredRecord[SessionRecord]) -> SessionShape:
    record = stored.record
    return SessionShape(**_facts(user_sessions, record), user=record.user, revision=stored.revision)


def own_session_shape(user_sessions: UserSessions, record: SessionRecord, caller: Caller) -> OwnSessionShape:
    return OwnSessionShape(**_facts(user_sessions, record), current=record.id == caller.session)


def _facts(user_sessions: UserSessions, record: SessionRecord) -> dict[str, Any]:
    """The fields of `_SessionFacts`."""
    return {
        "id": record.id,
        "kind": record.kind,
        "authenticated_by": record.authenticated_by,
        "address": record.address,
        "agent": record.agent,
        "created_at": record.created_at,
        "last_used_at": user_sessions.last_used(record),
        "expires_at": record.created_at + SESSION_LIFE,
    }


async def list_sessions(
    state: ClusterState, user_sessions: UserSessions, call: ApiCall[None, SessionQuery]
) -> Page[SessionShape]:
    """NOT_FOUND for a user whom there is not."""
    user = call.query.user
    if user is not None:
        state.users.require(user)
    return page_of(
        state.user_sessions,
        call.query,
        accepts=lambda record: user is None or record.user == user,
        shape=lambda stored: session_shape(user_sessions, stored),
    )


async def list_own_sessions(user_sessions: UserSessions, call: ApiCall[None, NoQuery]) -> OwnSessionList:
    own = user_sessions.of_user(call.caller.user)
    items = [own_session_shape(user_sessions, each.record, call.caller) for each in own]
    return OwnSessionList(items=sorted(items, key=lambda each: each.last_used_at, reverse=True))


def end_session(state: ClusterState, call: ApiCall[None, NoQuery]) -> Mutation:
    """FORBIDDEN for a session of somebody who may do more than the caller."""
    stored = state.user_sessions.require(call.path["id"])
    user = state.users.find(stored.record.user)
    if user is not None:
        refuse_stronger(state, call.caller, user.record)
    return _ended(stored, reason="an administrator ended the session")


def end_own_session(state: ClusterState, call: ApiCall[None, NoQuery]) -> Mutation:
    stored = state.user_sessions.find(call.path["id"])
    if stored is None or stored.record.user != call.caller.user:
        raise Rejected(
            Code.NOT_FOUND,
            f"user '{call.caller.user}' has no session '{call.path['id'][:80]}'",
            hint=f"GET {_OWN} lists them",
        )
    return _ended(stored, reason="the user ended the session")


def _ended(stored: StoredRecord[SessionRecord], *, reason: str) -> Mutation:
    record = stored.record
    return Mutation(
        action="sessions.end",
        subject=record.id,
        steps=ending([stored], reason=reason),
        status=204,
        before={"user": record.user, "kind": record.kind.value},
    )


def the_session(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[SessionRecord]:
    return state.user_sessions.require(path["id"])


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path=_ALL,
        permission=Permission.SESSIONS_READ,
        summary="List the sessions of all users",
        query=SessionQuery,
        response=Page[SessionShape],
        handler=list_sessions,
    ),
    Mutate(
        method="DELETE",
        path=f"{_ALL}/{{id}}",
        permission=Permission.SESSIONS_MANAGE,
        summary="End a session; its open streams end",
        status=204,
        handler=end_session,
        revises=the_session,
    ),
    Read(
        method="GET",
        path=_OWN,
        permission=Permission.SELF_READ,
        scope=Scoping.NEUTRAL,
        summary="List the caller's own sessions",
        response=OwnSessionList,
        handler=list_own_sessions,
    ),
    Mutate(
        method="DELETE",
        path=f"{_OWN}/{{id}}",
        permission=Permission.SELF_MANAGE,
        scope=Scoping.NEUTRAL,
        summary="End one of the caller's own sessions",
        status=204,
        handler=end_own_session,
    ),
)
