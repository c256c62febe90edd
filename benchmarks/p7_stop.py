"""P7: stop of a process that exits at once, until STOPPED is read by a client.

STOPPED is said only when nothing of the instance is left. The floor is a child that is told the same
by a pipe and waited for.
"""

from __future__ import annotations

import subprocess
import time
from typing import Any

import uvloop

from benchmarks.figures import percentile, result
from benchmarks.fleet import event_of, fleet
from benchmarks.sizes import sized

ROUNDS = sized(60, 2)
COMMAND = ["/bin/sh", "-c", "read line"]


def floor() -> list[float]:
    samples = []
    for _ in range(ROUNDS):
        child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE)
        time.sleep(0.01)
        began = time.perf_counter()
        child.communicate(b"stop\n")
        samples.append((time.perf_counter() - began) * 1000)
    return samples


async def bench() -> list[dict[str, Any]]:
    raw = floor()
    samples = []
    async with fleet() as cluster:
        await cluster.group("brief", COMMAND)
        for _ in range(ROUNDS):
            await cluster.api("POST", "/api/v1/instances", {"group": "brief"})
        running = await cluster.running(ROUNDS, "brief")
        async with cluster.events() as events:
            for instance in running:
                position, began = len(events.seen), time.time()
                await cluster.api("POST", f"/api/v1/instances/{instance['id']}/stop", {})
                moment, _ = await events.first(event_of("INSTANCE_STOPPED", instance["id"]), after=position)
                samples.append((moment - began) * 1000)
    p50, p95 = percentile(samples, 0.5), percentile(samples, 0.95)
    return [
        result("P7 stop to STOPPED, p50", p50, "ms", floor=percentile(raw, 0.5), target="-", ok=True),
        result(
            "P7 stop to STOPPED, p95",
            p95,
            "ms",
            floor=percentile(raw, 0.95),
            target="≤ 200 ms",
            ok=p95 <= 200,
        ),
    ]


def run() -> list[dict[str, Any]]:
    return uvloop.run(bench())
