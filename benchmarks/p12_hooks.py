"""P12: what five modules with `on_instance_starting` cost a start: each gets its copy, is asked, checked, merged.

The daemon says with each start how long its modules took. Starts come one after another first, so that nothing
but the modules is measured; then many at once, where the figure is starts a second, and the floor the same
without modules.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from typing import Any, Final

import uvloop

from benchmarks.figures import percentile, result
from benchmarks.fleet import DEADLINE, Fleet, event_of, fleet
from benchmarks.module_sources import starting_module
from benchmarks.site import open_site
from benchmarks.sizes import sized

MODULES: Final = sized(5, 2)
STARTS: Final = sized(60, 3)
BURST: Final = sized(60, 3)
TARGET_MS: Final = 5.0
_COMMAND: Final = ["/bin/sh", "-c", "while read line; do :; done"]
_FINISHED: Final = re.compile(r"start_hooks\.finished\b.*?took_ms\W+([0-9.]+)")


def run() -> list[dict[str, Any]]:
    return uvloop.run(_bench())


async def _bench() -> list[dict[str, Any]]:
    async with fleet() as cluster:
        await _burst(cluster, "warm-up")
        without = [await _burst(cluster, f"bare-{number}") for number in range(3)]
        await _install(cluster)
        took = await _one_by_one(cluster)
        burst = [await _burst(cluster, f"asked-{number}") for number in range(3)]
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    return [
        result(
            f"P12 on_instance_starting with {MODULES} modules, p50",
            p50,
            "ms",
            target=f"<= {TARGET_MS:g} ms",
            ok=p50 <= TARGET_MS,
        ),
        result(f"P12 on_instance_starting with {MODULES} modules, p99", p99, "ms", target="-", ok=True),
        result(
            f"P12 burst of {BURST} starts with {MODULES} modules",
            statistics.median(burst),
            "1/s",
            floor=statistics.median(without),
            target="-",
            ok=True,
        ),
    ]


async def _install(cluster: Fleet) -> None:
    with open_site(cluster.http, cluster.token) as site:
        for number in range(MODULES):
            id = f"module-{number}"
            site.request("POST", "/api/v1/modules", starting_module(id))
            async with asyncio.timeout(DEADLINE):
                while (
                    json.loads(site.request("GET", f"/api/v1/modules/{id}"))["nodes"][0]["phase"] != "ACTIVE"
                ):
                    await asyncio.sleep(0.01)


async def _one_by_one(cluster: Fleet) -> list[float]:
    """Milliseconds that the modules took of each start."""
    await cluster.group("single", _COMMAND)
    async with cluster.events() as events:
        for _ in range(STARTS):
            position = len(events.seen)
            made = await cluster.api("POST", "/api/v1/instances", {"group": "single"})
            await events.first(event_of("INSTANCE_RUNNING", made["id"]), after=position)
    took = [float(found) for found in _FINISHED.findall(cluster.daemon.stderr)]
    assert len(took) == STARTS, f"{len(took)} of {STARTS} starts logged their hooks"
    return took


async def _burst(cluster: Fleet, group: str) -> float:
    """Starts a second, from the scaling to the last that runs; they are stopped afterwards."""
    await cluster.group(group, _COMMAND, memory_mb=16)
    began = time.perf_counter()
    await cluster.api("POST", f"/api/v1/groups/{group}/scale", {"count": BURST})
    await cluster.running(BURST, group)
    rate = BURST / (time.perf_counter() - began)
    await cluster.api("DELETE", f"/api/v1/groups/{group}?cascade=true&confirm={group}")
    return rate


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
