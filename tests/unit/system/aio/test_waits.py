"""Waiting for an event with a time limit, under cancellation as well."""

from __future__ import annotations

import asyncio

import pytest

from corral.system.aio.tasks import set_within


async def test_an_event_that_is_set_in_time_is_seen() -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(set_within(event, 20))
    await asyncio.sleep(0)
    event.set()
    assert await waiting
    assert await set_within(event, 0)


async def test_an_event_that_is_not_set_in_time_is_not() -> None:
    assert not await set_within(asyncio.Event(), 0.001)


async def test_without_a_limit_it_waits_for_as_long_as_it_takes() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, event.set)
    assert await set_within(event, None)


async def test_a_cancellation_together_with_the_event_is_not_forgotten() -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(set_within(event, 20))
    await asyncio.sleep(0)
    event.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
