"""One-time codes: secrets that are kept in the leader's memory, stand for a value, and are redeemed once.

A new leader knows none of them: whoever has an old one gets a new one.
"""

from __future__ import annotations

import collections
from collections.abc import Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from corral.errors import Code, Retryable
from corral.system.clock import Clock
from corral.system.entropy import Entropy
from corral.system.opaque_secrets import new_secret, secret_digest

Owner = TypeVar("Owner", bound=Hashable)
Value = TypeVar("Value")

LOGIN_SECONDS: Final = 60.0
"""For the page that a provider of OpenID Connect sends the browser back to."""
_LONGEST: Final = 128
_RETRY_SECONDS: Final = 60.0


class _Code(NamedTuple, Generic[Owner, Value]):
    owner: Owner
    value: Value
    deadline: float | None


class OneTimeCodes(Generic[Owner, Value]):
    """Codes of one kind, with one life. An owner is whom they are counted for."""

    def __init__(
        self,
        *,
        clock: Clock,
        entropy: Entropy,
        life_seconds: float | None,
        most: int,
        most_per_owner: int = 0,
        noun: str = "code",
        owner_noun: str = "caller",
    ) -> None:
        """No life: until it is used. `most_per_owner` 0: no limit but that for all."""
        self._clock = clock
        self._entropy = entropy
        self._life = life_seconds
        self._most = most
        self._most_per_owner = most_per_owner
        self._noun = noun
        self._owner_noun = owner_noun
        self._open: dict[str, _Code[Owner, Value]] = {}
        """By the digest of their text, in the order in which they expire."""
        self._counts: collections.Counter[Owner] = collections.Counter()

    def __len__(self) -> int:
        """Codes that can be redeemed now."""
        self._drop_expired()
        return len(self._open)

    def issue(self, owner: Owner, value: Value) -> str:
        """The text of a new code. RATE_LIMITED when too many are not used: none is dropped for another."""
        self._drop_expired()
        own = self._counts[owner]
        if len(self._open) >= self._most or (self._most_per_owner and own >= self._most_per_owner):
            raise Retryable(
                Code.RATE_LIMITED,
                f"the {self._owner_noun} has {own} unused {self._noun}s, and there are {len(self._open)} in all",
                hint="use them, or try again when they have expired",
                retry_after=self._life or _RETRY_SECONDS,
            )
        text = new_secret(self._entropy)
        deadline = None if self._life is None else self._clock.monotonic() + self._life
        self._counts[owner] += 1
        self._open[secret_digest(text)] = _Code(owner, value, deadline)
        return text

    def find(self, text: str) -> Value | None:
        """The value behind a code, which stays as it is; None as of `redeem`."""
        found = self._open.get(secret_digest(text)) if len(text) <= _LONGEST else None
        return None if found is None or self._has_expired(found) else found.value

    def redeem(self, text: str) -> Value | None:
        """The value behind a code, once; None: it is unknown, used or expired.

        The lookup is by digest. What its duration tells is about the digest, from which nobody finds the text."""
        found = self._drop(secret_digest(text)) if len(text) <= _LONGEST else None
        if found is None or self._has_expired(found):
            return None
        return found.value

    def revoke(self, owner: Owner) -> None:
        """Void all codes of this owner."""
        for digest in [digest for digest, code in self._open.items() if code.owner == owner]:
            self._drop(digest)

    def _drop(self, digest: str) -> _Code[Owner, Value] | None:
        code = self._open.pop(digest, None)
        if code is not None:
            self._counts[code.owner] -= 1
            if not self._counts[code.owner]:
                del self._counts[code.owner]
        return code

    def _drop_expired(self) -> None:
        while self._open:
            oldest = next(iter(self._open))
            if not self._has_expired(self._open[oldest]):
                return
            self._drop(oldest)

    def _has_expired(self, code: _Code[Owner, Value]) -> bool:
        return code.deadline is not None and code.deadline <= self._clock.monotonic()
