"""The same work asked for several times at once."""

from __future__ import annotations

import asyncio

import pytest

from corral.daemon.cache.supply import SharedWork
from corral.errors import Code, Retryable


class Work:
    """Counts how often it was begun and whether it ever ran twice at a time."""

    def __init__(self) -> None:
        self.begun = self.running = self.most = self.cancelled = 0
        self.release = asyncio.Event()
        self.last_words = asyncio.Event()
        self.last_words.set()

    async def __call__(self) -> int:
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await self.last_words.wait()
            raise
        finally:
            self.running -= 1
        return self.begun


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_those_who_come_meanwhile_share_the_result():
    joined, work = SharedWork(), Work()
    asking = [asyncio.create_task(joined.run("key", work, name="work")) for _ in range(5)]
    await settle()
    work.release.set()
    assert await asyncio.gather(*asking) == [1] * 5
    assert await joined.run("key", work, name="work") == 2, "what is over is begun again"


async def test_an_error_is_shared_as_well():
    joined: SharedWork[int] = SharedWork()

    async def fail() -> int:
        raise Retryable(Code.TIMEOUT, "no")

    asking = [asyncio.create_task(joined.run("key", fail, name="work")) for _ in range(3)]
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(result, Retryable) for result in results)


async def test_it_goes_on_while_anybody_waits_and_ends_with_the_last():
    joined, work = SharedWork(), Work()
    first, second = (asyncio.create_task(joined.run("key", work, name="work")) for _ in range(2))
    await settle()
    first.cancel()
    await settle()
    assert work.running == 1
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert (work.running, work.cancelled) == (0, 1)


async def test_what_is_being_ended_is_not_begun_again_before_its_end():
    joined, work = SharedWork(), Work()
    work.last_words.clear()
    first = asyncio.create_task(joined.run("key", work, name="work"))
    await settle()
    first.cancel()
    await settle()
    second = asyncio.create_task(joined.run("key", work, name="work"))
    await settle()
    assert work.begun == 1
    work.last_words.set()
    work.release.set()
    assert await second == 2
    assert work.most == 1
    await asyncio.gather(first, return_exceptions=True)


async def test_closing_ends_all_of_it():
    joined, work = SharedWork(), Work()
    asking = asyncio.create_task(joined.run("key", work, name="work"))
    await settle()
    await joined.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert work.running == 0
