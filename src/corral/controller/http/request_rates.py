"""How often a caller may ask: a bucket for each token, and one for each address whose credentials are no good."""

from __future__ import annotations

from typing import Final

from corral.domain.ids import TokenId
from corral.errors import Code, Retryable
from corral.system.aio.token_bucket import TokenBuckets
from corral.system.clock import Clock
from corral.system.controller_config import HttpLimitsSection

STRANGERS_PER_SECOND: Final = 10
_STRANGERS_BURST: Final = 50


class RequestRates:
    """Kept in memory, for as long as a term lasts. Without `requests_per_second` nobody is held back."""

    def __init__(self, limits: HttpLimitsSection, *, clock: Clock) -> None:
        self._per_second = limits.requests_per_second
        self._tokens = TokenBuckets[TokenId](
            burst=limits.burst, per_second=limits.requests_per_second, monotonic=clock.monotonic
        )
        self._strangers = TokenBuckets[str](
            burst=_STRANGERS_BURST, per_second=STRANGERS_PER_SECOND, monotonic=clock.monotonic
        )

    def admit(self, token: TokenId) -> None:
        """RATE_LIMITED when this token asks more often than it may."""
        if self._per_second and not self._tokens.take(token):
            raise _too_often(f"the token asks more often than {self._per_second} times a second")

    def stranger(self, address: str) -> None:
        """Somebody whose credentials were not good; RATE_LIMITED when he tries too often."""
        if self._per_second and not self._strangers.take(address):
            raise _too_often(f"{address} was refused more often than {STRANGERS_PER_SECOND} times a second")


def _too_often(why: str) -> Retryable:
    return Retryable(
        Code.RATE_LIMITED, why, hint="ask less often, or follow the event stream", retry_after=1.0
    )
