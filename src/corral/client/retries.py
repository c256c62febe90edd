"""When a request is sent again: decided from its failures, without waiting. The caller waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from corral.client.errors import (
    EARLIER,
    IN_DOUBT,
    ApiError,
    ClientError,
    RateLimited,
    Unavailable,
    Unreachable,
)

TIMEOUT_SECONDS: Final = 30.0
"""How long an answer may take, unless a client says otherwise."""
_FIRST_PAUSE: Final = 0.2
_NOT_LEADER: Final = "NOT_LEADER"
_NODE_OFFLINE: Final = "NODE_OFFLINE"
_BEFORE_THE_KEY: Final = frozenset({401, 403, 429})
"""Refusals that say nothing of an earlier attempt with the same key; nor do those from 500 on."""


class Retry(NamedTuple):
    """How often, and how long in all, a request is repeated that may be: a read, or a change with an idempotency key."""

    attempts: int | None = None
    """Requests in all; 1: none is repeated; None: as many as there is time for."""
    seconds: float = 30.0
    """No repetition begins later than this after the first request."""
    longest_pause: float = 5.0
    """Between two attempts, where the answer names no time (`Retry-After`)."""


class Attempts:
    """The attempts at one request."""

    def __init__(
        self, retry: Retry, *, repeatable: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._retry = retry
        self._repeatable = repeatable
        self._clock = clock
        self._begun = clock()
        self._failed = 0
        self._in_doubt = False
        self._restarted = False
        """The controller was away meanwhile: its nodes come back after it."""

    def pause_after(self, failure: ClientError) -> float:
        """How long to wait before the next attempt; raises the failure when there is none. An attempt that may have taken
        effect leaves the failure of each later one in doubt, unless the controller has answered what became of it."""
        self._failed += 1
        if isinstance(failure, Unreachable) or (
            isinstance(failure, ApiError) and failure.code == _NOT_LEADER
        ):
            self._restarted = True
        if failure.in_doubt:
            self._in_doubt = True
        elif self._in_doubt and not _settles(failure):
            kept = f"{failure.hint}; " if isinstance(failure, ApiError) and failure.hint else ""
            failure.in_doubt, failure.hint = True, f"{kept}{EARLIER}"
        most = self._retry.attempts
        if not self._repeatable or (most is not None and self._failed >= most) or not self._passes(failure):
            raise failure
        pause = backoff(self._failed - 1, longest=self._retry.longest_pause)
        if isinstance(failure, ApiError) and failure.retry_after is not None:
            pause = max(pause, failure.retry_after)
        if self._clock() - self._begun + pause > self._retry.seconds:
            raise failure
        return pause

    def _passes(self, failure: ClientError) -> bool:
        away = isinstance(failure, ApiError) and failure.code == _NODE_OFFLINE
        return passes(failure) or (away and self._restarted)


def _settles(failure: ClientError) -> bool:
    """Whether it is the controller's word on the request with this key, so that no earlier attempt took effect."""
    if not isinstance(failure, ApiError) or failure.code in IN_DOUBT:
        return False
    return failure.status < 500 and failure.status not in _BEFORE_THE_KEY


def passes(failure: ClientError) -> bool:
    """Whether the same request may be answered differently in a moment."""
    if isinstance(failure, Unreachable):
        return failure.passing
    return isinstance(failure, RateLimited | Unavailable)


def backoff(failures: int, *, longest: float) -> float:
    """Twice as long after each failure, spread so that many clients do not come back at once."""
    pause = min(longest, _FIRST_PAUSE * 2.0 ** min(failures, 20))
    return float(pause * (0.5 + random.random() / 2))  # noqa: S311 - jitter
