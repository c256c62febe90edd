"""Limits of a caller: how much it may have open, and how often it may send requests.

Open streams, sockets, downloads and waits are one pool, uploads another. An open one is ended when its caller may do
something else than when it was opened, or nothing any more; when the term ends, or when the process ends. Requests are
limited by a token bucket for each caller, and by one for each address whose credentials were refused.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime as dt
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from corral.controller.accounts.principals import Principals
from corral.controller.http.messages.call import Caller
from corral.domain.events import Cursor, Event, EventType
from corral.domain.ids import CallerId
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.addresses import counted_as
from corral.system.aio.tasks import first_of
from corral.system.aio.token_bucket import TokenBuckets
from corral.system.clock import Clock
from corral.system.http_config import HttpLimitsSection

T = TypeVar("T")
NoteUse = Callable[[CallerId, dt.datetime], None]

_LONGEST_TIMER_SECONDS: Final = 30.0
"""Expiry is wall time and wall time may step: a timer looks again after this long at the latest."""


STRANGERS_PER_SECOND: Final = 10
_STRANGERS_BURST: Final = 50
BODY_OF_A_REQUEST: Final = 8 * 1024
"""Bytes of a body that count as one request more."""
_STEPS: Final = 10
"""So many times more often than logins an address may take a step of one by which nothing can be guessed."""


class OpenStream:
    """One stream. `closing` is resolved with the reason when it has to end, whatever it is doing."""

    def __init__(self, caller: Caller, note_use: NoteUse) -> None:
        self.caller = caller
        self._note_use = note_use
        self.closing: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None

    def close(self, reason: str) -> None:
        if not self.closing.done():
            self.closing.set_result(reason)

    def watch_expiry(self, clock: Clock) -> None:
        if self.caller.expires_at is None or self.closing.done():
            return
        self._note_use(self.caller.id, clock.now())  # a session with an open stream is in use
        left = (self.caller.expires_at - clock.now()).total_seconds()
        if left <= 0:
            self.close("the session expired" if self.caller.session else "the token expired")
            return
        delay = min(left, _LONGEST_TIMER_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(delay, self.watch_expiry, clock)

    def forget_expiry(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class OpenStreams:
    """A pool with a limit in all and one for each caller, so that one cannot use up the whole pool."""

    def __init__(
        self,
        *,
        what: str,
        clock: Clock,
        principals: Principals,
        note_use: NoteUse,
        limit: int,
        per_caller: int,
    ) -> None:
        self._what = what
        self._clock = clock
        self._principals = principals
        self._note_use = note_use
        self._limit = limit
        self._per_caller = per_caller
        self._open: set[OpenStream] = set()
        self._counts: collections.Counter[str] = collections.Counter()
        self._over: str | None = None

    def __len__(self) -> int:
        return len(self._open)

    def _admit(self, caller: Caller) -> None:
        if self._over is not None:
            raise Retryable(Code.SHUTTING_DOWN, self._over, hint="ask the leader", retry_after=1.0)
        own = self._counts[caller.limit_key]
        if self._per_caller and own >= self._per_caller:
            raise Retryable(
                Code.RATE_LIMITED,
                f"the {caller.noun} has {own} {self._what} open already",
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
    def opened(self, caller: Caller) -> Iterator[OpenStream]:
        """Register one for as long as it lasts. RATE_LIMITED when too many are open."""
        self._admit(caller)
        stream = OpenStream(caller, self._note_use)
        self._open.add(stream)
        self._counts[caller.limit_key] += 1
        stream.watch_expiry(self._clock)
        self.check(stream)  # something may have changed since the caller was authenticated
        try:
            yield stream
        finally:
            stream.forget_expiry()
            self._open.discard(stream)
            self._counts[caller.limit_key] -= 1
            if not self._counts[caller.limit_key]:
                del self._counts[caller.limit_key]

    async def within(self, stream: OpenStream, work: Coroutine[Any, Any, T], *, otherwise: str) -> T:
        """The result of `work`, unless the rights of the caller or this term end before it does; `otherwise` is the text
        of the refusal then."""
        done, *_ = await first_of(work, stream.closing, name="http/within")
        if done is None:
            raise self.ended(stream, f"{otherwise}: {stream.closing.result()}")
        return done.result()

    def ended(self, stream: OpenStream, message: str) -> CorralError:
        """The refusal of a request whose stream was closed before it was answered."""
        if self._principals.find(stream.caller.id, self._clock.now()) is None:
            return Rejected(Code.UNAUTHENTICATED, message, hint="log in again")
        return Retryable(Code.NOT_LEADER, message, hint="ask again", retry_after=1.0)

    async def on_account_changed(self, event: Event) -> None:
        """Somebody's rights may have changed: end every stream whose caller may do something else now."""
        if event.type is EventType.SESSION_ENDED:
            for stream in list(self._open):
                if stream.caller.id == event.subject:
                    stream.close(f"the session was ended: {event.data.get('reason', '')}")
        self._check_all()

    async def on_resync(self, head: Cursor) -> None:
        """Changes may have been missed: compare with what is stored."""
        del head
        self._check_all()

    def _check_all(self) -> None:
        for stream in list(self._open):
            self.check(stream)

    def check(self, stream: OpenStream) -> None:
        """Close it if its caller may do something else now than when it was opened."""
        now = self._clock.now()
        found = self._principals.find(stream.caller.id, now)
        if found is None:
            stream.close(self._principals.reason(stream.caller.id, now))
        elif found.access != stream.caller.access:
            stream.close("what the caller may do has changed; open it again")

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
        self._callers = TokenBuckets[str](
            burst=limits.burst, per_second=limits.requests_per_second, monotonic=clock.monotonic
        )
        self._strangers = TokenBuckets[str](
            burst=_STRANGERS_BURST, per_second=STRANGERS_PER_SECOND, monotonic=clock.monotonic
        )
        self._logins_per_minute = limits.logins_per_minute
        self._logins, self._login_steps = (
            TokenBuckets[str](
                burst=max(1, limits.logins_per_minute * times),
                per_second=limits.logins_per_minute * times / 60,
                monotonic=clock.monotonic,
            )
            for times in (1, _STEPS)
        )

    def admit(self, caller: Caller, *, cost: int = 1) -> None:
        """RATE_LIMITED when this caller sends requests faster than it may. `cost`: as how many this one counts."""
        if self._per_second and not self._callers.take(caller.limit_key, min(cost, self._burst)):
            counted = f"; this request counts as {cost}" if cost > 1 else ""
            raise _too_often(
                f"the {caller.noun} asks more often than {self._per_second} times a second{counted}",
                retry_after=max(1.0, cost / self._per_second),
            )

    def admit_body(self, caller: Caller, size: int) -> None:
        """Count a body of so many bytes, as `admit_part` does."""
        self.admit_part(caller, size // BODY_OF_A_REQUEST)

    def admit_part(self, caller: Caller, cost: int) -> None:
        """Count what makes an admitted request larger than others: its body, the documents in it. RATE_LIMITED when there is
        no room for it. Each part is at most a third of a burst, so that all of them can pass together."""
        if counted := min(cost, self._burst // 3):
            self.admit(caller, cost=counted)

    async def wait_turn(self, caller: Caller, cost: float) -> None:
        """Wait until this caller may have so much of a request: what comes on a socket is slowed down, not refused."""
        while self._per_second and not self._callers.take(caller.limit_key, cost):
            await asyncio.sleep(cost / self._per_second)

    def stranger(self, address: str) -> None:
        """Count a caller with refused credentials; RATE_LIMITED when the address tries too often."""
        if self._per_second and not self._strangers.take(counted_as(address)):
            raise _too_often(f"{address} was refused more often than {STRANGERS_PER_SECOND} times a second")

    def login(self, address: str, *, guesses: bool) -> None:
        """Count a step of a login, whatever comes of it; RATE_LIMITED when the address takes too many. `guesses`: a password
        or a code may be tried by it."""
        counts = self._logins if guesses else self._login_steps
        if self._logins_per_minute and not counts.take(counted_as(address)):
            raise Retryable(
                Code.RATE_LIMITED,
                f"more than {self._logins_per_minute} logins a minute came from this address",
                hint="wait, or use a token",
                retry_after=60 / self._logins_per_minute,
            )


def _too_often(why: str, *, retry_after: float = 1.0) -> Retryable:
    hint = "ask less often, or follow the event stream"
    return Retryable(Code.RATE_LIMITED, why, hint=hint, retry_after=retry_after)
