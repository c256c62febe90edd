"""Turns of orders about files, and how long one may take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from corral.errors import Code, Retryable
from corral.system.aio.keyed_locks import KeyedLocks


class Turns:
    """A few at a time, and of each instance fewer than all; the others of an instance wait for their own kind alone."""

    def __init__(self, at_once: int, share: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._shares = KeyedLocks[str](holders=share)

    @contextlib.asynccontextmanager
    async def hold(self, instance_id: str) -> AsyncIterator[None]:
        async with self._shares.hold(instance_id), self._all:
            yield


@contextlib.asynccontextmanager
async def limited(path: str, seconds: float) -> AsyncIterator[None]:
    """TIMEOUT when it takes longer: it is broken off, and no thread goes on with it."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Retryable(
            Code.TIMEOUT,
            f"the work on '{path}' was not done within {seconds:g} s and was broken off",
            hint="look at what is there before you try again",
        ) from None
