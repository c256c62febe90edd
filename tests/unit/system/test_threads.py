"""Work in threads: finished or stopped where it says, never left behind."""

from __future__ import annotations

import asyncio
import pathlib
import threading

import pytest

from corral.system.files import sha256_of
from corral.system.threads import check_cancelled, to_end
from corral.testing.waiting import eventually


async def cancelled(task: asyncio.Task) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_short_work_is_done_also_for_one_who_waits_no_more() -> None:
    begun, may_end, done = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        may_end.wait()
        done.append(True)

    task = asyncio.create_task(to_end(work))
    await eventually(begun.is_set)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # impatience changes nothing
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    await cancelled(task)
    assert done == [True]


async def test_long_work_stops_at_its_next_step_when_it_is_wanted_no_more() -> None:
    steps, ended = [], threading.Event()

    def work() -> None:
        try:
            while True:  # it has no end of its own
                steps.append(1)
                check_cancelled()
        finally:
            ended.set()

    task = asyncio.create_task(to_end(work))
    await eventually(lambda: len(steps) > 10)
    await cancelled(task)
    assert ended.is_set()


async def test_only_the_work_that_was_given_up_stops() -> None:
    may_ask, others = threading.Event(), []

    def work(number: int) -> int:
        may_ask.wait()
        check_cancelled()
        others.append(number)
        return number

    first, second = (asyncio.create_task(to_end(work, number)) for number in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    may_ask.set()
    assert await second == 2
    await cancelled(first)
    assert others == [2]
    check_cancelled()  # outside of all work: nothing


async def test_a_digest_that_nobody_waits_for_ends_though_its_file_does_not() -> None:
    with pathlib.Path("/dev/zero").open("rb") as file:
        task = asyncio.create_task(to_end(sha256_of, file))
        await asyncio.sleep(0)
        await cancelled(task)
