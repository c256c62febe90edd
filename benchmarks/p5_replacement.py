"""P5: an instance dies, the controller knows, a replacement process exists.

The instance is killed with SIGKILL. Measured is the time from the kill until the replacement's process
was started (the node's clock is ours) and until a client of the event stream has read that it runs:
once decided by the controller (no restarts by the node), once restarted by the node itself. The floor
is a bare loop that waits for a child's death and starts another.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import uvloop

from benchmarks.figures import percentile, result
from benchmarks.fleet import Fleet, fleet
from benchmarks.sizes import sized

ROUNDS = sized(60, 2)
COMMAND = ["/bin/sh", "-c", "while read line; do :; done"]
TARGET_P50 = {"by the controller": 32.0, "by the node": 22.0}
TARGET_P95 = 150.0


def running_as_another(old: int) -> Callable[[dict[str, Any]], bool]:
    """Whether an event says that an instance runs, with another pid than this."""
    return lambda event: event["type"] == "INSTANCE_RUNNING" and event["data"].get("pid") not in (None, old)


async def measure(cluster: Fleet, name: str, attempts: int) -> tuple[list[float], list[float]]:
    await cluster.group(name, COMMAND, min=1, restart={"attempts": attempts, "interval_seconds": 1})
    (current,) = await cluster.running(1, name)
    existed, known = [], []
    async with cluster.events() as events:
        for _ in range(ROUNDS):
            position, killed = len(events.seen), time.time()
            old = current["pid"]
            os.kill(old, signal.SIGKILL)
            moment, event = await events.first(running_as_another(old), after=position)
            known.append((moment - killed) * 1000)
            current = await cluster.api("GET", f"/api/v1/instances/{event['subject']}")
            started = dt.datetime.fromisoformat(current["started_at"]).timestamp()
            existed.append(max(0.0, started - killed) * 1000)
            if attempts:  # the node allows so many an interval; the next round is in another one
                await asyncio.sleep(1.1)
    return existed, known


def floor() -> list[float]:
    """Milliseconds from a kill to the next process, with nobody to tell."""
    samples = []
    child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE)
    for _ in range(ROUNDS):
        began = time.perf_counter()
        child.kill()
        child.wait()
        assert child.stdin is not None
        child.stdin.close()
        child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE)
        samples.append((time.perf_counter() - began) * 1000)
    child.kill()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()
    return samples


async def bench() -> list[dict[str, Any]]:
    results = []
    raw = floor()
    async with fleet() as cluster:
        for label, name, attempts in (("by the controller", "moved", 0), ("by the node", "here", 1)):
            existed, known = await measure(cluster, name, attempts)
            for share, target in ((0.5, TARGET_P50[label]), (0.95, TARGET_P95)):
                value = percentile(existed, share)
                results.append(
                    result(
                        f"P5 death to replacement process, {label}, p{share * 100:.0f}", value, "ms",
                        floor=percentile(raw, share), target=f"≤ {target:g} ms", ok=value <= target,
                    )
                )  # fmt: skip
            value = percentile(known, 0.95)
            results.append(
                result(f"P5 death to RUNNING at a client, {label}, p95", value, "ms", target="-", ok=True)
            )
    return results


def run() -> list[dict[str, Any]]:
    return uvloop.run(bench())
