"""P23: a list of 5,000 instances for a page, next to making and encoding the same 5,000 items once.

CPU of the controller, not time. The records are placed in a store, and a controller process on it answers. The floor is
the least that a list without kept summaries would cost: 5,000 items made of records that are in memory, and encoded by
msgspec, in this process. It has neither HTTP nor checks of the caller, and sends nothing.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import statistics
import time
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import structlog
import uvloop

from benchmarks.figures import result
from benchmarks.p18_growth import Answering, answering
from benchmarks.placed_records import opened
from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory
from corral.controller.http.messages.responses import encode
from corral.controller.http.resources.instances.instance_summaries import instance_summary
from corral.controller.http.resources.summary_view import SummaryView
from corral.controller.workload.vitals import Vitals

INSTANCES: Final = sized(5000, 200)
REQUESTS: Final = sized(10, 1)
ROUNDS: Final = sized(5, 1)
PATH: Final = f"/api/v1/instances?view=summary&limit={INSTANCES}"
SEARCHED: Final = f"{PATH}&q=g7&sort=-started_at"


def _get(controller: Answering, path: str, coding: str) -> bytes:
    host, _, port = controller.host.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    headers = {"Authorization": f"Bearer {controller.token}", "Accept-Encoding": coding}
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        assert (answer.getheader("Content-Encoding") or "identity") == coding
        return answer.read()
    finally:
        connection.close()


async def _cost(controller: Answering, path: str, coding: str = "identity") -> float:
    """CPU of one request, in ms."""
    before = controller.processor()
    for _ in range(REQUESTS):
        await asyncio.to_thread(_get, controller, path, coding)
    return (controller.processor() - before) * 1000 / REQUESTS


async def _floor() -> float:
    """CPU in ms to make and encode the summaries of all instances."""
    async with opened(fresh_directory()) as controller:
        await controller.place(INSTANCES)
        state, found = controller.state, []
        silent: Any = SimpleNamespace(vitals=Vitals(state, monotonic=time.monotonic))
        nothing: Any = None
        view = SummaryView(state=state, nodes=nothing, workload=silent, instances=nothing)
        for _ in range(ROUNDS):
            began = time.process_time()
            items = [
                instance_summary(view, stored)
                for stored in map(state.instances.require, state.instances.ids())
            ]
            encode({"items": items})
            found.append((time.process_time() - began) * 1000)
    return statistics.median(found)


async def _bench() -> list[dict[str, Any]]:
    floor = await _floor()
    async with answering(INSTANCES) as controller:
        plain = await asyncio.to_thread(_get, controller, PATH, "identity")
        zipped = await asyncio.to_thread(_get, controller, PATH, "gzip")
        assert msgspec.json.decode(plain)["total"] == INSTANCES
        rounds = [
            (
                await _cost(controller, PATH),
                await _cost(controller, PATH, "gzip"),
                await _cost(controller, SEARCHED),
            )
            for _ in range(ROUNDS)
        ]
    kept, compressed, searched = (statistics.median(each) for each in zip(*rounds, strict=True))
    return [
        _result("5,000 summaries", kept, "ms CPU", floor, 0.5),
        _result("5,000 summaries as gzip", compressed, "ms CPU", floor, 0.8),
        _result("a search in 5,000, in another order", searched, "ms CPU", floor, 0.5),
        _result("bytes as gzip", len(zipped) / 1024, "KiB", len(plain) / 1024, 0.1),
    ]


def _result(name: str, value: float, unit: str, floor: float, most: float) -> dict[str, Any]:
    return result(f"P23 {name}", value, unit, floor=floor, target=f"≤ {most} x", ok=value <= most * floor)


def run() -> list[dict[str, Any]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    return uvloop.run(_bench())


if __name__ == "__main__":
    print(json.dumps(run(), indent=2, ensure_ascii=False))
