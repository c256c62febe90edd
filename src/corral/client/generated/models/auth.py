"""Structures of `auth`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct

from corral.client.generated.models.shared import AuthenticatedBy, Permission, Scope, SessionKind, Token


class Login(Struct, frozen=True, kw_only=True):
    """A session that has just begun. A browser gets the other half of it in a cookie."""

    user: str
    """Name of the user."""
    display_name: str
    """The name for people."""
    session: str
    """Id of the session; it is no secret."""
    kind: SessionKind
    """BROWSER or COMMAND_LINE."""
    expires_at: str
    """When it stops being valid, in UTC; null: never."""
    csrf: str
    """The secret that each request of a browser sends as `X-Corral-CSRF`, shown this once; empty for a command line."""
    token: str
    """The text that a command line sends as `Authorization: Bearer`, shown this once; empty for a browser."""
    recovery_codes_left: int | None
    """How many recovery codes can still be used; null: the user has no second factor."""
    return_path: str
    """Where the page goes that began a login with a provider; empty: as it likes."""


class Me(Struct, frozen=True, kw_only=True):
    """The caller: whose rights it has, what it may do anywhere, and where."""

    user: str
    """The user whose rights the caller has."""
    display_name: str
    """The name for people."""
    must_change_password: bool
    """Whether the next login has to set another password."""
    has_totp: bool
    """Whether logins of the user need a second factor."""
    token: Token | None
    """The caller's token, without its text."""
    session: OwnSession | None
    """The session of the caller; null: it has a token."""
    permissions: tuple[Permission, ...]
    """What it may do, be it in a scope."""
    grants: tuple[Grant, ...]
    """The same by scope."""


class OwnSession(Struct, frozen=True, kw_only=True):
    """A session of the caller's own user, who sees all of it."""

    id: str
    """Id of the session, `ses-…`; it is no secret."""
    kind: SessionKind
    """BROWSER, by a cookie; or COMMAND_LINE, by a token."""
    authenticated_by: AuthenticatedBy
    """How its user proved who it is: PASSWORD, TOTP, RECOVERY_CODE, OIDC or FIRST_ADMIN."""
    address: str
    """Where the login came from."""
    agent: str
    """What the browser or command line called itself."""
    created_at: str
    """When it was made, in UTC."""
    last_used_at: str
    """When it was last used, in UTC; across a change of the leader to within five minutes."""
    expires_at: str
    """When it ends at the latest, in UTC; it ends before after 12 hours without use."""
    current: bool
    """Whether it is the session of this request."""


class Grant(Struct, frozen=True, kw_only=True):
    """Permissions, and the scopes within all of which they hold; without one they hold everywhere."""

    permissions: tuple[Permission, ...]
    """What may be done."""
    scopes: tuple[Scope, ...]
    """Within all of which that holds; empty: everywhere."""


class TotpSetup(Struct, frozen=True, kw_only=True):
    """A secret for an authenticator app, which counts once it is confirmed by a code."""

    secret: str
    """The secret to type into an authenticator app, shown this once."""
    uri: str
    """The same as an address of the form otpauth://, for a QR code."""
    setup: str
    """The secret, sealed for this session: send it back with the code that confirms it."""


class RecoveryCodes(Struct, frozen=True, kw_only=True):
    """New recovery codes, which replace all earlier ones."""

    codes: tuple[str, ...]
    """Recovery codes, shown this once; each can be used once in place of the second factor."""


class DeviceLogin(Struct, frozen=True, kw_only=True):
    """A login that waits for a person with a browser."""

    device_code: str
    """The code that the command line keeps, and logs in by, shown this once."""
    user_code: str
    """The code that a person types into the login page."""
    page: str
    """Path of the login page."""
    expires_at: str
    """Until when it can be approved, in UTC."""


class WaitingLogin(Struct, frozen=True, kw_only=True):
    """What a person sees of a login before approving it."""

    user_code: str
    """The code that was typed."""
    address: str
    """Where the login was begun."""
    agent: str
    """What the command line called itself."""
    started_at: str
    """When it was started, in UTC."""
    expires_at: str
    """Until when it can be approved, in UTC."""


class OwnSessionList(Struct, frozen=True, kw_only=True):
    """All sessions of one user: there are few, so this is one page."""

    items: tuple[OwnSession, ...]
    """The items of this page."""
    next: str | None = None
    """The `cursor` of the following page; null: this is the last one."""
