"""Tickets: authentication of event streams for browsers, which cannot set headers on them.

A ticket is kept in memory, is valid for one stream within thirty seconds, and stands for the caller
that requested it: it never grants more, and ends with it.
"""

from __future__ import annotations

import base64
import collections
import datetime as dt
import hashlib
from typing import Final

import msgspec

from corral.domain.ids import CallerId
from corral.errors import Code, Rejected, Retryable
from corral.system.clock import Clock
from corral.system.entropy import Entropy

LIFE_SECONDS: Final = 30.0
_MAX_TICKETS: Final = 10_000


class _Ticket(msgspec.Struct, frozen=True):
    caller: CallerId
    deadline: float


class Tickets:
    """Open tickets by the digest of their text."""

    def __init__(self, *, clock: Clock, entropy: Entropy, per_caller: int) -> None:
        self._clock = clock
        self._entropy = entropy
        self._per_caller = per_caller
        self._open: dict[str, _Ticket] = {}
        """In the order in which they lapse."""
        self._counts: collections.Counter[CallerId] = collections.Counter()

    def issue(self, caller: CallerId) -> tuple[str, dt.datetime]:
        """A new ticket's text and when it lapses. RATE_LIMITED when too many are open."""
        self._drop_lapsed()
        own = self._counts[caller]
        if len(self._open) >= _MAX_TICKETS or (self._per_caller and own >= self._per_caller):
            raise Retryable(
                Code.RATE_LIMITED,
                f"the token has {own} tickets that are not used, and there are {len(self._open)} in all",
                hint="use them, or try again when they have lapsed",
                retry_after=LIFE_SECONDS,
            )
        text = base64.urlsafe_b64encode(self._entropy.secret(32)).decode().rstrip("=")
        self._counts[caller] += 1
        self._open[_digest(text)] = _Ticket(caller, self._clock.monotonic() + LIFE_SECONDS)
        return text, self._clock.now() + dt.timedelta(seconds=LIFE_SECONDS)

    def redeem(self, text: str) -> CallerId:
        """The caller behind a ticket, once."""
        ticket = self._drop(_digest(text))
        if ticket is None or ticket.deadline <= self._clock.monotonic():
            raise Rejected(
                Code.UNAUTHENTICATED,
                "the ticket is unknown, used or expired",
                hint="get a new one: POST /api/v1/events/tickets",
            )
        return ticket.caller

    def _drop(self, digest: str) -> _Ticket | None:
        ticket = self._open.pop(digest, None)
        if ticket is not None:
            self._counts[ticket.caller] -= 1
            if not self._counts[ticket.caller]:
                del self._counts[ticket.caller]
        return ticket

    def _drop_lapsed(self) -> None:
        now = self._clock.monotonic()
        while self._open:
            oldest = next(iter(self._open))
            if self._open[oldest].deadline > now:
                return
            self._drop(oldest)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
