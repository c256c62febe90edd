"""Credentials of users, in the hands of administrators: passwords, second factors, delays after failed logins."""

from __future__ import annotations

from typing import Any, Final

from corral.controller.accounts import users as changes
from corral.controller.accounts.logins import Logins
from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Act, Build, Mutate, Route
from corral.controller.http.resources.accounts.users import (
    PasswordText,
    UserShape,
    password_given,
    refuse_stronger,
    stored_user,
    the_user,
    user_shape,
)
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

_ONE: Final = "/api/v1/users/{name}"


class PasswordOrder(RequestBody, frozen=True, kw_only=True):
    password: PasswordText
    must_change_password: bool = True


async def set_password(
    state: ClusterState, logins: Logins, call: ApiCall[PasswordOrder, NoQuery]
) -> Describe:
    """All sessions of the user end: whoever asks for a new password may have lost the old one to somebody."""
    user = state.users.require(call.path["name"]).record
    refuse_stronger(state, call.caller, user)
    _refuse_own(call, "POST /api/v1/auth/password, or 'corral user password'")
    if user.provider:
        raise Rejected(
            Code.CONFLICT,
            f"user '{user.name}' logs in with {user.provider} and has no password here",
            hint="change it there",
        )
    hashed = await logins.password.hash_new(call.body.password, user, field="password")

    async def describe() -> Mutation:
        before = state.users.require(user.name).record
        refuse_stronger(state, call.caller, before)
        record, steps = changes.update(
            state,
            user.name,
            password_hash=hashed,
            must_change_password=call.body.must_change_password,
        )
        return stored_user(state, logins, "users.password", before, record, steps)

    return describe


def remove_totp(state: ClusterState, logins: Logins, call: ApiCall[None, NoQuery]) -> Mutation:
    """For a user who has lost it."""
    before = state.users.require(call.path["name"]).record
    refuse_stronger(state, call.caller, before)
    _refuse_own(call, "POST /api/v1/auth/totp/remove, or 'corral user totp remove'")
    if before.totp_sealed is None:
        raise Rejected(Code.CONFLICT, f"user '{before.name}' has no second factor")
    record, steps = changes.update(state, before.name, totp_sealed=None, recovery_sha256=())
    return stored_user(state, logins, "users.remove_totp", before, record, steps)


async def reset_delay(state: ClusterState, logins: Logins, call: ApiCall[None, NoQuery]) -> Mutation:
    user = state.users.require(call.path["name"])
    refuse_stronger(state, call.caller, user.record)
    logins.password.lockout.reset(user.record.name)
    return Mutation(
        action="users.reset_delay",
        subject=user.record.name,
        steps=(),
        body=user_shape(state, logins, user),
    )


def _refuse_own(call: ApiCall[Any, Any], instead: str) -> None:
    """CONFLICT in a session of the user itself: a browser that somebody left open is not enough."""
    if call.caller.session is not None and call.path["name"] == call.caller.user:
        raise Rejected(
            Code.CONFLICT,
            "the own account is changed with the password and the second factor that it has",
            hint=f"use {instead}",
        )


def _named(call: ApiCall[Any, Any]) -> str:
    return call.path["name"]


ROUTES: Final[tuple[Route, ...]] = (
    Build(
        method="POST",
        path=f"{_ONE}/password",
        permission=Permission.USERS_MANAGE,
        summary="Give a user another password; all its sessions end",
        body=PasswordOrder,
        response=UserShape,
        handler=set_password,
        effect=password_given,
        revises=the_user,
    ),
    Mutate(
        method="DELETE",
        path=f"{_ONE}/totp",
        permission=Permission.USERS_MANAGE,
        summary="Remove the second factor of a user who has lost it",
        response=UserShape,
        handler=remove_totp,
        revises=the_user,
    ),
    Act(
        method="POST",
        path=f"{_ONE}/reset-delay",
        permission=Permission.USERS_MANAGE,
        summary="End the delay that follows from failed logins",
        response=UserShape,
        handler=reset_delay,
        action="users.reset_delay",
        subject=_named,
    ),
)
