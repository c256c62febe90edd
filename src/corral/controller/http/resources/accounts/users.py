"""Users, their bindings to roles, and locks."""

from __future__ import annotations

import collections
import datetime as dt
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, Self

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.accounts import users as changes
from corral.controller.accounts.logins import Logins
from corral.controller.accounts.principals import bound_access, user_access
from corral.controller.http.messages.call import ApiCall, Caller, GivenText, NoQuery, RequestBody
from corral.controller.http.messages.paging import Page, PageQuery, everything, page_of
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Build, Mutate, Read, Route
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import USER_SESSIONS
from corral.controller.state.ledger import Mutation, Step
from corral.domain.access import Access
from corral.domain.accounts.records import UserRecord, valid_display_name, valid_user_name
from corral.domain.bindings import Binding, Bindings
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected
from corral.store.port import Delete

_ONE: Final = "/api/v1/users/{name}"


class LockShape(msgspec.Struct, frozen=True, kw_only=True):
    """An administrator's lock."""

    by: str
    reason: str
    at: dt.datetime


class UserShape(msgspec.Struct, frozen=True, kw_only=True):
    """A user; `permissions` are those that its bindings grant anywhere."""

    name: str
    display_name: str
    bindings: tuple[Binding, ...]
    permissions: list[Permission]
    locked: LockShape | None
    provider: str
    provider_bindings: tuple[Binding, ...]
    has_password: bool
    must_change_password: bool
    has_totp: bool
    login_delayed_seconds: int
    sessions: int
    tokens: int
    created_at: dt.datetime
    created_by: str
    revision: int


PasswordText = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
UserNameText = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
DisplayNameText = Annotated[str, msgspec.Meta(max_length=100)]


class NewUser(RequestBody, frozen=True, kw_only=True):
    name: UserNameText
    display_name: DisplayNameText = ""
    bindings: Bindings = ()
    password: PasswordText | None = None
    must_change_password: bool = True


class UserEdit(RequestBody, frozen=True, kw_only=True):
    display_name: DisplayNameText | UnsetType = UNSET
    bindings: Bindings | UnsetType = UNSET


class UserLocking(RequestBody, frozen=True, kw_only=True):
    reason: GivenText


class Owned(NamedTuple):
    """How many sessions and tokens users have, by name: counted once for a whole page."""

    sessions: collections.Counter[str]
    tokens: collections.Counter[str]

    @classmethod
    def of(cls, state: ClusterState) -> Self:
        return cls(
            collections.Counter(each.record.user for each in state.user_sessions),
            collections.Counter(each.record.owner for each in state.tokens),
        )


def user_shape(
    state: ClusterState, logins: Logins, stored: StoredRecord[UserRecord], owned: Owned | None = None
) -> UserShape:
    owned = owned or Owned.of(state)
    record = stored.record
    locked = record.locked
    return UserShape(
        name=record.name,
        display_name=record.display_name,
        bindings=record.bindings,
        permissions=sorted(user_access(state, record).permissions),
        locked=LockShape(by=locked.by, reason=locked.reason, at=locked.at) if locked is not None else None,
        provider=record.provider,
        provider_bindings=record.provider_bindings,
        has_password=bool(record.password_hash),
        must_change_password=record.must_change_password,
        has_totp=record.totp_sealed is not None,
        login_delayed_seconds=math.ceil(logins.password.lockout.seconds_left(record.name)),
        sessions=owned.sessions[record.name],
        tokens=owned.tokens[record.name],
        created_at=record.created_at,
        created_by=record.created_by,
        revision=stored.revision,
    )


async def list_users(state: ClusterState, logins: Logins, call: ApiCall[None, PageQuery]) -> Page[UserShape]:
    owned = Owned.of(state)
    return page_of(
        state.users,
        call.query,
        accepts=everything,
        shape=lambda stored: user_shape(state, logins, stored, owned),
    )


async def get_user(state: ClusterState, logins: Logins, call: ApiCall[None, NoQuery]) -> UserShape:
    return user_shape(state, logins, state.users.require(call.path["name"]))


async def create_user(state: ClusterState, logins: Logins, call: ApiCall[NewUser, NoQuery]) -> Describe:
    asked = call.body
    _new_name(state, asked.name)
    record = UserRecord(
        name=valid_user_name(asked.name),
        display_name=valid_display_name(asked.display_name),
        bindings=asked.bindings,
        created_at=call.now,
        created_by=call.caller.actor.name,
    )
    if asked.password is not None:
        hashed = await logins.password.hash_new(asked.password, record, field="password")
        record = msgspec.structs.replace(
            record, password_hash=hashed, must_change_password=asked.must_change_password
        )

    async def describe() -> Mutation:
        _new_name(state, asked.name)
        roles = _check_grant(state, call.caller, asked.bindings)
        steps = (*changes.creation(record), *roles)
        return stored_user(state, logins, "users.create", None, record, steps, status=201)

    return describe


def _new_name(state: ClusterState, given: str) -> None:
    """INVALID_FIELD, CONFLICT."""
    name = valid_user_name(given)
    if state.users.find(name) is not None:
        raise Rejected(
            Code.CONFLICT, f"user '{name}' exists already", hint="choose another name", field="name"
        )


def update_user(state: ClusterState, logins: Logins, call: ApiCall[UserEdit, NoQuery]) -> Mutation:
    asked, name = call.body, call.path["name"]
    before = state.users.require(name).record
    given: dict[str, Any] = {}
    roles: tuple[Step, ...] = ()
    if name != call.caller.user:
        refuse_stronger(state, call.caller, before)
    if asked.display_name is not UNSET:
        given["display_name"] = valid_display_name(asked.display_name)
    if asked.bindings is not UNSET:
        refuse_stronger(state, call.caller, before)
        roles = _check_grant(state, call.caller, asked.bindings)
        given["bindings"] = asked.bindings
    record, steps = changes.update(state, name, **given)
    return stored_user(state, logins, "users.update", before, record, (*steps, *roles))


def delete_user(state: ClusterState, call: ApiCall[None, NoQuery]) -> Mutation:
    before = state.users.require(call.path["name"]).record
    refuse_stronger(state, call.caller, before)
    steps = changes.removal(state, before.name)
    return Mutation(
        action="users.delete", subject=before.name, steps=steps, status=204, before=changes.audited(before)
    )


def password_given(logins: Logins, call: ApiCall[Any, Any]) -> None:
    del call
    logins.first_admin.void_if_done()


def forget_user(logins: Logins, call: ApiCall[None, NoQuery]) -> None:
    logins.forget(call.path["name"])


def lock_user(state: ClusterState, logins: Logins, call: ApiCall[UserLocking, NoQuery]) -> Mutation:
    before = state.users.require(call.path["name"]).record
    refuse_stronger(state, call.caller, before)
    if before.name == call.caller.user:
        raise Rejected(
            Code.CONFLICT,
            "nobody locks himself: who could unlock it?",
            hint="have another administrator do it",
        )
    record, steps = changes.lock(
        state, before.name, by=call.caller.actor.name, reason=call.body.reason, now=call.now
    )
    return stored_user(state, logins, "users.lock", before, record, steps)


def unlock_user(state: ClusterState, logins: Logins, call: ApiCall[None, NoQuery]) -> Mutation:
    before = state.users.require(call.path["name"]).record
    refuse_more(bound_access(state, before.all_bindings), call.caller, field="name")
    record, steps = changes.unlock(state, before.name)
    return stored_user(state, logins, "users.unlock", before, record, steps)


def _check_grant(state: ClusterState, caller: Caller, bindings: tuple[Binding, ...]) -> tuple[Step, ...]:
    """INVALID_FIELD for a role that is not there; FORBIDDEN for rights that the caller does not have itself. Steps that go with
    the change: see `check_bindings`."""
    steps = changes.check_bindings(state, bindings)
    refuse_more(bound_access(state, bindings), caller, field="bindings")
    return steps


def refuse_more(asked: Access, caller: Caller, *, field: str) -> None:
    """FORBIDDEN where rights are given that the caller does not have itself."""
    exceeding = asked.exceeds(caller.access)
    if exceeding is not None:
        raise Rejected(
            Code.FORBIDDEN,
            f"this would give '{exceeding}', which the caller does not have, or not as far",
            hint="give a weaker role or a narrower scope, or ask an administrator",
            field=field,
        )


def refuse_stronger(state: ClusterState, caller: Caller, user: UserRecord) -> None:
    """FORBIDDEN for a change of somebody who may do more than the caller."""
    exceeding = bound_access(state, user.all_bindings).exceeds(caller.access)
    if exceeding is not None:
        raise Rejected(
            Code.FORBIDDEN,
            f"user '{user.name}' may do more than the caller: '{exceeding}'",
            hint="ask an administrator",
        )


def stored_user(
    state: ClusterState,
    logins: Logins,
    action: str,
    before: UserRecord | None,
    record: UserRecord,
    steps: tuple[Any, ...],
    *,
    status: int = 200,
) -> Mutation:
    shape = user_shape(state, logins, StoredRecord(0, record))
    ended = sum(isinstance(step, Delete) and step.collection == USER_SESSIONS.name for step in steps)
    return Mutation(
        action=action,
        subject=record.name,
        steps=steps,
        body=msgspec.structs.replace(shape, sessions=shape.sessions - ended),
        status=status,
        before=changes.audited(before) if before is not None else None,
        after=changes.audited(record),
    )


def the_user(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[UserRecord]:
    return state.users.require(path["name"])


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/users",
        permission=Permission.USERS_READ,
        summary="List users",
        query=PageQuery,
        response=Page[UserShape],
        handler=list_users,
    ),
    Build(
        method="POST",
        path="/api/v1/users",
        permission=Permission.USERS_MANAGE,
        summary="Create a user, with no more rights than the caller has",
        body=NewUser,
        response=UserShape,
        status=201,
        handler=create_user,
        effect=password_given,
    ),
    Read(
        method="GET",
        path=_ONE,
        permission=Permission.USERS_READ,
        summary="Show a user",
        response=UserShape,
        handler=get_user,
    ),
    Mutate(
        method="PATCH",
        path=_ONE,
        permission=Permission.USERS_MANAGE,
        summary="Change the name or the bindings of a user; its open streams end when its rights change",
        body=UserEdit,
        response=UserShape,
        handler=update_user,
        revises=the_user,
    ),
    Mutate(
        method="DELETE",
        path=_ONE,
        permission=Permission.USERS_MANAGE,
        summary="Remove a user with all its tokens",
        status=204,
        handler=delete_user,
        effect=forget_user,
        revises=the_user,
    ),
    Mutate(
        method="POST",
        path=f"{_ONE}/lock",
        permission=Permission.USERS_MANAGE,
        summary="Refuse everything that a user and its tokens ask for; open streams end at once",
        body=UserLocking,
        response=UserShape,
        handler=lock_user,
        revises=the_user,
    ),
    Mutate(
        method="POST",
        path=f"{_ONE}/unlock",
        permission=Permission.USERS_MANAGE,
        summary="End the lock of a user",
        response=UserShape,
        handler=unlock_user,
        revises=the_user,
    ),
)
