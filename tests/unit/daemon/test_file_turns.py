"""Turns of orders about files: no instance has all of them, and none is held for longer than is waited for it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from corral.daemon.orders.file_turns import Turns, limited
from corral.daemon.prepare.abort import Abort, Aborted, in_thread
from corral.errors import Code, Retryable


@pytest.mark.trap("T42")
async def test_the_orders_of_one_instance_leave_turns_to_others() -> None:
    turns, over = Turns(at_once=3, share=2), asyncio.Event()
    held: list[str] = []

    async def order(instance: str) -> None:
        async with turns.hold(instance):
            held.append(instance)
            await over.wait()

    async with asyncio.TaskGroup() as orders:
        for instance in (*["greedy"] * 5, "other", "late"):
            orders.create_task(order(instance))
        while len(held) < 3:
            await asyncio.sleep(0)
        assert held == ["greedy", "greedy", "other"]
        over.set()
    assert sorted(held) == [*["greedy"] * 5, "late", "other"]


async def test_work_that_takes_too_long_is_broken_off_and_its_thread_ends() -> None:
    ended = threading.Event()

    def work(abort: Abort) -> None:
        try:
            while True:
                abort.check()
        except Aborted:
            ended.set()

    with pytest.raises(Retryable, match="'a' was not done within") as refused:
        async with limited("a", 0.01):
            await in_thread(work)
    assert refused.value.code is Code.TIMEOUT
    assert ended.is_set()


@pytest.mark.trap("T42")
async def test_work_in_threads_of_its_own_takes_none_of_the_others() -> None:
    loop, begun, over = asyncio.get_running_loop(), threading.Event(), threading.Event()

    def work(_: Abort) -> None:
        begun.set()
        over.wait()

    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
    with concurrent.futures.ThreadPoolExecutor(2) as own:
        busy = [asyncio.create_task(in_thread(work, threads=own)) for _ in range(2)]
        try:
            while not begun.is_set():
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                assert await asyncio.to_thread(lambda: "free") == "free"
        finally:
            over.set()
            await asyncio.gather(*busy)
