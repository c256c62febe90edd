"""P15: a daemon killed with 200 live instances that write; restarted; all adopted.

Measured from the start of the new daemon process until the node says it minds 200 instances. No pid may
have changed and no line may be missing afterwards. The floor is the same daemon starting with none.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import uvloop

from benchmarks.figures import result
from benchmarks.fleet import DEADLINE, Fleet, fleet
from benchmarks.sizes import sized

COUNT = sized(200, 3)
COMMAND = ["/bin/sh", "-c", "i=0; while :; do echo line $i; i=$((i+1)); sleep 2; done"]


async def restart(cluster: Fleet, expected: int) -> float:
    await cluster.daemon.kill()
    began = time.monotonic()
    await cluster.start_daemon()
    async with asyncio.timeout(DEADLINE):
        while True:
            node = await cluster.api("GET", "/api/v1/nodes/bench")
            if node["state"] == "ONLINE" and node["session"] and len(node["used_ports"]) >= 0:
                live = await cluster.instances(group="many", state="RUNNING") if expected else []
                if len(live) >= expected:
                    return time.monotonic() - began
            await asyncio.sleep(0.01)


async def missing_lines(cluster: Fleet, id: str) -> int:
    """Lines that are not there, once or in order."""
    numbers: list[int] = []
    after = 0
    while True:
        page = await cluster.api("GET", f"/api/v1/instances/{id}/console?after={after}&limit=500")
        numbers += [int(item["line"].split()[1]) for item in page["items"]]
        if page["next_offset"] == after:
            break
        after = page["next_offset"]
    return sum(1 for index, number in enumerate(numbers) if index != number)


async def bench() -> list[dict[str, Any]]:
    async with fleet() as cluster:
        empty = await restart(cluster, 0)
        await cluster.group("many", COMMAND, min=COUNT)
        before = {item["id"]: item["pid"] for item in await cluster.running(COUNT, "many")}
        taken = await restart(cluster, COUNT)
        after = {item["id"]: item["pid"] for item in await cluster.running(COUNT, "many")}
        wrong = [await missing_lines(cluster, id) for id in sorted(after)[:20]]
    deaths = sum(1 for id, pid in before.items() if after.get(id) != pid)
    return [
        result("P15 restart to all adopted", taken, "s", floor=empty, target="≤ 2 s", ok=taken <= 2),
        result("P15 deaths", deaths, "instances", target="0", ok=deaths == 0),
        result("P15 lines out of place in 20 consoles", sum(wrong), "lines", target="0", ok=not any(wrong)),
    ]


def run() -> list[dict[str, Any]]:
    return uvloop.run(bench())
