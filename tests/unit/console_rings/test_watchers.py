"""Watchers of a console: woken at once after a silence, otherwise at the pace that their work allows; never forgotten."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from corral.controller.consoles.watchers import LONGEST_SECONDS, SHORTEST_SECONDS, Watchers
from corral.domain.ids import InstanceId
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually

A, B = InstanceId("a-1"), InstanceId("b-1")


class HandClock(SystemClock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.time = 1000.0

    def monotonic(self) -> float:
        return self.time


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def watchers(clock: HandClock) -> Watchers:
    return Watchers(clock=clock, cpu_seconds=clock.monotonic)


@contextlib.contextmanager
def watching(watchers: Watchers, id: InstanceId) -> Iterator[list[int]]:
    """The numbers of the wake-ups so far."""
    woken: list[int] = []
    with watchers.one_more(id, on_change=lambda _: None) as wakeup:
        wakeup.chain(lambda: woken.append(wakeup.turn))
        yield woken


async def test_watchers_of_a_quiet_console_are_woken_at_once(watchers, clock):
    with watching(watchers, A) as woken:
        watchers.wake((A,))
        assert woken == [1]
        clock.time += SHORTEST_SECONDS
        watchers.wake((A,))
        assert woken == [1, 2]


async def test_changes_within_the_pause_wake_once_and_are_not_forgotten(watchers, clock):
    with watching(watchers, A) as woken, watching(watchers, B) as others:
        watchers.wake((A,))
        for _ in range(3):
            clock.time += SHORTEST_SECONDS / 10
            watchers.wake((A,))
        assert woken == [1]
        watchers.wake((A, B))
        assert others == [1], "the pause is each console's own"
        clock.time += SHORTEST_SECONDS
        await eventually(lambda: woken == [1, 2])
        clock.time += SHORTEST_SECONDS
        watchers.wake((A,))
        assert woken == [1, 2, 3]


async def test_no_console_is_woken_past_the_queue_and_holds_up_those_behind_it(watchers, clock):
    with watching(watchers, A) as woken, watching(watchers, B) as others:
        watchers.wake((A, B))
        watchers.wake((A, B))
        clock.time += SHORTEST_SECONDS
        watchers.wake((A,))
        await eventually(lambda: (woken, others) == ([1, 2], [1, 2]))


async def turns() -> None:
    """The woken work in the next turn of the loop, and what they took is noted behind them."""
    for _ in range(3):
        await asyncio.sleep(0)


async def busy_watcher(watchers: Watchers, clock: HandClock, seconds: float) -> None:
    """Works that long at each wake-up."""
    with watchers.one_more(A, on_change=lambda _: None) as wakeup:
        while True:
            await wakeup.wait(timeout=60)
            clock.time += seconds


async def test_watchers_that_take_long_are_woken_less_often(watchers, clock):
    work = asyncio.create_task(busy_watcher(watchers, clock, 0.02))
    try:
        await eventually(lambda: watchers.any(A))
        for _ in range(20):
            clock.time += 1
            watchers.wake((A,))
            await turns()
        with watching(watchers, A) as woken:
            clock.time += 1
            watchers.wake((A,))
            await turns()
            assert len(woken) == 1
            clock.time += LONGEST_SECONDS - 0.02 - 0.002
            watchers.wake((A,))
            assert len(woken) == 1, "an idle one would have been woken"
            clock.time += 0.002
            await eventually(lambda: len(woken) == 2)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_watchers_who_leave_during_the_pause_are_let_go(watchers, clock):
    with watching(watchers, A):
        watchers.wake((A,))
        watchers.wake((A,))
    assert not watchers.any(A)
    clock.time += SHORTEST_SECONDS
    await eventually(lambda: watchers._timer is None)
    with watching(watchers, A) as woken:
        watchers.wake((A,))
        assert woken == [1]
