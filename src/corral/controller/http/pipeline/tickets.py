"""Tickets: authentication of event streams for browsers, which cannot set headers on them.

A ticket is kept in memory, is valid for one stream within thirty seconds, and stands for the caller
that requested it: it never grants more, and ends with it.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from corral.controller.accounts.one_time_codes import OneTimeCodes
from corral.controller.http.messages.call import Caller
from corral.domain.ids import CallerId
from corral.errors import Code, Rejected
from corral.system.clock import Clock
from corral.system.entropy import Entropy

LIFE_SECONDS: Final = 30.0
_MAX_TICKETS: Final = 10_000


class Tickets:
    """Open tickets, counted by caller."""

    def __init__(self, *, clock: Clock, entropy: Entropy, per_caller: int) -> None:
        self._clock = clock
        self._codes: OneTimeCodes[str, CallerId] = OneTimeCodes(
            clock=clock,
            entropy=entropy,
            life_seconds=LIFE_SECONDS,
            most=_MAX_TICKETS,
            most_per_owner=per_caller,
            noun="ticket",
            owner_noun="caller",
        )

    def issue(self, caller: Caller) -> tuple[str, dt.datetime]:
        """A new ticket's text and when it lapses. RATE_LIMITED when too many are open."""
        text = self._codes.issue(caller.limit_key, caller.id)
        return text, self._clock.now() + dt.timedelta(seconds=LIFE_SECONDS)

    def redeem(self, text: str) -> CallerId:
        """The caller behind a ticket, once."""
        caller = self._codes.redeem(text)
        if caller is None:
            raise Rejected(
                Code.UNAUTHENTICATED,
                "the ticket is unknown, used or expired",
                hint="get a new one: POST /api/v1/events/tickets",
            )
        return caller
