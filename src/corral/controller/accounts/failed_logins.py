"""Failed logins in the audit: counted in memory, and written as a few entries that sum them up.

An entry for each failure would let anybody who guesses passwords fill the audit, and push older entries out of it. So there
are at most eleven in ten minutes: one for each of the ten accounts with the most failures, and one for all the rest, names
that nobody has among it. These are not told: somebody may have typed a password there. See ADR 0065.
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
from typing import Final

import structlog

from corral.controller.state.ledger import SYSTEM, Ledger, Step, audit
from corral.errors import CorralError
from corral.system.clock import Clock

ACTION: Final = "auth.login_failed"
MOST_NAMED: Final = 10
GATHER_SECONDS: Final = 1.0
"""From a failure to the entry: of several at once there is one."""
PAUSE_SECONDS: Final = 600.0
"""From one time of writing to the next."""
_ADDRESSES: Final = 5
_log = structlog.get_logger("corral.controller.accounts")


class FailedLogins:
    """The failures of one term that are not in the audit yet. Those of the last minutes are lost with the controller."""

    def __init__(self, *, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._counts: collections.Counter[str] = collections.Counter()
        """By account; the empty name is for all that nobody has. Bounded by the users that there are."""
        self._addresses: dict[str, dict[str, None]] = {}
        self._since: dt.datetime | None = None
        self._some = asyncio.Event()

    def add(self, user: str, address: str) -> None:
        """`user`: the account; empty: there is none of that name."""
        self._since = self._since or self._clock.now()
        self._counts[user] += 1
        seen = self._addresses.setdefault(user, {})
        if len(seen) < _ADDRESSES:
            seen[address] = None
        self._some.set()

    async def run(self, *, gather: float = GATHER_SECONDS, pause: float = PAUSE_SECONDS) -> None:
        """Write what there is, now and then, until cancelled."""
        while True:
            await self._some.wait()
            await asyncio.sleep(gather)
            try:
                await self.store()
            except CorralError as error:
                _log.warning("failed_logins.retried", reason=str(error))
            await asyncio.sleep(pause)

    async def store(self) -> None:
        """Write all that was counted. STORE_UNAVAILABLE, FENCED: it is counted on."""
        counts, addresses, since = self._counts, self._addresses, self._since
        if since is None:
            return
        self._counts, self._addresses, self._since = collections.Counter(), {}, None
        self._some.clear()
        try:
            await self._ledger.commit(*_entries(counts, addresses, since))
        except BaseException:  # also a cancelled caller: what came meanwhile is added
            self._counts += counts
            self._addresses = {**self._addresses, **addresses}
            self._since = since
            self._some.set()
            raise


def _entries(
    counts: collections.Counter[str], addresses: dict[str, dict[str, None]], since: dt.datetime
) -> list[Step]:
    named = [user for user, _ in counts.most_common() if user][:MOST_NAMED]
    steps: list[Step] = [
        audit(
            SYSTEM,
            ACTION,
            user,
            after={"failures": counts[user], "addresses": list(addresses[user]), "since": since.isoformat()},
            outcome="refused",
        )
        for user in named
    ]
    rest = {user: count for user, count in counts.items() if user and user not in named}
    if rest or counts[""]:
        after: dict[str, object] = {
            "failures": sum(rest.values()) + counts[""],
            "accounts": len(rest),
            "of_unknown_names": counts[""],
            "addresses": list(addresses.get("", {})),
            "since": since.isoformat(),
        }
        steps.append(audit(SYSTEM, ACTION, "", after=after, outcome="refused"))
    return steps
