"""Login, logout, and who the caller is."""

from __future__ import annotations

import datetime as dt
import urllib.parse
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from corral.controller.accounts.logins import Logins
from corral.controller.accounts.oidc.values import CALLBACK_PATH, CallbackQuery
from corral.controller.accounts.password_logins import PasswordLogin
from corral.controller.accounts.session_start import LoggedIn, LoginOrigin
from corral.controller.accounts.user_sessions import NewSession, UserSessions, ending
from corral.controller.http.messages.call import ApiCall, LoginCall, NoQuery, Query, RequestBody
from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.messages.responses import ApiResponse, Headers, shaped
from corral.controller.http.pipeline.api_context import ProcessContext, TokenUses
from corral.controller.http.pipeline.authentication import require_private
from corral.controller.http.pipeline.browser_checks import refuse_embedded
from corral.controller.http.pipeline.route_table import LoginRoute, Mutate, Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.pipeline.session_cookie import clear_cookie, cookie_values, set_cookie
from corral.controller.http.resources.accounts.sessions import OwnSessionShape, own_session_shape
from corral.controller.http.resources.accounts.tokens import TokenShape, token_shape
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.accounts.records import SessionKind, UserRecord
from corral.domain.bindings import Scope
from corral.domain.ids import ClusterId
from corral.domain.permissions import Permission
from corral.errors import Code, CorralError, Rejected

if TYPE_CHECKING:
    from corral.controller.accounts.oidc.login import OidcLogin

LOGIN_PAGE: Final = "/login"
_BODY_LIMIT: Final = 16 * 1024

Secret = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
"""A password, or the text of a code."""
NameText = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class LoginBody(RequestBody, frozen=True, kw_only=True):
    """By name and password; by `code` or by `device_code`; or, with name and password, by `first_admin_code`."""

    name: NameText | None = None
    password: Secret | None = None
    totp: Secret | None = None
    recovery_code: Secret | None = None
    new_password: Secret | None = None
    code: Secret | None = None
    page_secret: Secret | None = None
    first_admin_code: Secret | None = None
    device_code: Secret | None = None
    kind: SessionKind = SessionKind.BROWSER


class LoginShape(msgspec.Struct, frozen=True, kw_only=True):
    """A session that has just begun. A browser gets the other half of it in a cookie."""

    user: str
    display_name: str
    session: str
    kind: SessionKind
    expires_at: dt.datetime
    csrf: str
    token: str
    recovery_codes_left: int | None
    return_path: str


class GrantShape(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions, and the scopes within all of which they hold; without one they hold everywhere."""

    permissions: list[Permission]
    scopes: list[Scope]


class MeShape(msgspec.Struct, frozen=True, kw_only=True):
    """The caller: whose rights it has, what it may do anywhere, and where."""

    user: str
    display_name: str
    must_change_password: bool
    has_totp: bool
    token: TokenShape | None
    session: OwnSessionShape | None
    permissions: list[Permission]
    grants: list[GrantShape]


class OidcStartQuery(Query, frozen=True, kw_only=True):
    return_to: Annotated[
        str, msgspec.Meta(max_length=1024, description="Path on this origin to go to afterwards.")
    ] = "/"
    challenge: Annotated[
        str,
        msgspec.Meta(
            max_length=100,
            description="SHA-256, in base64url, of a secret that the page sends with the code as `page_secret`.",
        ),
    ] = ""


class OidcCallbackQuery(Query, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Providers add parameters of their own, which mean nothing here."""

    state: Annotated[str, msgspec.Meta(max_length=1024, description="As the start of the login sent it.")] = (
        ""
    )
    code: Annotated[str, msgspec.Meta(max_length=8192, description="The provider's code for a token.")] = ""
    iss: Annotated[str, msgspec.Meta(max_length=1024, description="The provider's issuer.")] = ""
    error: Annotated[
        str, msgspec.Meta(max_length=1024, description="Why the provider refuses, in place of a code.")
    ] = ""


async def login(state: ClusterState, logins: Logins, call: LoginCall[LoginBody, NoQuery]) -> ApiResponse:
    body, request = call.body, call.http
    origin = LoginOrigin(address=request.address, agent=request.header(b"user-agent") or "", kind=body.kind)
    if body.device_code is not None:
        _refuse_beside(body, "device_code", "name", "password", "first_admin_code", "code")
        logged_in = await logins.by_device_code(body.device_code, origin)
    elif body.code is not None:
        _refuse_beside(body, "code", "name", "password", "first_admin_code")
        logged_in = await logins.provider.log_in(body.code, page_secret=body.page_secret or "", origin=origin)
    elif body.name is None or body.password is None:
        missing = "name" if body.name is None else "password"
        raise Rejected(Code.MISSING_FIELD, f"'{missing}' is missing", field=missing)
    elif body.first_admin_code is not None:
        require_private(request)
        logged_in = await logins.first_admin.log_in(
            body.first_admin_code, name=body.name, password=body.password, origin=origin
        )
    else:
        shown = PasswordLogin(
            name=body.name,
            password=body.password,
            totp=body.totp or "",
            recovery_code=body.recovery_code or "",
            new_password=body.new_password or "",
        )
        logged_in = await logins.password.log_in(shown, origin)
    request.made_by(f"user:{logged_in.user.name}")
    return shaped(login_shape(logged_in), headers=session_headers(request, state, logged_in.session))


def _refuse_beside(body: LoginBody, given: str, *names: str) -> None:
    for name in names:
        if getattr(body, name) is not None:
            raise Rejected(
                Code.INVALID_FIELD,
                f"'{name}' means nothing beside '{given}'",
                hint=f"leave '{name}' out",
                field=name,
            )


def login_shape(logged_in: LoggedIn) -> LoginShape:
    user, made = logged_in.user, logged_in.session
    in_browser = made.record.kind is SessionKind.BROWSER
    return LoginShape(
        user=user.name,
        display_name=user.display_name,
        session=made.record.id,
        kind=made.record.kind,
        expires_at=made.expires_at,
        csrf=made.csrf,
        token="" if in_browser else made.credential,
        recovery_codes_left=None if user.totp_sealed is None else len(user.recovery_sha256),
        return_path=logged_in.return_path,
    )


def session_headers(request: HttpRequest, state: ClusterState, made: NewSession) -> Headers:
    """The cookie of a new session, where it is one of a browser."""
    if made.record.kind is not SessionKind.BROWSER:
        return ()
    return set_cookie(request, state.identity.id, made.credential)


def logout(state: ClusterState, call: ApiCall[None, NoQuery]) -> Mutation:
    """End the session of the caller."""
    if call.caller.session is None:
        raise Rejected(
            Code.CONFLICT,
            "the caller has a token, and no session to end",
            hint="revoke the token: DELETE /api/v1/tokens/{id}",
        )
    stored = state.user_sessions.require(call.caller.session)
    return Mutation(
        action="auth.logout",
        subject=call.caller.user,
        steps=ending([stored], reason="the user logged out"),
        status=204,
        headers=_cleared(call.http, state.identity.id),
        before={"session": stored.record.id},
    )


def _cleared(request: HttpRequest | None, cluster: ClusterId) -> Headers:
    return () if request is None else clear_cookie(request, cluster)


async def me(
    state: ClusterState,
    token_uses: TokenUses,
    user_sessions: UserSessions,
    call: ApiCall[None, NoQuery],
) -> MeShape:
    caller = call.caller
    user: UserRecord = state.users.require(caller.user).record
    token = state.tokens.find(caller.id)
    session = state.user_sessions.find(caller.id)
    return MeShape(
        user=user.name,
        display_name=user.display_name,
        must_change_password=user.must_change_password,
        has_totp=user.totp_sealed is not None,
        token=None if token is None else token_shape(token_uses, token),
        session=None if session is None else own_session_shape(user_sessions, session.record, caller),
        permissions=sorted(caller.access.permissions),
        grants=[
            GrantShape(permissions=sorted(each.permissions), scopes=list(each.scopes))
            for each in caller.access.grants
        ],
    )


async def start_oidc(setting: ProcessContext, call: LoginCall[None, OidcStartQuery]) -> ApiResponse:
    """Send a browser to the provider. ORIGIN_REFUSED for what a page elsewhere includes, as a picture, rather than leads to."""
    refuse_embedded(call.http)
    try:
        started = await _provider(setting).start(
            return_to=call.query.return_to, page_challenge=call.query.challenge
        )
    except CorralError as error:
        return _back(error)
    return _see_other(started.location, ((b"set-cookie", started.set_cookie.encode()),))


async def finish_oidc(
    setting: ProcessContext, logins: Logins, call: LoginCall[None, OidcCallbackQuery]
) -> ApiResponse:
    """Take a browser back from the provider: to the login page, with a code that it exchanges for a session. The code is in
    the fragment, which no server and no log sees."""
    cleared: Headers = ()
    query = CallbackQuery(
        state=call.query.state, code=call.query.code, iss=call.query.iss, error=call.query.error
    )
    try:
        oidc = _provider(setting)
        cleared = ((b"set-cookie", oidc.clear_cookie.encode()),)
        given = cookie_values(call.http, oidc.cookie_name)
        finished = await oidc.finish(query, cookie=given[0] if given else "")
        code = logins.provider.new_code(finished)
    except CorralError as error:
        return _back(error, cleared)
    return _see_other(f"{LOGIN_PAGE}#{code}", cleared)


def _provider(setting: ProcessContext) -> OidcLogin:
    if setting.oidc is None:
        raise Rejected(
            Code.NOT_FOUND,
            "no provider of OpenID Connect is configured",
            hint="log in by password, or have an administrator set oidc.issuer",
        )
    return setting.oidc


def _back(error: CorralError, headers: Headers = ()) -> ApiResponse:
    """To the login page, which shows what is wrong: a browser is on its way, and nobody reads a body."""
    told = urllib.parse.urlencode(
        {"error": error.code.name, "message": error.message, "hint": error.hint or ""}
    )
    return _see_other(f"{LOGIN_PAGE}#{told}", headers)


def _see_other(location: str, headers: Headers) -> ApiResponse:
    return ApiResponse(status=303, headers=((b"location", location.encode()), *headers))


ROUTES: Final[tuple[Route, ...]] = (
    LoginRoute(
        method="POST",
        path="/api/v1/auth/login",
        summary="Log in; a browser gets a cookie and the secret that goes with it, a command line a token",
        body=LoginBody,
        body_limit=_BODY_LIMIT,
        response=LoginShape,
        handler=login,
    ),
    LoginRoute(
        method="GET",
        path="/api/v1/auth/oidc/start",
        shows_secret=False,
        summary="Send a browser to the provider of OpenID Connect",
        query=OidcStartQuery,
        status=303,
        handler=start_oidc,
    ),
    LoginRoute(
        method="GET",
        path=CALLBACK_PATH,
        shows_secret=False,
        summary="Take a browser back from the provider of OpenID Connect",
        query=OidcCallbackQuery,
        status=303,
        handler=finish_oidc,
    ),
    Mutate(
        method="POST",
        path="/api/v1/auth/logout",
        permission=Permission.SELF_READ,
        scope=Scoping.NEUTRAL,
        summary="End the caller's session; its open streams end",
        status=204,
        handler=logout,
    ),
    Read(
        method="GET",
        path="/api/v1/auth/me",
        permission=Permission.SELF_READ,
        scope=Scoping.NEUTRAL,
        summary="The caller and his permissions",
        response=MeShape,
        handler=me,
    ),
)
