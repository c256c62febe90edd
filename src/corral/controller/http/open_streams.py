"""The streams that are open now, and the reasons to end one: its token is revoked or expires, the
term is over, the process ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from corral.controller.cluster_state import Mirror
from corral.domain.events import Cursor, Event
from corral.domain.records import ApiTokenRecord
from corral.errors import Code, Retryable
from corral.system.clock import Clock

_LONGEST_TIMER_SECONDS: Final = 30.0
"""Expiry is wall time and wall time may step: a timer looks again after this long at the latest."""


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
    """All open streams of a term, bounded in number."""

    def __init__(self, *, clock: Clock, tokens: Mirror[ApiTokenRecord], limit: int) -> None:
        self._clock = clock
        self._tokens = tokens
        self._limit = limit
        self._open: set[OpenStream] = set()
        self._over: str | None = None

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def opened(self, token: ApiTokenRecord) -> Iterator[OpenStream]:
        """Register a stream for as long as it lasts. RATE_LIMITED when too many are open."""
        if self._over is not None:
            raise Retryable(Code.SHUTTING_DOWN, self._over, hint="ask the leader", retry_after=1.0)
        if len(self._open) >= self._limit:
            raise Retryable(
                Code.RATE_LIMITED,
                f"{self._limit} streams are open already",
                hint="close some, or try again later",
                retry_after=5.0,
            )
        stream = OpenStream(token)
        self._open.add(stream)
        stream.watch_expiry(self._clock)
        if self._tokens.find(token.id) is None:
            stream.close("the token was revoked")  # between the check of the token and now
        try:
            yield stream
        finally:
            stream.forget_expiry()
            self._open.discard(stream)

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
