"""The threads that plain functions of a module run in."""

from __future__ import annotations

import asyncio
import threading

from corral.sdk.runner.workers import MAX_WORKERS, RESERVED, Workers
from corral.testing.waiting import eventually


async def test_a_job_that_is_given_up_before_its_turn_never_happens():
    workers, gate, happened = Workers("test/worker"), threading.Event(), []
    busy = [asyncio.ensure_future(workers.run("busy", gate.wait)) for _ in range(MAX_WORKERS)]
    await eventually(lambda: len(workers.busy()) == MAX_WORKERS)
    late = asyncio.ensure_future(workers.run("late", happened.append, "late"))
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.wait([late])

    gate.set()
    await asyncio.gather(*busy)
    await asyncio.gather(*(workers.run("next", happened.append, "next") for _ in range(MAX_WORKERS)))

    await asyncio.to_thread(workers.close)
    assert happened == ["next"] * MAX_WORKERS


async def test_what_is_urgent_does_not_wait_behind_jobs_that_block():
    workers, gate = Workers("test/worker"), threading.Event()
    busy = [asyncio.ensure_future(workers.run("busy", gate.wait)) for _ in range(MAX_WORKERS + 4)]
    await eventually(lambda: len(workers.busy()) == MAX_WORKERS)
    try:
        async with asyncio.timeout(30):
            assert await workers.run_urgent("hook", lambda: "done") == "done"
        stuck = [asyncio.ensure_future(workers.run_urgent("hook", gate.wait)) for _ in range(RESERVED)]
        await eventually(lambda: len(workers.busy()) == MAX_WORKERS + RESERVED)
        assert len(workers.threads) == MAX_WORKERS + RESERVED
    finally:
        gate.set()
    await asyncio.gather(*busy, *stuck)
    await asyncio.to_thread(workers.close)
    assert not any(thread.is_alive() for thread in workers.threads)
