"""The last step of every login: a session for a user who has proved who it is, stored with all that the login changes."""

from __future__ import annotations

import datetime as dt
from typing import Final, NamedTuple

from corral.controller.accounts.user_sessions import Login, NewSession, UserSessions, new_session
from corral.controller.state.ledger import Actor, Ledger, Step, audit
from corral.domain.accounts.records import AuthenticatedBy, SessionKind, UserRecord
from corral.errors import Code, Rejected, Retryable
from corral.system.clock import Clock
from corral.system.entropy import Entropy

ATTEMPTS: Final = 20
"""How often a login is evaluated again when its user was changed meanwhile."""


class LoginOrigin(NamedTuple):
    """Where a login comes from, and what it asks for."""

    address: str
    agent: str
    kind: SessionKind


class LoggedIn(NamedTuple):
    user: UserRecord
    session: NewSession
    return_path: str = ""
    """Where the page goes that began the login; empty: as it likes."""


class SessionStart:
    """Begins sessions."""

    def __init__(self, *, ledger: Ledger, sessions: UserSessions, clock: Clock, entropy: Entropy) -> None:
        self._ledger = ledger
        self._sessions = sessions
        self._clock = clock
        self._entropy = entropy

    async def begin(
        self,
        user: UserRecord,
        by: AuthenticatedBy,
        origin: LoginOrigin,
        *steps: Step,
        since: dt.datetime | None = None,
        changed: dict[str, object] | None = None,
    ) -> LoggedIn:
        """Store the session, and these steps, in one transaction with the audit entry. `Conflict`.

        Among the steps the user is written under compare-and-set, also unchanged: who is locked, or gets another password,
        at the same moment is not let in by what was true before. `since`: the session counts as begun then; `changed`: for the
        audit, what the login changed of its user."""
        made = self.session(user, by, origin, since=since)
        actor = Actor(name=f"user:{user.name}", address=origin.address, label=user.display_name or user.name)
        after: dict[str, object] = {"session": made.record.id, "kind": origin.kind.value, "by": by.value}
        after |= changed or {}
        entry = audit(actor, "auth.login", user.name, after=after)
        await self._ledger.commit(*steps, *self._sessions.creation(made), entry)
        return LoggedIn(user, made)

    def session(
        self,
        user: UserRecord,
        by: AuthenticatedBy,
        origin: LoginOrigin,
        *,
        since: dt.datetime | None = None,
    ) -> NewSession:
        """A new session, which is not stored yet."""
        login = Login(kind=origin.kind, by=by, address=origin.address, agent=origin.agent)
        return new_session(user.name, login, now=self._clock.now(), since=since, entropy=self._entropy)


def void_code(hint: str) -> Rejected:
    return Rejected(Code.LOGIN_FAILED, "the code is unknown, used or expired", hint=hint, field="code")


def user_locked(user: UserRecord) -> Rejected:
    return Rejected(Code.USER_LOCKED, f"user '{user.name}' is locked", hint="ask an administrator")


def busy() -> Retryable:
    return Retryable(
        Code.CONFLICT, "the account is being changed at this moment", hint="try again", retry_after=1.0
    )
