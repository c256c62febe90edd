"""Logins of a command line that a person approves in a browser."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Final

import msgspec

from corral.controller.accounts.device_logins import DeviceLogin, shown_user_code
from corral.controller.accounts.logins import Logins
from corral.controller.http.messages.call import ApiCall, LoginCall, NoQuery, RequestBody
from corral.controller.http.messages.responses import ApiResponse, shaped
from corral.controller.http.pipeline.route_table import Act, LoginRoute, Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.resources.accounts.login import LOGIN_PAGE
from corral.controller.http.resources.accounts.own_account import session_of
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.permissions import Permission

UserCode = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class DeviceLoginShape(msgspec.Struct, frozen=True, kw_only=True):
    """A login that waits for a person with a browser."""

    device_code: str
    user_code: str
    page: str
    expires_at: dt.datetime


class WaitingLoginShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a person sees of a login before approving it."""

    user_code: str
    address: str
    agent: str
    started_at: dt.datetime
    expires_at: dt.datetime


class DeviceCode(RequestBody, frozen=True, kw_only=True):
    user_code: UserCode


class DeviceDecision(RequestBody, frozen=True, kw_only=True):
    user_code: UserCode
    approve: bool


async def begin_device_login(logins: Logins, call: LoginCall[None, NoQuery]) -> ApiResponse:
    request = call.http
    device_code, waiting = logins.devices.begin(
        address=request.address, agent=request.header(b"user-agent") or ""
    )
    return shaped(
        DeviceLoginShape(
            device_code=device_code,
            user_code=shown_user_code(waiting.user_code),
            page=LOGIN_PAGE,
            expires_at=waiting.expires_at,
        )
    )


async def find_device_login(logins: Logins, call: ApiCall[DeviceCode, NoQuery]) -> WaitingLoginShape:
    session_of(call)
    return _shape(logins.devices.find(call.body.user_code))


async def decide_device_login(
    state: ClusterState, logins: Logins, call: ApiCall[DeviceDecision, NoQuery]
) -> Mutation:
    approver = state.user_sessions.require(session_of(call)).record.id
    decided = logins.devices.decide(call.body.user_code, approver if call.body.approve else None)
    return Mutation(
        action="auth.device",
        subject=call.caller.user,
        steps=(),
        body=_shape(decided),
        after={"approved": call.body.approve, "address": decided.address, "agent": decided.agent},
    )


def _shape(waiting: DeviceLogin) -> WaitingLoginShape:
    return WaitingLoginShape(
        user_code=shown_user_code(waiting.user_code),
        address=waiting.address,
        agent=waiting.agent,
        started_at=waiting.started_at,
        expires_at=waiting.expires_at,
    )


ROUTES: Final[tuple[Route, ...]] = (
    LoginRoute(
        method="POST",
        path="/api/v1/auth/device",
        summary="Begin a login of a command line that a person approves in a browser",
        response=DeviceLoginShape,
        handler=begin_device_login,
    ),
    Read(
        method="POST",
        path="/api/v1/auth/device/find",
        permission=Permission.SELF_MANAGE,
        scope=Scoping.NEUTRAL,
        summary="Show the login that waits with a code, before approving it",
        body=DeviceCode,
        response=WaitingLoginShape,
        handler=find_device_login,
    ),
    Act(
        method="POST",
        path="/api/v1/auth/device/decide",
        permission=Permission.SELF_MANAGE,
        scope=Scoping.NEUTRAL,
        summary="Let a command line in as oneself, or refuse it",
        body=DeviceDecision,
        response=WaitingLoginShape,
        handler=decide_device_login,
        action="auth.device",
        subject=lambda call: call.caller.user,
    ),
)
