"""The threads that plain functions of a module run in."""

from __future__ import annotations

import asyncio
import threading

from corral.sdk.runner.workers import MAX_WORKERS, Workers
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
