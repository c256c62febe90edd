"""Password hashes: argon2id, computed off the loop, few at once.

A hash takes 64 MiB and a tenth of a second or more. So at most two are computed at a time, some wait, and more are refused:
logins never take more than 128 MiB. A password without a stored hash (no such user, no password) is compared with a
hash that fits nothing, so that it costs the same.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import concurrent.futures
import functools
import re
from collections.abc import Callable
from typing import Final, TypeVar

import argon2
import msgspec
import structlog

from corral.domain.accounts.password_policy import normal_password
from corral.errors import Code, Retryable
from corral.system.addresses import LOOPBACK
from corral.system.entropy import Entropy
from corral.system.threads import to_end

T = TypeVar("T")

AT_ONCE: Final = 2
WAITING: Final = 20
KEPT: Final = 6
"""Of these places, for those who have proved something before: sessions, and users at addresses that they came from."""
PER_NETWORK: Final = 4
"""Of the others, for one network."""
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_RETRY_SECONDS: Final = 2.0
_STORED: Final = re.compile(
    r"\$argon2id\$v=19\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,86}"
)

_log = structlog.get_logger("corral.accounts")


class HashCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one hash costs. Stored hashes of another cost are computed anew at the next login."""

    memory_kib: int = 64 * 1024
    passes: int = 3
    lanes: int = 1


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    matches: bool
    new_hash: str = ""
    """To be stored in place of the old one, which has another cost; empty: nothing is to be stored."""


class Passwords:
    """Computes hashes in threads of its own. Close it; it cannot be used afterwards."""

    def __init__(
        self,
        *,
        entropy: Entropy,
        cost: HashCost | None = None,
        at_once: int = AT_ONCE,
        waiting: int = WAITING,
    ) -> None:
        self._entropy = entropy
        self._cost = cost or HashCost()
        self._hasher = argon2.PasswordHasher(
            time_cost=self._cost.passes,
            memory_cost=self._cost.memory_kib,
            parallelism=self._cost.lanes,
            hash_len=_HASH_BYTES,
            salt_len=_SALT_BYTES,
        )
        self.fits_nothing = self._random_hash()
        """Compared with in place of a hash that is not there."""
        self._most = at_once + waiting
        self.under_way = 0
        """Hashes that are computed or waited for."""
        self._strangers: collections.Counter[str] = collections.Counter()
        """Those among them of strangers, by network."""
        self._closing = False
        self._threads = concurrent.futures.ThreadPoolExecutor(
            at_once, thread_name_prefix="corral/accounts/hash"
        )

    async def hash(self, password: str) -> str:
        """The hash to be stored for a password that `check_new_password` accepted. RATE_LIMITED when too many wait."""
        return await self._run(functools.partial(self._hash, _encoded(password)))

    async def verify(self, password: str, stored: str, *, user: str, network: str = "") -> Verification:
        """Whether this is the password of the stored hash; an empty one (unknown user, no password) fits nothing and
        costs the same. RATE_LIMITED when too many wait: then nothing was compared, and no failure is to be counted.
        `network`: where somebody is from who has proved nothing yet; such have a share of the places, and one network of them a
        share of that.

        A stored hash that cannot be used is logged, under the name of its `user`, and fits nothing."""
        usable = self._is_usable(stored)
        if stored and not usable:
            _log.warning("password_hash.refused", user=user, reason="it is damaged, or of a newer version")
        expected = stored if usable else self.fits_nothing
        work = functools.partial(self._verify, _encoded(password), expected)
        if not network:
            return await self._run(work)
        self._refuse_flood(network)
        self._strangers[network] += 1
        try:
            return await self._run(work)
        finally:
            self._strangers -= collections.Counter({network: 1})

    def _refuse_flood(self, network: str) -> None:
        share = PER_NETWORK * (1 if network != LOOPBACK else 3)  # this host may run a proxy
        if self._strangers[network] >= share or self._strangers.total() >= self._most - KEPT:
            raise _too_many(self._strangers.total())

    async def close(self) -> None:
        """Refuse those that wait, and wait for those that are computed. Idempotent."""
        self._closing = True
        await to_end(self._threads.shutdown)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._closing:
            raise _shutting_down()
        if self.under_way >= self._most:
            raise _too_many(self.under_way)
        loop = asyncio.get_running_loop()
        future = self._threads.submit(self._unless_closing, work)
        self.under_way += 1
        # Not when the caller has gone: the thread goes on with its memory. One that still waits is taken back.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._ended))
        return await asyncio.wrap_future(future)

    def _ended(self) -> None:
        self.under_way -= 1

    def _unless_closing(self, work: Callable[[], T]) -> T:
        if self._closing:
            raise _shutting_down()
        try:
            return work()
        except (argon2.exceptions.HashingError, argon2.exceptions.VerificationError) as error:
            raise Retryable(
                Code.RATE_LIMITED,
                f"the password cannot be checked at present: {error}",
                hint="the controller may be short of memory; try again in a moment",
                retry_after=_RETRY_SECONDS,
            ) from error

    def _hash(self, password: bytes) -> str:
        return self._hasher.hash(password, salt=self._entropy.secret(_SALT_BYTES))

    def _verify(self, password: bytes, expected: str) -> Verification:
        try:
            self._hasher.verify(expected, password)
        except argon2.exceptions.VerifyMismatchError:
            return Verification(matches=False)
        if not self._hasher.check_needs_rehash(expected):
            return Verification(matches=True)
        return Verification(matches=True, new_hash=self._hash(password))

    def _is_usable(self, stored: str) -> bool:
        """Whether it is a hash, and costs no more than ours: the store does not decide how much memory is taken."""
        found = _STORED.fullmatch(stored)
        if found is None:
            return False
        memory, passes, lanes = (int(each) for each in found.groups())
        cost = self._cost
        return memory <= cost.memory_kib and passes <= cost.passes and lanes <= cost.lanes

    def _random_hash(self) -> str:
        """A hash of our cost that was never computed: nobody knows a password for it, and comparing takes as long."""
        cost = self._cost
        salt, hashed = (
            base64.b64encode(self._entropy.secret(size)).decode().rstrip("=")
            for size in (_SALT_BYTES, _HASH_BYTES)
        )
        return f"$argon2id$v=19$m={cost.memory_kib},t={cost.passes},p={cost.lanes}${salt}${hashed}"


def _encoded(password: str) -> bytes:
    return normal_password(password).encode("utf-8", "surrogatepass")


def _too_many(under_way: int) -> Retryable:
    return Retryable(
        Code.RATE_LIMITED,
        f"{under_way} passwords are being checked already",
        hint="try again in a moment",
        retry_after=_RETRY_SECONDS,
    )


def _shutting_down() -> Retryable:
    return Retryable(Code.SHUTTING_DOWN, "the controller is shutting down", hint="try again in a moment")
