"""The caller's own account: password, second factor, recovery codes.

Only whoever has logged in may change them, and each change asks for the password again: neither a token nor a browser
that somebody left open is enough.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from corral.controller.accounts.logins import Logins
from corral.controller.accounts.password_logins import PasswordLogin
from corral.controller.accounts.recovery_codes import new_recovery_codes
from corral.controller.accounts.session_start import LoggedIn, LoginOrigin
from corral.controller.accounts.totp import (
    accepted_step,
    new_totp_secret,
    provisioning_uri,
    seal_setup,
    seal_totp,
    secret_text,
    unseal_setup,
)
from corral.controller.accounts.user_sessions import UserSessions
from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Build, Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.resources.accounts.login import LoginShape, Secret, login_shape, session_headers
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import USERS
from corral.controller.state.ledger import Mutation, Step
from corral.domain.accounts.records import UserRecord
from corral.domain.events import Draft, EventType
from corral.domain.ids import UserSessionId
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected


class NewPassword(RequestBody, frozen=True, kw_only=True):
    current: Secret
    new: Secret


class OwnPassword(RequestBody, frozen=True, kw_only=True):
    password: Secret


class TotpConfirmation(RequestBody, frozen=True, kw_only=True):
    setup: Secret
    code: Secret


class AllFactors(RequestBody, frozen=True, kw_only=True):
    """The password and a code of the second factor, or a recovery code in its place."""

    password: Secret
    totp: Secret | None = None
    recovery_code: Secret | None = None


class TotpSetupShape(msgspec.Struct, frozen=True, kw_only=True):
    """A secret for an authenticator app, which counts once it is confirmed by a code."""

    secret: str
    uri: str
    setup: str


class RecoveryCodesShape(msgspec.Struct, frozen=True, kw_only=True):
    """New recovery codes, which replace all earlier ones."""

    codes: list[str]


async def change_password(
    state: ClusterState,
    logins: Logins,
    user_sessions: UserSessions,
    call: ApiCall[NewPassword, NoQuery],
) -> Describe:
    """Every session of the user ends, this one too, and a new one begins."""
    session = session_of(call)
    address = call.caller.actor.address
    user = (await logins.password.prove(call.caller.user, call.body.current, address)).record
    hashed = await logins.password.hash_new(call.body.new, user, field="new", old=call.body.current)

    async def describe() -> Mutation:
        stored = state.users.require(call.caller.user)
        former = state.user_sessions.require(session).record
        changed = msgspec.structs.replace(stored.record, password_hash=hashed, must_change_password=False)
        origin = LoginOrigin(address=address, agent=former.agent, kind=former.kind)
        made = logins.start.session(changed, former.authenticated_by, origin)
        return Mutation(
            action="auth.password",
            subject=changed.name,
            steps=(
                *_stored(stored, changed),
                *user_sessions.renewal(made, reason="the password was changed"),
            ),
            body=login_shape(LoggedIn(changed, made)),
            headers=session_headers(call.http, state, made) if call.http is not None else (),
        )

    return describe


async def begin_totp(
    state: ClusterState, setting: ProcessContext, logins: Logins, call: ApiCall[OwnPassword, NoQuery]
) -> TotpSetupShape:
    """Nothing is stored before the code that confirms it."""
    session = session_of(call)
    stored = await logins.password.prove(call.caller.user, call.body.password, call.caller.actor.address)
    _refuse_second(stored.record)
    secret = new_totp_secret(setting.entropy)
    return TotpSetupShape(
        secret=secret_text(secret),
        uri=provisioning_uri(secret, user=stored.record.name, cluster=f"Corral {state.identity.id}"),
        setup=seal_setup(
            secret, session=session, now=call.now, key=setting.cluster_key(), entropy=setting.entropy
        ),
    )


async def confirm_totp(
    state: ClusterState, setting: ProcessContext, call: ApiCall[TotpConfirmation, NoQuery]
) -> Describe:
    session, key = session_of(call), setting.cluster_key()
    secret = unseal_setup(call.body.setup, session=session, now=call.now, key=key)
    if secret is None:
        raise Rejected(
            Code.INVALID_FIELD,
            "this is not a second factor that this session has begun to set up in the last ten minutes",
            hint="begin again: POST /api/v1/auth/totp",
            field="setup",
        )
    step = accepted_step(secret, call.body.code, now=call.now, last_step=0)
    if step is None:
        raise Rejected(
            Code.INVALID_FIELD,
            "the code is not the one that the app shows now",
            hint="check the time of both devices, and use the newest code",
            field="code",
        )
    codes = new_recovery_codes(setting.entropy)

    async def describe() -> Mutation:
        stored = state.users.require(call.caller.user)
        _refuse_second(stored.record)
        sealed = seal_totp(secret, user=stored.record.name, key=key, entropy=setting.entropy)
        changed = msgspec.structs.replace(
            stored.record, totp_sealed=sealed, last_totp_step=step, recovery_sha256=codes.digests
        )
        return Mutation(
            action="auth.totp.enable",
            subject=changed.name,
            steps=_stored(stored, changed),
            body=RecoveryCodesShape(codes=list(codes.texts)),
        )

    return describe


async def remove_totp(state: ClusterState, logins: Logins, call: ApiCall[AllFactors, NoQuery]) -> Describe:
    shown = await _prove_all(state, logins, call)

    async def describe() -> Mutation:
        stored = state.users.require(call.caller.user)
        _require_second(stored.record)
        used = logins.password.factor_changes(stored.record, shown)
        fields = {**used, "totp_sealed": None, "recovery_sha256": ()}
        changed = msgspec.structs.replace(stored.record, **fields)
        return Mutation(
            action="auth.totp.disable",
            subject=changed.name,
            steps=_stored(stored, changed),
            status=204,
        )

    return describe


async def renew_recovery_codes(
    state: ClusterState, setting: ProcessContext, logins: Logins, call: ApiCall[AllFactors, NoQuery]
) -> Describe:
    shown = await _prove_all(state, logins, call)
    codes = new_recovery_codes(setting.entropy)

    async def describe() -> Mutation:
        stored = state.users.require(call.caller.user)
        _require_second(stored.record)
        used = logins.password.factor_changes(stored.record, shown)
        fields = {**used, "recovery_sha256": codes.digests}
        changed = msgspec.structs.replace(stored.record, **fields)
        return Mutation(
            action="auth.recovery_codes",
            subject=changed.name,
            steps=_stored(stored, changed),
            body=RecoveryCodesShape(codes=list(codes.texts)),
        )

    return describe


async def _prove_all(
    state: ClusterState, logins: Logins, call: ApiCall[AllFactors, NoQuery]
) -> PasswordLogin:
    """Password and second factor, which are needed to change the second factor. CONFLICT where there is none."""
    session_of(call)
    _require_second(state.users.require(call.caller.user).record)
    shown = PasswordLogin(
        name=call.caller.user,
        password=call.body.password,
        totp=call.body.totp or "",
        recovery_code=call.body.recovery_code or "",
    )
    await logins.password.prove_all(shown, call.caller.actor.address)
    return shown


def _require_second(user: UserRecord) -> None:
    if user.totp_sealed is None:
        raise Rejected(Code.CONFLICT, "there is no second factor", hint="set one up: POST /api/v1/auth/totp")


def session_of(call: ApiCall[Any, Any]) -> UserSessionId:
    """The caller's session; FORBIDDEN for a token."""
    if call.caller.session is None:
        raise Rejected(
            Code.FORBIDDEN,
            "this is for people who have logged in, and the caller has a token",
            hint="log in: POST /api/v1/auth/login, or 'corral login'",
        )
    return call.caller.session


def _refuse_second(user: UserRecord) -> None:
    if user.totp_sealed is not None:
        raise Rejected(
            Code.CONFLICT,
            f"user '{user.name}' has a second factor already",
            hint="remove it first: POST /api/v1/auth/totp/remove",
        )


def _stored(stored: StoredRecord[UserRecord], changed: UserRecord) -> tuple[Step, ...]:
    return (
        USERS.put(changed.name, changed, expect=stored.revision),
        Draft(type=EventType.USER_UPDATED, subject=changed.name),
    )


ROUTES: Final[tuple[Route, ...]] = (
    Build(
        method="POST",
        path="/api/v1/auth/password",
        permission=Permission.SELF_MANAGE,
        scope=Scoping.NEUTRAL,
        summary="Change the own password; all sessions of the user end, and a new one begins",
        body=NewPassword,
        response=LoginShape,
        handler=change_password,
    ),
    Read(
        method="POST",
        path="/api/v1/auth/totp",
        permission=Permission.SELF_MANAGE,
        scope=Scoping.NEUTRAL,
        summary="Begin to set up a second factor; nothing changes before it is confirmed",
        body=OwnPassword,
        response=TotpSetupShape,
        handler=begin_totp,
    ),
    Build(
        method="POST",
        path="/api/v1/auth/totp/confirm",
        permission=Permission.SELF_MANAGE,
        scope=Scoping.NEUTRAL,
        summary="Confirm the second factor by a code of the app; logins need it from now on",
        body=TotpConfirmation,
        response=RecoveryCodesShape,
        handler=confirm_totp,
    ),
    Build(
        method="POST",
        path="/api/v1/auth/totp/remove",
        permission=Permission.SELF_MANAGE,
        scope=Scoping.NEUTRAL,
        summary="Remove the own second factor",
        body=AllFactors,
        status=204,
        handler=remove_totp,
    ),
    Build(
        method="POST",
        path="/api/v1/auth/recovery-codes",
        permission=Permission.SELF_MANAGE,
        scope=Scoping.NEUTRAL,
        summary="Make new recovery codes; the earlier ones are void",
        body=AllFactors,
        response=RecoveryCodesShape,
        handler=renew_recovery_codes,
    ),
)
