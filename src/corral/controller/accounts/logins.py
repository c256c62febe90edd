"""Logins: whoever proves who he is gets a session, in one of four ways."""

from __future__ import annotations

import contextlib

from corral.controller.accounts.device_logins import DeviceLogins, void_device_code
from corral.controller.accounts.failed_logins import FailedLogins
from corral.controller.accounts.first_admin import FirstAdmin
from corral.controller.accounts.password_logins import KeySource, PasswordLogins
from corral.controller.accounts.passwords import Passwords
from corral.controller.accounts.provider_logins import ProviderLogins
from corral.controller.accounts.session_start import (
    ATTEMPTS,
    LoggedIn,
    LoginOrigin,
    SessionStart,
    busy,
    user_locked,
)
from corral.controller.accounts.user_sessions import UserSessions
from corral.controller.state.collections import USER_SESSIONS, USERS
from corral.controller.state.ledger import Ledger
from corral.domain.ids import UserSessionId
from corral.store.store_errors import Conflict
from corral.system.clock import Clock
from corral.system.entropy import Entropy


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
        self._state = ledger.state
        self._sessions = sessions
        self._clock = clock
        self.start = SessionStart(ledger=ledger, sessions=sessions, clock=clock, entropy=entropy)
        self.password = PasswordLogins(
            state=ledger.state,
            sessions=sessions,
            start=self.start,
            passwords=passwords,
            failures=FailedLogins(ledger=ledger, clock=clock),
            key=key,
            clock=clock,
        )
        self.first_admin = FirstAdmin(
            state=ledger.state, start=self.start, passwords=self.password, clock=clock, entropy=entropy
        )
        self.provider = ProviderLogins(state=ledger.state, start=self.start, clock=clock, entropy=entropy)
        self.devices = DeviceLogins(clock=clock, entropy=entropy)

    async def by_device_code(self, code: str, origin: LoginOrigin) -> LoggedIn:
        """LOGIN_PENDING, LOGIN_FAILED, USER_LOCKED. The session is as old as the one in which it was approved: nobody
        prolongs his own beyond its end."""
        async with self.devices.approved(code) as approver:
            for _ in range(ATTEMPTS):
                with contextlib.suppress(Conflict):
                    return await self._by_approval(approver, origin)
        raise busy()

    async def _by_approval(self, approver: UserSessionId, origin: LoginOrigin) -> LoggedIn:
        session = self._state.user_sessions.find(approver)
        if session is None or self._sessions.is_over(session.record, self._clock.now()):
            raise void_device_code()
        stored = self._state.users.require(session.record.user)
        user = stored.record
        if user.locked is not None:
            raise user_locked(user)
        return await self.start.begin(
            user,
            session.record.authenticated_by,
            origin,
            USERS.put(user.name, user, expect=stored.revision),
            USER_SESSIONS.put(approver, session.record, expect=session.revision),
            since=session.record.created_at,
        )

    def forget(self, user: str) -> None:
        """The user was removed."""
        self.password.lockout.forget(user)
        self.provider.forget(user)
