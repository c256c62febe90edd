"""Logins by password, with a second factor where the user has one. A login that lacks something (a second factor, another
password) is answered with what it lacks, and sent again with all of it: nothing is kept in between."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec
import structlog

from corral.controller.accounts.failed_logins import FailedLogins
from corral.controller.accounts.lockout import Lockout, LoginAttempt
from corral.controller.accounts.passwords import Passwords
from corral.controller.accounts.recovery_codes import without_used
from corral.controller.accounts.session_start import (
    ATTEMPTS,
    LoggedIn,
    LoginOrigin,
    SessionStart,
    busy,
    user_locked,
)
from corral.controller.accounts.totp import accepted_step, unseal_totp
from corral.controller.accounts.user_sessions import UserSessions, ending
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import USERS
from corral.controller.state.ledger import Step
from corral.domain.accounts.password_policy import check_new_password
from corral.domain.accounts.records import AuthenticatedBy, UserRecord
from corral.domain.ids import UserName
from corral.errors import Code, Rejected
from corral.pki.keys import ClusterKey
from corral.store.store_errors import Conflict
from corral.system.addresses import network_of
from corral.system.clock import Clock

KeySource = Callable[[], ClusterKey]
_log = structlog.get_logger("corral.controller.accounts")


class PasswordLogin(NamedTuple):
    """All that somebody has shown; texts of an earlier attempt are sent again with what it lacked."""

    name: str
    password: str
    totp: str = ""
    recovery_code: str = ""
    new_password: str = ""


class _Factor(NamedTuple):
    """The second factor of a login, and what of it is to be stored with the login, so that nobody uses it again."""

    by: AuthenticatedBy
    changes: dict[str, object]


class PasswordLogins:
    """The logins by password of one term, and the delays that failed ones bring."""

    def __init__(
        self,
        *,
        state: ClusterState,
        sessions: UserSessions,
        start: SessionStart,
        passwords: Passwords,
        failures: FailedLogins,
        key: KeySource,
        clock: Clock,
    ) -> None:
        self._state = state
        self._sessions = sessions
        self._start = start
        self._passwords = passwords
        self._key = key
        self._clock = clock
        self.failures = failures
        self.lockout = Lockout(clock=clock)
        for stored in state.user_sessions:
            self.lockout.remember(stored.record.user, stored.record.address)

    async def log_in(self, shown: PasswordLogin, origin: LoginOrigin) -> LoggedIn:
        """Upper and lower case of the name do not matter. LOGIN_FAILED, LOGIN_DELAYED, SECOND_FACTOR_REQUIRED, PASSWORD_CHANGE_REQUIRED, USER_LOCKED; INVALID_FIELD for a
        new password that is refused."""
        shown = shown._replace(name=shown.name.lower())  # as all names are
        async with self._attempt(shown.name, shown.password, origin.address) as (attempt, rehashed):
            attempt_hash = self._unlocked(shown.name).record.password_hash
            new_hash = await self._new_hash(shown, rehashed)
            for _ in range(ATTEMPTS):
                stored = self._unlocked(shown.name)
                if stored.record.password_hash != attempt_hash:
                    raise self._failed(attempt, "the password was changed meanwhile")
                factor = self._second_factor(stored.record, shown, attempt)
                changes = {**factor.changes, **self._password_changes(stored.record, shown, new_hash)}
                with contextlib.suppress(Conflict):
                    logged_in = await self._enter(stored, changes, factor.by, origin)
                    self.lockout.succeeded(attempt)
                    return logged_in
        raise busy()

    async def prove(self, name: UserName, password: str, address: str) -> StoredRecord[UserRecord]:
        """The user, who has shown the password again, as an act on the own account needs. LOGIN_FAILED, LOGIN_DELAYED;
        CONFLICT for one who has none."""
        user = self._state.users.require(name).record
        if user.provider:
            raise Rejected(
                Code.CONFLICT,
                f"user '{name}' logs in with {user.provider}, and has no password and no second factor here",
                hint="change them there",
            )
        async with self._attempt(name, password, address, proven=True) as (attempt, _):
            self.lockout.succeeded(attempt)
            return self._state.users.require(name)

    async def prove_all(self, shown: PasswordLogin, address: str) -> None:
        """Password and second factor, as a change of the factor needs. LOGIN_FAILED, LOGIN_DELAYED, SECOND_FACTOR_REQUIRED.
        The change itself evaluates the factor again, by `factor_changes`: a code may have been used meanwhile."""
        async with self._attempt(shown.name, shown.password, address, proven=True) as (attempt, _):
            self._second_factor(self._state.users.require(shown.name).record, shown, attempt)
            self.lockout.succeeded(attempt)

    def factor_changes(self, user: UserRecord, shown: PasswordLogin) -> dict[str, object]:
        """What of a second factor is to be stored with the change that it allows, so that it is not used again; LOGIN_FAILED
        for one that this record does not accept."""
        factor = self._accepted_factor(user, shown)
        if factor is None:
            raise login_refused(0)
        return factor.changes

    @contextlib.asynccontextmanager
    async def _attempt(
        self, name: str, password: str, address: str, *, proven: bool = False
    ) -> AsyncIterator[tuple[LoginAttempt, str]]:
        """An attempt whose password is right, and the hash to be stored in place of the old one, if any. `proven`: somebody
        in a session."""
        user = self._local_user(name)
        with self.lockout.attempt(name, address, exists=user is not None) as attempt:
            stored_hash = user.password_hash if user is not None else ""
            network = "" if attempt.known or proven else network_of(address) or "unknown"
            found = await self._passwords.verify(
                password, stored_hash, user=name if user else "", network=network
            )
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
        """What was wrong is only in the log, and neither there nor in the audit a name that nobody has: it may be a password."""
        delay = self.lockout.failed(attempt)
        shown = attempt.name if attempt.exists else ""
        self.failures.add(shown, attempt.source)
        _log.warning("login.refused", user=shown, address=attempt.source, reason=why)
        return login_refused(delay)

    def _second_factor(self, user: UserRecord, shown: PasswordLogin, attempt: LoginAttempt) -> _Factor:
        if user.totp_sealed is not None and not shown.recovery_code and not shown.totp:
            raise Rejected(
                Code.SECOND_FACTOR_REQUIRED,
                "a code of the second factor is needed, too",
                hint="send the login again with 'totp', or with 'recovery_code'",
                field="totp",
            )
        factor = self._accepted_factor(user, shown)
        if factor is None:
            raise self._failed(attempt, "the code of the second factor is wrong, or was used before")
        return factor

    def _accepted_factor(self, user: UserRecord, shown: PasswordLogin) -> _Factor | None:
        """None: the code, or the recovery code, is wrong or used."""
        if user.totp_sealed is None:
            return _Factor(AuthenticatedBy.PASSWORD, {})
        if shown.recovery_code:
            left = without_used(user.recovery_sha256, shown.recovery_code)
            return None if left is None else _Factor(AuthenticatedBy.RECOVERY_CODE, {"recovery_sha256": left})
        secret = unseal_totp(user.totp_sealed, user=user.name, key=self._key())
        step = accepted_step(secret, shown.totp, now=self._clock.now(), last_step=user.last_totp_step)
        return None if step is None else _Factor(AuthenticatedBy.TOTP, {"last_totp_step": step})

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
        steps: list[Step] = [USERS.put(user.name, user, expect=stored.revision)]
        if "must_change_password" in changes:
            steps += ending(self._sessions.of_user(user.name), reason="the password was changed")
        replaced: dict[str, object] = {"password_changed": True} if "must_change_password" in changes else {}
        return await self._start.begin(user, by, origin, *steps, changed=replaced)


def login_refused(delay: float) -> Rejected:
    """LOGIN_FAILED: the same text whatever was wrong."""
    wait = f"; the next attempt is possible in {delay:.0f} s" if delay else ""
    return Rejected(
        Code.LOGIN_FAILED,
        f"name, password or code is wrong{wait}",
        hint="try again, or ask an administrator for a new password",
        retry_after=delay or None,
    )
