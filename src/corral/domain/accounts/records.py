"""The stored documents of accounts: users, their sessions, and custom roles.

Passwords, codes and cookies are here as hashes or digests only; the secret of the second factor is sealed with the
cluster key.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
from typing import Annotated, Final

import msgspec

from corral.domain.bindings import Binding, Bindings, RoleName
from corral.domain.control_characters import refuse_hidden, without_control
from corral.domain.ids import UserName, UserSessionId, checked_name
from corral.domain.permissions import Permission, Role
from corral.domain.records import Record
from corral.errors import Code, Rejected

SESSION_IDLE: Final = dt.timedelta(hours=12)
SESSION_LIFE: Final = dt.timedelta(days=7)
_CLOCK_STEP: Final = dt.timedelta(hours=2)
"""By so much the wall clock may be set back without an effect on sessions."""
AGENT_MAX: Final = 200
RECOVERY_CODES: Final = 10

_USER_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._@+-]{0,61}[a-z0-9])?")
_USER_RULE: Final = (
    "use 1 to 63 of a-z, 0-9, '.', '_', '@', '+' and '-', beginning and ending with a letter or digit"
)
_NOT_USERS: Final = re.compile(r"system|anonymous|tok-[a-z2-7]{12}|ses-[a-z2-7]{12}")
"""Names that the audit has for others who act."""

DisplayName = Annotated[str, msgspec.Meta(max_length=100)]
Description = Annotated[str, msgspec.Meta(max_length=1000)]
Reason = Annotated[str, msgspec.Meta(max_length=1000)]
PermissionName = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class AuthenticatedBy(enum.StrEnum):
    """How the user of a session proved who it is."""

    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a method
    TOTP = "TOTP"
    """Password and a code of the second factor."""
    RECOVERY_CODE = "RECOVERY_CODE"
    """Password and a recovery code."""
    OIDC = "OIDC"
    FIRST_ADMIN = "FIRST_ADMIN"
    """The code that a fresh controller prints."""


class SessionKind(enum.StrEnum):
    """How a session proves itself with each request."""

    BROWSER = "BROWSER"
    """By a cookie, and by a second secret in a header."""
    COMMAND_LINE = "COMMAND_LINE"
    """By one secret, sent as `Authorization: Bearer`."""


class UserLock(Record, frozen=True, kw_only=True):
    """An administrator's order that ends sessions, tokens and streams of a user, and refuses new ones."""

    by: str
    reason: Reason
    at: dt.datetime


class UserRecord(Record, frozen=True, kw_only=True):
    """A person who may log in."""

    name: UserName
    """The id; it never changes."""
    display_name: DisplayName = ""
    password_hash: str = ""
    """argon2id with its parameters; empty: there is no password, and no login by one."""
    must_change_password: bool = False
    """The next login by password has to set another one first."""
    totp_sealed: str | None = None
    """The secret of the second factor, sealed with the cluster key; None: there is none."""
    last_totp_step: int = 0
    """The step of the last accepted code: only codes of later steps are accepted. With a new secret that of the code
    which confirmed it."""
    recovery_sha256: tuple[str, ...] = ()
    """Digests of the recovery codes that are left."""
    created_at: dt.datetime
    created_by: str
    locked: UserLock | None = None
    bindings: Bindings = ()
    """Given by administrators."""
    provider: str = ""
    """The issuer of OpenID Connect that vouches for this user; empty: a local one."""
    provider_bindings: Bindings = ()
    """What the groups of the last login with the provider brought; replaced by the next one."""

    @property
    def all_bindings(self) -> tuple[Binding, ...]:
        return (*self.bindings, *self.provider_bindings)


class SessionRecord(Record, frozen=True, kw_only=True):
    """A login. That in a browser is proved by a cookie, which opens nothing without the second secret."""

    id: UserSessionId
    """Public: lists show it, and a session is ended by it."""
    user: UserName
    kind: SessionKind = SessionKind.BROWSER
    secret_sha256: str
    """Of the secret in the cookie, or in the header of a command line."""
    csrf_sha256: str = ""
    """Of the secret that every request of a browser sends as `X-Corral-CSRF`."""
    created_at: dt.datetime
    last_used_at: dt.datetime
    address: str = ""
    agent: str = ""
    """See `shown_agent`."""
    authenticated_by: AuthenticatedBy


class RoleRecord(Record, frozen=True, kw_only=True):
    """A custom role: a set of permissions."""

    name: RoleName
    permissions: Annotated[frozenset[PermissionName], msgspec.Meta(max_length=200)] = frozenset()
    """By name, those of a newer version included; what they allow here: `granted`."""
    description: Description = ""
    created_at: dt.datetime
    created_by: str

    @property
    def granted(self) -> frozenset[Permission]:
        """What the role allows; names that are not known here allow nothing."""
        return frozenset(each for each in Permission if each.value in self.permissions)


def valid_user_name(value: str, *, field: str = "name") -> UserName:
    """The name of a new user; INVALID_FIELD names the rule."""
    if _USER_NAME.fullmatch(value) is None or ".." in value:
        shown = value if len(value) <= 80 else value[:77] + "..."
        raise Rejected(
            Code.INVALID_FIELD, f"{shown!r} is not a valid user name", hint=_USER_RULE, field=field
        )
    if _NOT_USERS.fullmatch(value):
        raise Rejected(
            Code.INVALID_FIELD,
            f"{value!r} is not available as a user name: the audit has it for others who act",
            hint="choose another name",
            field=field,
        )
    return UserName(value)


def valid_role_name(value: str, *, field: str = "name") -> str:
    """The name of a new custom role: in lower case, so that it is never one of the built-in roles."""
    if value.upper() in Role.__members__:
        raise Rejected(
            Code.INVALID_FIELD, f"{value!r} is a built-in role", hint="choose another name", field=field
        )
    return checked_name(value, "role name", field)


def valid_display_name(value: str, *, field: str = "display_name") -> str:
    """A name as people read it; control characters, and those that nobody sees, are refused."""
    refuse_hidden(value, field)
    return value.strip()


def shown_agent(header: str) -> str:
    """The `User-Agent` of a browser as sessions keep it: cut, and without control characters."""
    return without_control(header[: AGENT_MAX * 2]).strip()[:AGENT_MAX]


def session_is_over(
    record: SessionRecord,
    now: dt.datetime,
    *,
    idle: dt.timedelta = SESSION_IDLE,
    life: dt.timedelta = SESSION_LIFE,
) -> bool:
    """Whether a session was unused or has lived for too long, by the wall clock: it outlives restarts.

    A session from the future is over, too: it was made, or used, while the clock was wrong, and would live on
    until that time."""
    age, unused = now - record.created_at, now - record.last_used_at
    return age >= life or unused >= idle or min(age, unused) < -_CLOCK_STEP
