"""Logins with OpenID Connect, from the one-time code that a browser comes back from its provider with."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
from typing import Final

import msgspec

from corral.controller.accounts import users
from corral.controller.accounts.oidc.values import FinishedLogin
from corral.controller.accounts.one_time_codes import LOGIN_SECONDS, OneTimeCodes
from corral.controller.accounts.roles import warn_of_missing_roles
from corral.controller.accounts.session_start import (
    ATTEMPTS,
    LoggedIn,
    LoginOrigin,
    SessionStart,
    busy,
    user_locked,
    void_code,
)
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import USERS
from corral.controller.state.ledger import Step
from corral.domain.accounts.records import AuthenticatedBy, UserRecord
from corral.domain.ids import UserName
from corral.store.store_errors import Conflict
from corral.system.clock import Clock
from corral.system.entropy import Entropy

_MOST_CODES: Final = 1000


class ProviderLogins:
    """The logins of one term whose codes are not exchanged yet."""

    def __init__(self, *, state: ClusterState, start: SessionStart, clock: Clock, entropy: Entropy) -> None:
        self._state = state
        self._start = start
        self._clock = clock
        self._codes: OneTimeCodes[str, FinishedLogin] = OneTimeCodes(
            clock=clock, entropy=entropy, life_seconds=LOGIN_SECONDS, most=_MOST_CODES
        )

    def new_code(self, finished: FinishedLogin) -> str:
        """The one-time code that a browser comes back from its provider with. RATE_LIMITED."""
        return self._codes.issue(finished.identity.user_name, finished)

    async def log_in(self, code: str, *, page_secret: str, origin: LoginOrigin) -> LoggedIn:
        """LOGIN_FAILED, USER_LOCKED. `page_secret`: of the page that began the login, see `OidcLogin.start`."""
        finished = self._codes.redeem(code)
        if finished is None or not _is_of_page(finished.page_challenge, page_secret):
            raise void_code("start the login again")
        for _ in range(ATTEMPTS):
            user, steps = self._user(finished)
            if user.locked is not None:
                raise user_locked(user)
            with contextlib.suppress(Conflict):
                roles: dict[str, object] = {"provider_bindings": msgspec.to_builtins(user.provider_bindings)}
                logged_in = await self._start.begin(user, AuthenticatedBy.OIDC, origin, *steps, changed=roles)
                warn_of_missing_roles(self._state, finished.bindings, user=user.name)
                return logged_in._replace(return_path=finished.return_path)
        raise busy()

    def _user(self, finished: FinishedLogin) -> tuple[UserRecord, tuple[Step, ...]]:
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
            return user, (USERS.put(name, user, expect=stored.revision),)
        return users.update(self._state, name, **facts)

    def forget(self, user: str) -> None:
        """The user was removed."""
        self._codes.revoke(user)


def _is_of_page(challenge: str, secret: str) -> bool:
    """Whether the page that shows this secret began the login. A page that shows one has named its challenge: a login without
    was begun elsewhere."""
    if not challenge:
        return not secret
    digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
    found = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return hmac.compare_digest(found, challenge)
