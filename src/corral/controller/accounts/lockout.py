"""The delay of password logins after failures, by account and by address.

Five failures delay the next attempt by 30 s; each further one doubles that, up to 15 minutes. Delayed are logins by
password only: sessions, tokens and streams go on. An address from which the user has logged in before is *known*: it has
a count of its own, so that nobody keeps the owner of an account out from elsewhere. See ADR 0061.

In memory of the leader: a new one begins without counts, and with the known addresses of the stored sessions.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Final

import msgspec

from corral.controller.accounts.failure_counts import FREE_FAILURES, FailureCounts
from corral.errors import Code, Retryable
from corral.system.addresses import LOOPBACK, counted_as
from corral.system.clock import Clock

MOST_ACCOUNTS: Final = 50_000
MOST_NAMES: Final = 20_000
"""Names that no account has."""
MOST_ADDRESSES: Final = 20_000
KNOWN_ADDRESSES: Final = 16
"""Of one account: those from which it logged in last."""
_LOOPBACK_FAILURES: Final = 10 * FREE_FAILURES
"""This host may run a proxy, behind which are many people."""
_LONGEST_NAME: Final = 64


class LoginAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A login that was admitted."""

    name: str
    source: str
    """The address as it is counted: for IPv6 its /64."""
    exists: bool
    known: bool
    """The account has logged in from there before."""


class Lockout:
    """Counts failures; admits attempts or delays them."""

    def __init__(
        self,
        *,
        clock: Clock,
        most_accounts: int = MOST_ACCOUNTS,
        most_names: int = MOST_NAMES,
        most_addresses: int = MOST_ADDRESSES,
    ) -> None:
        self._clock = clock
        self._most_accounts = most_accounts
        self._accounts: FailureCounts[str] = FailureCounts(most=most_accounts)
        self._names: FailureCounts[str] = FailureCounts(most=most_names)
        """Of unknown names, apart: a flood of them displaces no account. They are delayed in the same way, so that
        answers do not tell which names exist."""
        self._addresses: FailureCounts[str] = FailureCounts(
            most=most_addresses,
            free=lambda key: _LOOPBACK_FAILURES if key == LOOPBACK else FREE_FAILURES,
        )
        self._pairs: FailureCounts[tuple[str, str]] = FailureCounts(most=most_addresses)
        """Of an account and an address. It delays only pairs that are known."""
        self._known: collections.OrderedDict[str, collections.OrderedDict[str, None]]
        self._known = collections.OrderedDict()

    @contextlib.contextmanager
    def attempt(self, user: str, address: str, *, exists: bool) -> Iterator[LoginAttempt]:
        """A login, from before anything is compared until its outcome was told by `failed` or `succeeded`. Left without
        an outcome it does not count: nothing could be compared, or another factor is still missing. LOGIN_DELAYED,
        with the seconds, when the account or the address has to wait.

        `exists`: there is an account of this name. It changes no answer."""
        name, source = _name_key(user), counted_as(address)
        known = exists and source in self._known.get(name, ())
        attempt = LoginAttempt(name=name, source=source, exists=exists, known=known)
        now, accounts = self._clock.monotonic(), self._accounts_of(attempt)
        if known:
            seconds = self._pairs.wait((name, source), now)
        else:
            seconds = max(accounts.wait(name, now), self._addresses.wait(source, now))
        if seconds > 0:
            raise Retryable(
                Code.LOGIN_DELAYED,
                "too many logins with this name or from this address have failed",
                hint="wait, or have an administrator reset the delay; sessions and tokens are not affected",
                retry_after=seconds,
            )
        with contextlib.ExitStack() as in_flight:
            if known:
                in_flight.enter_context(self._pairs.in_flight((name, source)))
            else:
                in_flight.enter_context(accounts.in_flight(name))
                in_flight.enter_context(self._addresses.in_flight(source))
            yield attempt

    def failed(self, attempt: LoginAttempt) -> float:
        """A factor was wrong. Returns the delay of the next attempt in seconds, to be told in the answer; 0: none."""
        now, pair = self._clock.monotonic(), (attempt.name, attempt.source)
        self._addresses.add(attempt.source, now)
        self._pairs.add(pair, now)
        if attempt.known:
            return self._pairs.delay(pair, now)
        accounts = self._accounts_of(attempt)
        accounts.add(attempt.name, now)
        return max(accounts.delay(attempt.name, now), self._addresses.delay(attempt.source, now))

    def succeeded(self, attempt: LoginAttempt) -> None:
        """All factors were right. Of the address only the failures of this user are taken back: whoever has an account
        does not get more attempts at others by it."""
        pair = (attempt.name, attempt.source)
        self._addresses.reduce(attempt.source, self._pairs.count(pair, self._clock.monotonic()))
        self._pairs.clear(pair)
        if not attempt.known:
            self._accounts_of(attempt).clear(attempt.name)
        self._remember(attempt.name, attempt.source)

    def remember(self, user: str, address: str) -> None:
        """The user has a session that began at this address; told by a new leader, of each stored session."""
        self._remember(_name_key(user), counted_as(address))

    def reset(self, user: str) -> None:
        """An administrator's order: the next attempts for this account are not delayed by earlier ones."""
        name = _name_key(user)
        self._accounts.clear(name)
        self._names.clear(name)
        now = self._clock.monotonic()
        for pair in [each for each in self._pairs if each[0] == name]:
            self._addresses.reduce(pair[1], self._pairs.count(pair, now))
            self._pairs.clear(pair)

    def forget(self, user: str) -> None:
        """The account was deleted."""
        self.reset(user)
        self._known.pop(_name_key(user), None)

    def seconds_left(self, user: str) -> float:
        """How long logins of this account from addresses that are not known are delayed; 0: they are not."""
        return self._accounts.delay(_name_key(user), self._clock.monotonic())

    def _accounts_of(self, attempt: LoginAttempt) -> FailureCounts[str]:
        return self._accounts if attempt.exists else self._names

    def _remember(self, name: str, source: str) -> None:
        known = self._known.setdefault(name, collections.OrderedDict())
        self._known.move_to_end(name)
        known[source] = None
        known.move_to_end(source)
        if len(known) > KNOWN_ADDRESSES:
            known.popitem(last=False)
        if len(self._known) > self._most_accounts:
            self._known.popitem(last=False)


def _name_key(user: str) -> str:
    return user.lower()[:_LONGEST_NAME]
