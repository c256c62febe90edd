"""Logins of a command line that are approved in a browser, for people without a password here and hosts without a browser.

The command line gets two codes (as in RFC 8628): one that it keeps, and a short one that a person types into the login
page after logging in there in any way. The page shows where the request came from, because somebody may have been
talked into approving a login that is not his own. In memory of the leader: after a change of it, the command line begins again.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import re
from collections.abc import AsyncIterator
from typing import Final

from corral.controller.accounts.one_time_codes import OneTimeCodes
from corral.domain.accounts.records import shown_agent
from corral.domain.ids import UserSessionId
from corral.errors import Code, Rejected, Retryable
from corral.system.addresses import network_of
from corral.system.clock import Clock
from corral.system.entropy import Entropy

LIFE: Final = dt.timedelta(minutes=10)
WAIT_SECONDS: Final = 25.0
"""How long a request of the command line waits for the approval; then it asks again."""
_MOST: Final = 1000
_MOST_PER_NETWORK: Final = 10
_MOST_WAITERS: Final = 2
"""Of one login: one, and another that took its place when its connection was lost."""
_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""Without vowels, so that no words come about, and without what looks alike."""
_LENGTH: Final = 8
_TYPED: Final = re.compile(r"[^A-Z]")


class DeviceLogin:
    """A login that waits for a person."""

    def __init__(
        self, *, user_code: str, address: str, agent: str, started_at: dt.datetime, deadline: float
    ) -> None:
        self.user_code: Final = user_code
        self.address: Final = address
        self.agent: Final = agent
        self.started_at: Final = started_at
        self.deadline: Final = deadline
        """Of the monotonic clock."""
        self.waiters = 0
        self.turn: Final = asyncio.Lock()
        self.approver: UserSessionId | None = None
        """The session in which it was approved: with that one the approval ends."""
        self.decided: Final = asyncio.Event()

    @property
    def expires_at(self) -> dt.datetime:
        return self.started_at + LIFE


class DeviceLogins:
    """The logins of one term that wait."""

    def __init__(self, *, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._by_device: OneTimeCodes[str, DeviceLogin] = OneTimeCodes(
            clock=clock,
            entropy=entropy,
            life_seconds=LIFE.total_seconds(),
            most=_MOST,
            most_per_owner=_MOST_PER_NETWORK,
            noun="login",
            owner_noun="network",
        )
        self._by_user_code: dict[str, DeviceLogin] = {}

    @property
    def waiting(self) -> list[DeviceLogin]:
        """Those that nobody has decided about."""
        return list(self._by_user_code.values())

    def begin(self, *, address: str, agent: str) -> tuple[str, DeviceLogin]:
        """The code that the command line keeps, and the login. RATE_LIMITED."""
        now = self._clock.monotonic()
        self._by_user_code = {code: each for code, each in self._by_user_code.items() if each.deadline > now}
        waiting = DeviceLogin(
            user_code=self._new_user_code(),
            address=address,
            agent=shown_agent(agent),
            started_at=self._clock.now(),
            deadline=now + LIFE.total_seconds(),
        )
        device_code = self._by_device.issue(network_of(address), waiting)
        self._by_user_code[waiting.user_code] = waiting
        return device_code, waiting

    def find(self, user_code: str) -> DeviceLogin:
        """The login whose code a person typed; NOT_FOUND."""
        found = self._by_user_code.get(_plain(user_code))
        if found is None or found.decided.is_set() or found.deadline <= self._clock.monotonic():
            raise Rejected(
                Code.NOT_FOUND,
                "no login waits with this code",
                hint="check it, or begin again with 'corral login'; a code holds for ten minutes",
                field="user_code",
            )
        return found

    def decide(self, user_code: str, approver: UserSessionId | None) -> DeviceLogin:
        """Let the command line in as the user of this session, or refuse it. NOT_FOUND."""
        found = self.find(user_code)
        found.approver = approver
        found.decided.set()
        del self._by_user_code[found.user_code]
        return found

    @contextlib.asynccontextmanager
    async def approved(
        self, device_code: str, *, seconds: float = WAIT_SECONDS
    ) -> AsyncIterator[UserSessionId]:
        """The session in which somebody approved the login of this code. The code is used up when the context is left without
        an error. LOGIN_PENDING when nobody has approved it yet, LOGIN_FAILED, RATE_LIMITED."""
        waiting = self._by_device.find(device_code)
        if waiting is None:
            raise void_device_code()
        await self._decision(waiting, seconds)
        async with waiting.turn:
            if self._by_device.find(device_code) is None or waiting.approver is None:
                raise void_device_code()
            yield waiting.approver
            self._by_device.redeem(device_code)

    async def _decision(self, waiting: DeviceLogin, seconds: float) -> None:
        if waiting.waiters >= _MOST_WAITERS:
            raise Retryable(
                Code.RATE_LIMITED, "this login is waited for already", hint="wait for it", retry_after=seconds
            )
        waiting.waiters += 1
        try:
            async with asyncio.timeout(seconds):
                await waiting.decided.wait()
        except TimeoutError:
            raise Retryable(
                Code.LOGIN_PENDING,
                "nobody has approved the login yet",
                hint="ask again, until the code has expired",
                retry_after=1.0,
            ) from None
        finally:
            waiting.waiters -= 1

    def close(self) -> None:
        """The term ends: nobody waits any longer, and no code holds."""
        for waiting in self.waiting:
            waiting.decided.set()
        self._by_user_code = {}

    def _new_user_code(self) -> str:
        while True:
            drawn = self._entropy.secret(_LENGTH * 4)
            numbers = (int.from_bytes(drawn[at : at + 4]) for at in range(0, len(drawn), 4))
            code = "".join(_LETTERS[number % len(_LETTERS)] for number in numbers)
            if code not in self._by_user_code:
                return code


def shown_user_code(code: str) -> str:
    """As people read it: two groups of four."""
    return f"{code[: _LENGTH // 2]}-{code[_LENGTH // 2 :]}"


def _plain(typed: str) -> str:
    return _TYPED.sub("", typed[:64].upper())


def void_device_code() -> Rejected:
    return Rejected(
        Code.LOGIN_FAILED,
        "the login was refused, or its code is unknown, used or expired",
        hint="begin again with 'corral login'",
        field="device_code",
    )
