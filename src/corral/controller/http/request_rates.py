"""How often a caller may ask: a bucket for each token, and one for each address whose credentials are no good."""

from __future__ import annotations

import collections
from typing import Final

from corral.domain.ids import TokenId
from corral.errors import Code, Retryable
from corral.modules.bucket import Bucket
from corral.system.clock import Clock
from corral.system.config_schema import HttpLimitsSection

STRANGERS_PER_SECOND: Final = 10
_STRANGERS_BURST: Final = 50
_KEPT: Final = 10_000
"""Callers that are remembered; who was not seen for longest is forgotten first, and begins with a full bucket."""


class RequestRates:
    """Kept in memory, for as long as a term lasts. Without `requests_per_second` nobody is held back."""

    def __init__(self, limits: HttpLimitsSection, *, clock: Clock) -> None:
        self._per_second = limits.requests_per_second
        self._burst = limits.burst
        self._clock = clock
        self._buckets: collections.OrderedDict[tuple[str, str], Bucket] = collections.OrderedDict()

    def admit(self, token: TokenId) -> None:
        """RATE_LIMITED when this token asks more often than it may."""
        if self._per_second and not self._bucket("token", token, self._burst, self._per_second).take():
            raise _too_often(f"the token asks more often than {self._per_second} times a second")

    def stranger(self, address: str) -> None:
        """Somebody whose credentials were not good; RATE_LIMITED when he tries too often."""
        if (
            self._per_second
            and not self._bucket("address", address, _STRANGERS_BURST, STRANGERS_PER_SECOND).take()
        ):
            raise _too_often(f"{address} was refused more often than {STRANGERS_PER_SECOND} times a second")

    def _bucket(self, kind: str, name: str, burst: int, per_second: int) -> Bucket:
        bucket = self._buckets.pop((kind, name), None)
        if bucket is None:
            bucket = Bucket(burst=burst, per_second=per_second, clock=self._clock)
            while len(self._buckets) >= _KEPT:
                self._buckets.popitem(last=False)
        self._buckets[kind, name] = bucket
        return bucket


def _too_often(why: str) -> Retryable:
    return Retryable(
        Code.RATE_LIMITED, why, hint="ask less often, or follow the event stream", retry_after=1.0
    )
