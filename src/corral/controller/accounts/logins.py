"""Logins: whoever proves who he is gets a session, in one of four ways."""

from __future__ import annotations

import contextlib

from corral.controller.accounts.device_logins import DeviceLogins
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
from corral.controller.state.collections import USERS
from corral.controller.state.ledger import Ledger
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
        self.start = SessionStart(ledger=ledger, sessions=sessions, clock=clock, entropy=entropy)
        self.password = PasswordLogins(
            state=ledger.state, sessions=sessions, start=self.start, passwords=passwords, key=key, clock=clock
        )
        self.first_admin = FirstAdmin(
            state=ledger.state, start=self.start, passwords=self.password, clock=clock, entropy=entropy
        )
        self.provider = ProviderLogins(state=ledger.state, start=self.start, clock=clock, entropy=entropy)
        self.devices = DeviceLogins(clock=clock, entropy=entropy)

    async def by_device_code(self, code: str, origin: LoginOrigin) -> LoggedIn:
        """LOGIN_PENDING, LOGIN_FAILED, USER_LOCKED."""
        approver = await self.devices.approved(code)
        for _ in range(ATTEMPTS):
            stored = self._state.users.require(approver.user)
            user = stored.record
            if user.locked is not None:
                raise user_locked(user)
            with contextlib.suppress(Conflict):
                unchanged = USERS.put(user.name, user, expect=stored.revision)
                return await self.start.begin(user, approver.by, origin, unchanged)
        raise busy()

    def forget(self, user: str) -> None:
        """The user was removed."""
        self.password.lockout.forget(user)
        self.provider.forget(user)
