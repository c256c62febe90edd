"""Limits of a caller: how much a token may have open, and how often it may send requests.

Open streams, sockets, downloads and waits are one pool, uploads another. An open one is ended when its token is
revoked or expires, when the term ends, or when the process ends. Requests are limited by a token bucket for each API
token, and by one for each address whose credentials were refused.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any, Final, TypeVar

from corral.controller.state.cluster_state import Mirror
from corral.domain.events import Cursor, Event
from corral.domain.ids import TokenId
from corral.domain.records import ApiTokenRecord
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.aio.tasks import first_of
from corral.system.aio.token_bucket import TokenBuckets
from corral.system.clock import Clock
from corral.system.controller_config import HttpLimitsSection

T = TypeVar("T")

_LONGEST_TIMER_SECONDS: Final = 30.0
"""Expiry is wall time and wall time may step: a timer looks again after this long at the latest."""


STRANGERS_PER_SECOND: Final = 10
_STRANGERS_BURST: Final = 50


class OpenStream:
    """One stream. `closing` is resolved with the reason when it has to end, whatever it is doing."""

    def __init__(self, token: ApiTokenRecord) -> None:
        self.token = token
        self.closing: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def close(self, reason: str) -> None:
        if not self.closing.done():
            self.closing.set_result(reason)

    def watch_expiry(self, clock: Clock) -> None:
        if self.token.expires_at is None or self.closing.done():
            return
        left = (self.token.expires_at - clock.now()).total_seconds()
        if left <= 0:
            self.close("the token expired")
            return
        delay = min(left, _LONGEST_TIMER_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(delay, self.watch_expiry, clock)

    def forget_expiry(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class OpenStreams:
    """A pool with a limit in all and one for each token, so that one token cannot use up the whole pool."""

    def __init__(
        self, *, what: str, clock: Clock, tokens: Mirror[ApiTokenRecord], limit: int, per_token: int
    ) -> None:
        self._what = what
        self._clock = clock
        self._tokens = tokens
        self._limit = limit
        self._per_token = per_token
        self._open: set[OpenStream] = set()
        self._counts: collections.Counter[TokenId] = collections.Counter()
        self._over: str | None = None

    def __len__(self) -> int:
        return len(self._open)

    def _admit(self, token: ApiTokenRecord) -> None:
        if self._over is not None:
            raise Retryable(Code.SHUTTING_DOWN, self._over, hint="ask the leader", retry_after=1.0)
        own = self._counts[token.id]
        if self._per_token and own >= self._per_token:
            raise Retryable(
                Code.RATE_LIMITED,
                f"the token has {own} {self._what} open already",
                hint="close some, use another token, or try again later",
                retry_after=5.0,
            )
        if len(self._open) >= self._limit:
            raise Retryable(
                Code.RATE_LIMITED,
                f"{self._limit} {self._what} are open already",
                hint="close some, or try again later",
                retry_after=5.0,
            )

    @contextlib.contextmanager
    def opened(self, token: ApiTokenRecord) -> Iterator[OpenStream]:
        """Register one for as long as it lasts. RATE_LIMITED when too many are open."""
        self._admit(token)
        stream = OpenStream(token)
        self._open.add(stream)
        self._counts[token.id] += 1
        stream.watch_expiry(self._clock)
        if self._tokens.find(token.id) is None:
            stream.close("the token was revoked")  # between the check of the token and now
        try:
            yield stream
        finally:
            stream.forget_expiry()
            self._open.discard(stream)
            self._counts[token.id] -= 1
            if not self._counts[token.id]:
                del self._counts[token.id]

    async def within(self, stream: OpenStream, work: Coroutine[Any, Any, T], *, otherwise: str) -> T:
        """The result of `work`, unless the caller's token or this term ends before it does; `otherwise` is the text of
        the refusal then."""
        done, *_ = await first_of(work, stream.closing, name="http/within")
        if done is None:
            raise self._ended(stream, otherwise)
        return done.result()

    def _ended(self, stream: OpenStream, otherwise: str) -> CorralError:
        message = f"{otherwise}: {stream.closing.result()}"
        if self._tokens.find(stream.token.id) is None:
            return Rejected(Code.UNAUTHENTICATED, message, hint="log in again")
        return Retryable(Code.NOT_LEADER, message, hint="ask again", retry_after=1.0)

    async def on_token_revoked(self, event: Event) -> None:
        for stream in list(self._open):
            if stream.token.id == event.subject:
                stream.close("the token was revoked")

    async def on_resync(self, head: Cursor) -> None:
        """Revocations may have been missed: compare with what is stored."""
        del head
        for stream in list(self._open):
            if self._tokens.find(stream.token.id) is None:
                stream.close("the token was revoked")

    def close_all(self, reason: str) -> None:
        """End them all and accept no more."""
        self._over = reason
        for stream in list(self._open):
            stream.close(reason)


class RequestRates:
    """Request rates, in memory, for one term. Without `requests_per_second` there is no limit."""

    def __init__(self, limits: HttpLimitsSection, *, clock: Clock) -> None:
        self._per_second = limits.requests_per_second
        self._burst = limits.burst
        self._tokens = TokenBuckets[TokenId](
            burst=limits.burst, per_second=limits.requests_per_second, monotonic=clock.monotonic
        )
        self._strangers = TokenBuckets[str](
            burst=_STRANGERS_BURST, per_second=STRANGERS_PER_SECOND, monotonic=clock.monotonic
        )

    def admit(self, token: TokenId, *, cost: int = 1) -> None:
        """RATE_LIMITED when this token sends requests faster than it may. `cost`: as how many this one counts."""
        if self._per_second and not self._tokens.take(token, min(cost, self._burst)):
            counted = f"; this request counts as {cost}" if cost > 1 else ""
            raise _too_often(f"the token asks more often than {self._per_second} times a second{counted}")

    def stranger(self, address: str) -> None:
        """Count a caller with refused credentials; RATE_LIMITED when the address tries too often."""
        if self._per_second and not self._strangers.take(address):
            raise _too_often(f"{address} was refused more often than {STRANGERS_PER_SECOND} times a second")


def _too_often(why: str) -> Retryable:
    return Retryable(
        Code.RATE_LIMITED, why, hint="ask less often, or follow the event stream", retry_after=1.0
    )
