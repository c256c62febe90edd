"""The first administrator: whoever has the code that a controller prints while no administrator has a password."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from corral.controller.accounts import users
from corral.controller.accounts.one_time_codes import OneTimeCodes
from corral.controller.accounts.password_logins import PasswordLogins
from corral.controller.accounts.session_start import LoggedIn, LoginOrigin, SessionStart, busy, void_code
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import USERS
from corral.controller.state.ledger import Step
from corral.domain.accounts.records import AuthenticatedBy, UserRecord, valid_user_name
from corral.domain.bindings import Binding
from corral.domain.ids import UserName
from corral.domain.permissions import Role
from corral.errors import Code, Rejected
from corral.store.store_errors import Conflict
from corral.system.clock import Clock
from corral.system.entropy import Entropy

_OWNER: Final = "first-admin"
_log = structlog.get_logger("corral.controller.accounts")


class FirstAdmin:
    """The code of one term, and the login by it."""

    def __init__(
        self,
        *,
        state: ClusterState,
        start: SessionStart,
        passwords: PasswordLogins,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._state = state
        self._start = start
        self._passwords = passwords
        self._clock = clock
        self._codes: OneTimeCodes[str, str] = OneTimeCodes(
            clock=clock, entropy=entropy, life_seconds=None, most=1
        )
        self._turn = asyncio.Lock()

    def is_missing(self) -> bool:
        """Whether no administrator has a password yet, be it a locked one."""
        return not any(
            users.is_admin(msgspec.structs.replace(each.record, locked=None)) and each.record.password_hash
            for each in self._state.users
        )

    def void_if_done(self) -> None:
        """Somebody has a password now: where that is an administrator, the code is void for good."""
        if not self.is_missing():
            self._codes.revoke(_OWNER)

    def new_code(self) -> str | None:
        """A new code, which voids the one before; None: an administrator has a password."""
        self._codes.revoke(_OWNER)
        return self._codes.issue(_OWNER, _OWNER) if self.is_missing() else None

    async def log_in(self, code: str, *, name: str, password: str, origin: LoginOrigin) -> LoggedIn:
        """Whoever has the code becomes an administrator with this name and password. LOGIN_FAILED; INVALID_FIELD and CONFLICT
        leave the code as it is."""
        async with self._turn:
            if self._codes.find(code) is None or not self.is_missing():
                _log.warning("login.refused", user="", address=origin.address, reason="the code is void")
                raise void_code(
                    "a new one is printed when the controller is started while nobody has a password"
                )
            user, steps = await self._user(valid_user_name(name), password)
            if not self.is_missing():  # while the password was hashed
                raise void_code("an administrator has a password now: log in by that")
            try:
                made: dict[str, object] = {"administrator": True, "password_changed": True}
                logged_in = await self._start.begin(
                    user, AuthenticatedBy.FIRST_ADMIN, origin, *steps, changed=made
                )
            except Conflict:
                raise busy() from None
            self._codes.redeem(code)
            return logged_in

    async def _user(self, name: UserName, password: str) -> tuple[UserRecord, tuple[Step, ...]]:
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
        hashed = await self._passwords.hash_new(password, former, field="password")
        user = msgspec.structs.replace(former, password_hash=hashed, must_change_password=False)
        if stored is None:
            return user, users.creation(user)
        return user, (USERS.put(name, user, expect=stored.revision),)
