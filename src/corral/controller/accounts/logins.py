"""Logins: whoever proves who he is gets a session.

By a password, with a second factor where the user has one; by the code that a controller without an administrator prints;
by the code of a login with OpenID Connect. A login that lacks something (a second factor, another password) is answered with
what it lacks, and sent again with all of it: nothing is kept in between.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

import msgspec
import structlog

from corral.controller.accounts import users
from corral.controller.accounts.device_logins import DeviceLogins
from corral.controller.accounts.lockout import Lockout, LoginAttempt
from corral.controller.accounts.oidc_values import FinishedLogin
from corral.controller.accounts.one_time_codes import LOGIN_SECONDS, OneTimeCodes
from corral.controller.accounts.passwords import Passwords
from corral.controller.accounts.recovery_codes import without_used
from corral.controller.accounts.totp import accepted_step, unseal_totp
from corral.controller.accounts.user_sessions import Login, NewSession, UserSessions, ending, new_session
from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.collections import USERS
from corral.controller.state.ledger import Actor, Ledger, Step, audit
from corral.domain.accounts.password_policy import check_new_password
from corral.domain.accounts.records import AuthenticatedBy, SessionKind, UserRecord, valid_user_name
from corral.domain.bindings import Binding
from corral.domain.ids import UserName
from corral.domain.permissions import Role
from corral.errors import Code, Rejected, Retryable
from corral.pki.keys import ClusterKey
from corral.store.store_errors import Conflict
from corral.system.clock import Clock
from corral.system.entropy import Entropy

KeySource = Callable[[], ClusterKey]
_ATTEMPTS: Final = 5
_PROVIDER_CODES: Final = 1000
_FIRST_ADMIN: Final = "first-admin"
_log = structlog.get_logger("corral.controller.accounts")


class LoginOrigin(NamedTuple):
    """Where a login comes from, and what it asks for."""

    address: str
    agent: str
    kind: SessionKind


class PasswordLogin(NamedTuple):
    """All that somebody has shown; texts of an earlier attempt are sent again with what it lacked."""

    name: str
    password: str
    totp: str = ""
    recovery_code: str = ""
    new_password: str = ""


class LoggedIn(NamedTuple):
    user: UserRecord
    session: NewSession
    return_path: str = ""
    """Where the page goes that began the login; empty: as it likes."""


class _Factor(NamedTuple):
    """The second factor of a login, and what of it is to be stored with the login, so that nobody uses it again."""

    by: AuthenticatedBy
    changes: dict[str, object]


class Logins:
    """The logins of one term."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        sessions: UserSessions,
        passwords: Passwords,
        key: KeySource,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._sessions = sessions
        self._passwords = passwords
        self._key = key
        self._clock = clock
        self._entropy = entropy
        self.lockout = Lockout(clock=clock)
        for stored in self._state.user_sessions:
            self.lockout.remember(stored.record.user, stored.record.address)
        self._provider_codes: OneTimeCodes[str, FinishedLogin] = OneTimeCodes(
            clock=clock, entropy=entropy, life_seconds=LOGIN_SECONDS, most=_PROVIDER_CODES
        )
        self._first_admin_codes: OneTimeCodes[str, str] = OneTimeCodes(
            clock=clock, entropy=entropy, life_seconds=None, most=1
        )
        self._first_admin_turn = asyncio.Lock()
        self.devices = DeviceLogins(clock=clock, entropy=entropy)

    async def by_password(self, shown: PasswordLogin, origin: LoginOrigin) -> LoggedIn:
        """LOGIN_FAILED, LOGIN_DELAYED, SECOND_FACTOR_REQUIRED, PASSWORD_CHANGE_REQUIRED, USER_LOCKED; INVALID_FIELD for a
        new password that is refused."""
        async with self._attempt(shown.name, shown.password, origin) as (attempt, rehashed):
            new_hash = await self._new_hash(shown, rehashed)
            for _ in range(_ATTEMPTS):
                stored = self._unlocked(shown.name)
                factor = self._second_factor(stored.record, shown, attempt)
                changes = {**factor.changes, **self._password_changes(stored.record, shown, new_hash)}
                with contextlib.suppress(Conflict):
                    logged_in = await self._enter(stored, changes, factor.by, origin)
                    self.lockout.succeeded(attempt)
                    return logged_in
        raise _busy()

    async def prove_password(self, name: UserName, password: str, address: str) -> StoredRecord[UserRecord]:
        """The user, who has shown the password again, as an act on the own account needs. LOGIN_FAILED, LOGIN_DELAYED."""
        origin = LoginOrigin(address=address, agent="", kind=SessionKind.BROWSER)
        async with self._attempt(name, password, origin) as (attempt, _):
            self.lockout.succeeded(attempt)
            return self._state.users.require(name)

    @contextlib.asynccontextmanager
    async def _attempt(
        self, name: str, password: str, origin: LoginOrigin
    ) -> AsyncIterator[tuple[LoginAttempt, str]]:
        """An attempt whose password is right, and the hash to be stored in place of the old one, if any."""
        user = self._local_user(name)
        with self.lockout.attempt(name, origin.address, exists=user is not None) as attempt:
            stored_hash = user.password_hash if user is not None else ""
            found = await self._passwords.verify(password, stored_hash, user=name if user else "")
            now_stored = self._local_user(name)
            same = now_stored is not None and now_stored.password_hash == stored_hash
            if not found.matches or not same:
                raise self._failed(attempt, "the password is wrong" if user else "there is no such user")
            yield attempt, found.new_hash

    def _local_user(self, name: str) -> UserRecord | None:
        stored = self._state.users.find(name)
        return stored.record if stored is not None and not stored.record.provider else None

    def _unlocked(self, name: str) -> StoredRecord[UserRecord]:
        stored = self._state.users.require(name)
        if stored.record.locked is not None:
            raise user_locked(stored.record)
        return stored

    def _failed(self, attempt: LoginAttempt, why: str) -> Rejected:
        """What was wrong is only in the log, and there no name that nobody has: it may be a password."""
        delay = self.lockout.failed(attempt)
        shown = attempt.name if attempt.exists else ""
        _log.warning("login.refused", user=shown, address=attempt.source, reason=why)
        return login_refused(delay)

    def _second_factor(self, user: UserRecord, shown: PasswordLogin, attempt: LoginAttempt) -> _Factor:
        if user.totp_sealed is None:
            return _Factor(AuthenticatedBy.PASSWORD, {})
        if shown.recovery_code:
            left = without_used(user.recovery_sha256, shown.recovery_code)
            if left is None:
                raise self._failed(attempt, "the recovery code is wrong")
            return _Factor(AuthenticatedBy.RECOVERY_CODE, {"recovery_sha256": left})
        if not shown.totp:
            raise Rejected(
                Code.SECOND_FACTOR_REQUIRED,
                "a code of the second factor is needed, too",
                hint="send the login again with 'totp', or with 'recovery_code'",
                field="totp",
            )
        secret = unseal_totp(user.totp_sealed, user=user.name, key=self._key())
        step = accepted_step(secret, shown.totp, now=self._clock.now(), last_step=user.last_totp_step)
        if step is None:
            raise self._failed(attempt, "the code of the second factor is wrong, or was used before")
        return _Factor(AuthenticatedBy.TOTP, {"last_totp_step": step})

    async def _new_hash(self, shown: PasswordLogin, rehashed: str) -> str:
        """The hash of the password from now on; empty: the stored one stays."""
        user = self._state.users.require(shown.name).record
        if not shown.new_password:
            return rehashed
        if not user.must_change_password:
            raise Rejected(
                Code.INVALID_FIELD,
                "the password does not have to be changed at this login",
                hint="leave 'new_password' out; POST /api/v1/auth/password changes it",
                field="new_password",
            )
        return await self.hash_new(shown.new_password, user, field="new_password", old=shown.password)

    async def hash_new(self, password: str, user: UserRecord, *, field: str, old: str = "") -> str:
        """The hash of a password that somebody wants to have. INVALID_FIELD says why it is refused."""
        normal = check_new_password(password, names=(user.name, user.display_name), field=field)
        if old and hmac.compare_digest(normal.encode(), old.encode("utf-8", "surrogatepass")):
            raise Rejected(
                Code.INVALID_FIELD,
                "the new password is the old one",
                hint="choose another one",
                field=field,
            )
        return await self._passwords.hash(normal)

    def _password_changes(self, user: UserRecord, shown: PasswordLogin, new_hash: str) -> dict[str, object]:
        if user.must_change_password and not shown.new_password:
            raise Rejected(
                Code.PASSWORD_CHANGE_REQUIRED,
                "an administrator gave this password, and it has to be changed",
                hint="send the login again with 'new_password'",
                field="new_password",
            )
        changes: dict[str, object] = {"password_hash": new_hash} if new_hash else {}
        return {**changes, "must_change_password": False} if shown.new_password else changes

    async def _enter(
        self,
        stored: StoredRecord[UserRecord],
        changes: dict[str, object],
        by: AuthenticatedBy,
        origin: LoginOrigin,
    ) -> LoggedIn:
        """Store the session and what the login changes of its user, in one transaction. `Conflict`."""
        user = msgspec.structs.replace(stored.record, **changes)
        steps: list[Step] = [USERS.put(user.name, user, expect=stored.revision)] if changes else []
        if "must_change_password" in changes:
            steps += ending(self._sessions.of_user(user.name), reason="the password was changed")
        return await self._commit(user, by, origin, *steps)

    async def _commit(
        self, user: UserRecord, by: AuthenticatedBy, origin: LoginOrigin, *steps: Step
    ) -> LoggedIn:
        made = self.session(user, by, origin)
        actor = Actor(name=f"user:{user.name}", address=origin.address, label=user.display_name or user.name)
        after: dict[str, object] = {"session": made.record.id, "kind": origin.kind.value, "by": by.value}
        entry = audit(actor, "auth.login", user.name, after=after)
        await self._ledger.commit(*steps, *self._sessions.creation(made), entry)
        return LoggedIn(user, made)

    def session(self, user: UserRecord, by: AuthenticatedBy, origin: LoginOrigin) -> NewSession:
        """A new session, which is not stored yet."""
        login = Login(kind=origin.kind, by=by, address=origin.address, agent=origin.agent)
        return new_session(user.name, login, now=self._clock.now(), entropy=self._entropy)

    async def by_device_code(self, code: str, origin: LoginOrigin) -> LoggedIn:
        """LOGIN_PENDING, LOGIN_FAILED, USER_LOCKED."""
        approver = await self.devices.approved(code)
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(Conflict):
                return await self._commit(self._unlocked(approver.user).record, approver.by, origin)
        raise _busy()

    # The first administrator

    def needs_first_admin(self) -> bool:
        """Whether no administrator has a password yet."""
        return not any(
            users.is_admin(each.record) and each.record.password_hash for each in self._state.users
        )

    def first_admin_code(self) -> str | None:
        """A new code, which voids the one before; None: an administrator has a password."""
        self._first_admin_codes.revoke(_FIRST_ADMIN)
        return self._first_admin_codes.issue(_FIRST_ADMIN, _FIRST_ADMIN) if self.needs_first_admin() else None

    async def by_first_admin_code(
        self, code: str, *, name: str, password: str, origin: LoginOrigin
    ) -> LoggedIn:
        """Whoever has the code becomes an administrator with this name and password. LOGIN_FAILED; INVALID_FIELD and CONFLICT
        leave the code as it is."""
        async with self._first_admin_turn:
            if self._first_admin_codes.find(code) is None or not self.needs_first_admin():
                _log.warning("login.refused", user="", address=origin.address, reason="the code is void")
                raise void_code(
                    "a new one is printed when the controller is started while nobody has a password"
                )
            user, steps = await self._first_admin(valid_user_name(name), password)
            try:
                logged_in = await self._commit(user, AuthenticatedBy.FIRST_ADMIN, origin, *steps)
            except Conflict:
                raise _busy() from None
            self._first_admin_codes.redeem(code)
            return logged_in

    async def _first_admin(self, name: UserName, password: str) -> tuple[UserRecord, tuple[Step, ...]]:
        stored = self._state.users.find(name)
        if stored is not None and not users.is_admin(stored.record):
            raise Rejected(
                Code.CONFLICT,
                f"user '{name}' exists and is no administrator",
                hint="choose another name",
                field="name",
            )
        made = UserRecord(
            name=name,
            created_at=self._clock.now(),
            created_by="system",
            bindings=(Binding(role=Role.ADMIN.value),),
        )
        former = stored.record if stored is not None else made
        hashed = await self.hash_new(password, former, field="password")
        user = msgspec.structs.replace(former, password_hash=hashed, must_change_password=False)
        if stored is None:
            return user, users.creation(user)
        return user, (USERS.put(name, user, expect=stored.revision),)

    # OpenID Connect

    def provider_code(self, finished: FinishedLogin) -> str:
        """The one-time code that a browser comes back from its provider with. RATE_LIMITED."""
        return self._provider_codes.issue(finished.identity.user_name, finished)

    async def by_provider_code(self, code: str, *, page_secret: str, origin: LoginOrigin) -> LoggedIn:
        """LOGIN_FAILED, USER_LOCKED. `page_secret`: of the page that began the login, see `OidcLogin.start`."""
        finished = self._provider_codes.redeem(code)
        if finished is None or not _is_of_page(finished.page_challenge, page_secret):
            raise void_code("start the login again")
        for _ in range(_ATTEMPTS):
            user, steps = self._provider_user(finished)
            if user.locked is not None:
                raise user_locked(user)
            with contextlib.suppress(Conflict):
                logged_in = await self._commit(user, AuthenticatedBy.OIDC, origin, *steps)
                return logged_in._replace(return_path=finished.return_path)
        raise _busy()

    def _provider_user(self, finished: FinishedLogin) -> tuple[UserRecord, tuple[Step, ...]]:
        """The user with the roles that this login brings, and the steps that store it."""
        identity = finished.identity
        name = UserName(identity.user_name)
        facts: dict[str, object] = {
            "display_name": identity.display_name,
            "provider": identity.issuer,
            "provider_bindings": finished.bindings,
        }
        stored = self._state.users.find(name)
        if stored is None:
            user = msgspec.structs.replace(
                UserRecord(name=name, created_at=self._clock.now(), created_by=f"oidc:{identity.issuer}"),
                **facts,
            )
            return user, users.creation(user)
        user = msgspec.structs.replace(stored.record, **facts)
        if user == stored.record or user.locked is not None:
            return user, ()
        return users.update(self._state, name, **facts)

    def forget(self, user: str) -> None:
        """The user was removed."""
        self.lockout.forget(user)
        self._provider_codes.revoke(user)


def _is_of_page(challenge: str, secret: str) -> bool:
    digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
    found = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return not challenge or hmac.compare_digest(found, challenge)


def login_refused(delay: float) -> Rejected:
    """LOGIN_FAILED: the same text whatever was wrong."""
    wait = f"; the next attempt is possible in {delay:.0f} s" if delay else ""
    return Rejected(
        Code.LOGIN_FAILED,
        f"name, password or code is wrong{wait}",
        hint="try again, or ask an administrator for a new password",
        retry_after=delay or None,
    )


def void_code(hint: str) -> Rejected:
    return Rejected(Code.LOGIN_FAILED, "the code is unknown, used or expired", hint=hint, field="code")


def user_locked(user: UserRecord) -> Rejected:
    return Rejected(Code.USER_LOCKED, f"user '{user.name}' is locked", hint="ask an administrator")


def _busy() -> Retryable:
    return Retryable(
        Code.CONFLICT, "the account is being changed at this moment", hint="try again", retry_after=1.0
    )
