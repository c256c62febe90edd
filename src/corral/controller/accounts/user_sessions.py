"""Sessions of users: creation, proof, use and end. The functions that change something describe the steps and leave the
commit to their caller.

Each request proves its session anew: a browser by a cookie *and* a second secret in a header, because cookies ignore ports
and every program on this host that a browser talks to receives them; a command line by one secret. Neither is accepted
in place of the other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import USER_SESSIONS
from corral.controller.state.ledger import Step
from corral.domain.accounts.records import (
    SESSION_IDLE,
    SESSION_LIFE,
    AuthenticatedBy,
    SessionKind,
    SessionRecord,
    session_is_over,
    shown_agent,
)
from corral.domain.events import Draft, EventType
from corral.domain.ids import CallerId, UserName, UserSessionId
from corral.errors import Code, Rejected
from corral.store.port import ABSENT
from corral.system.entropy import Entropy
from corral.system.opaque_secrets import CredentialForm, new_secret, secret_digest, secret_matches

PREFIX: Final = "ses-"
"""Of the ids of sessions."""
MOST_PER_USER: Final = 50
"""A login beyond that ends the session that was unused for longest."""
USE_STORED_AFTER: Final = dt.timedelta(minutes=5)
"""Uses are kept in memory, and stored so often: a new leader knows them as far."""
_PER_COMMIT: Final = 200
_IN_COOKIES: Final = CredentialForm("ses")
_IN_HEADERS: Final = CredentialForm("ses", lead="corral_")


class NewSession(NamedTuple):
    """A session and its secrets. Only here are they in one place."""

    record: SessionRecord
    credential: str
    """The value of the cookie, or the text that a command line sends as its token."""
    csrf: str
    """The second secret of a browser; empty for a command line."""

    @property
    def expires_at(self) -> dt.datetime:
        return self.record.created_at + SESSION_LIFE


class Login(NamedTuple):
    """Where and how somebody logged in."""

    kind: SessionKind
    by: AuthenticatedBy
    address: str
    agent: str


def new_session(
    user: UserName,
    login: Login,
    *,
    now: dt.datetime,
    entropy: Entropy,
    since: dt.datetime | None = None,
) -> NewSession:
    """`since`: when it counts as begun, if that is not now."""
    in_browser = login.kind is SessionKind.BROWSER
    credential = (_IN_COOKIES if in_browser else _IN_HEADERS).create(entropy)
    csrf = new_secret(entropy) if in_browser else ""
    record = SessionRecord(
        id=UserSessionId(credential.id),
        user=user,
        kind=login.kind,
        secret_sha256=credential.secret_sha256,
        csrf_sha256=secret_digest(csrf) if csrf else "",
        created_at=since or now,
        last_used_at=now,
        address=login.address,
        agent=shown_agent(login.agent),
        authenticated_by=login.by,
    )
    return NewSession(record, credential.text, csrf)


def is_of_session(token: str) -> bool:
    """Whether the text of an `Authorization` header is that of a session, valid or not."""
    return token.startswith(f"corral_{PREFIX}")


def ending(sessions: Iterable[StoredRecord[SessionRecord]], *, reason: str) -> tuple[Step, ...]:
    """The steps that end these sessions; `reason` is the last message of their streams."""
    steps: list[Step] = []
    for stored in sessions:
        record = stored.record
        steps.append(USER_SESSIONS.delete(record.id, expect=stored.revision))
        steps.append(
            Draft(
                type=EventType.SESSION_ENDED,
                subject=record.id,
                data={"user": record.user, "reason": reason},
            )
        )
    return tuple(steps)


class UserSessions:
    """The sessions of one term, with the times of their last use."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._used: dict[str, dt.datetime] = {}

    def of_user(self, user: str) -> list[StoredRecord[SessionRecord]]:
        return [each for each in self._state.user_sessions if each.record.user == user]

    def creation(self, made: NewSession) -> tuple[Step, ...]:
        """The steps that store a session; the one that was unused for longest makes room where its user has many."""
        own = sorted(self.of_user(made.record.user), key=lambda each: self.last_used(each.record))
        surplus = own[: max(0, len(own) + 1 - MOST_PER_USER)]
        return (
            USER_SESSIONS.put(made.record.id, made.record, expect=ABSENT),
            *ending(surplus, reason=f"the user has more than {MOST_PER_USER} sessions"),
        )

    def renewal(self, made: NewSession, *, reason: str) -> tuple[Step, ...]:
        """The steps after which this is the only session of its user."""
        return (
            *ending(self.of_user(made.record.user), reason=reason),
            USER_SESSIONS.put(made.record.id, made.record, expect=ABSENT),
        )

    def prove_cookie(self, value: str, csrf: str, *, now: dt.datetime) -> SessionRecord:
        """The session of a browser. UNAUTHENTICATED: unknown, over, or without its second secret."""
        record = self._proven(*_IN_COOKIES.read(value), kind=SessionKind.BROWSER, now=now)
        if not secret_matches(csrf, record.csrf_sha256):
            raise Rejected(
                Code.UNAUTHENTICATED,
                "the cookie of a session opens nothing by itself",
                hint="send the secret that the login answered as X-Corral-CSRF, or log in again",
            )
        return record

    def prove_header(self, text: str, *, now: dt.datetime) -> SessionRecord:
        """The session of a command line. UNAUTHENTICATED."""
        return self._proven(*_IN_HEADERS.read(text), kind=SessionKind.COMMAND_LINE, now=now)

    def _proven(self, id: str, secret: str, *, kind: SessionKind, now: dt.datetime) -> SessionRecord:
        stored = self._state.user_sessions.find(id)
        usable = stored is not None and stored.record.kind is kind
        proven = secret_matches(secret, stored.record.secret_sha256 if stored and usable else None)
        if stored is None or not proven:
            raise Rejected(
                Code.UNAUTHENTICATED, "the session is not known here, or was ended", hint="log in again"
            )
        if self.is_over(stored.record, now):
            raise Rejected(Code.UNAUTHENTICATED, self.over_reason(stored.record, now), hint="log in again")
        return stored.record

    def note_use(self, id: CallerId, now: dt.datetime) -> None:
        if self._state.user_sessions.find(id) is not None:
            self._used[id] = now

    def last_used(self, record: SessionRecord) -> dt.datetime:
        used = self._used.get(record.id)
        return record.last_used_at if used is None else max(used, record.last_used_at)

    def is_over(self, record: SessionRecord, now: dt.datetime) -> bool:
        return session_is_over(self._with_use(record), now)

    def over_reason(self, record: SessionRecord, now: dt.datetime) -> str:
        if now - record.created_at >= SESSION_LIFE:
            return f"the session ended after {SESSION_LIFE.days} days"
        return f"the session ended after {SESSION_IDLE // dt.timedelta(hours=1)} hours without use"

    def upkeep(self, now: dt.datetime) -> list[Step]:
        """Some steps that remove sessions which are over, and store the uses of others."""
        steps: list[Step] = []
        for stored in self._state.user_sessions:
            record = self._with_use(stored.record)
            if session_is_over(record, now):
                steps += ending([stored], reason=self.over_reason(record, now))
            elif record.last_used_at - stored.record.last_used_at >= USE_STORED_AFTER:
                steps.append(USER_SESSIONS.put(record.id, record, expect=stored.revision))
            if len(steps) >= _PER_COMMIT:
                break
        self._used = {
            id: used for id, used in self._used.items() if self._state.user_sessions.find(id) is not None
        }
        return steps

    def _with_use(self, record: SessionRecord) -> SessionRecord:
        return msgspec.structs.replace(record, last_used_at=self.last_used(record))
