"""P19: memory of each kind of process while nothing happens: a controller, and a node with three instances and a
module.

RSS counts what is shared in full, PSS in parts; private is what one more of the kind costs. Shims and modules are
forked, so theirs is given in private, and PSS would fall with every further one.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import statistics
from typing import Any, Final

import uvloop

from benchmarks.figures import result
from benchmarks.fleet import DEADLINE, Fleet, fleet
from benchmarks.module_sources import starting_module
from benchmarks.site import open_site
from benchmarks.sizes import sized

INSTANCES = 3
MOST_SHIM_MB = 1.2
MOST_DAEMON_MB = 75.0
SECONDS = sized(3.0, 0.5)
"""What starts left to do is done by then."""
COMMAND: Final = ["/bin/sleep", "1000000"]
_MODULE: Final = "bench"

Megabytes = dict[str, float]


def memory(pid: int) -> Megabytes:
    """`Rss`, `Pss` and `Private` of a process, in MB."""
    kilobytes: dict[str, int] = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, *_ = line.split()
        kilobytes[name.rstrip(":")] = int(value)
    private = kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]
    return {"Rss": kilobytes["Rss"] / 1024, "Pss": kilobytes["Pss"] / 1024, "Private": private / 1024}


def parents() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = int(fields[1])
    return found


def children(pid: int) -> list[int]:
    return [child for child, parent in parents().items() if parent == pid]


async def _module(cluster: Fleet) -> tuple[int, int]:
    """The process of a module on the node, and the one that all of them are forked from."""
    with open_site(cluster.http, cluster.token) as site:
        site.request("POST", "/api/v1/modules", starting_module(_MODULE))
        async with asyncio.timeout(DEADLINE):
            while (
                json.loads(site.request("GET", f"/api/v1/modules/{_MODULE}"))["nodes"][0]["phase"] != "ACTIVE"
            ):
                await asyncio.sleep(0.05)
    zygote = next(pid for pid in children(cluster.daemon.pid) if _is_zygote(pid))
    return children(zygote)[0], zygote


def _is_zygote(pid: int) -> bool:
    return "zygote" in pathlib.Path(f"/proc/{pid}/comm").read_text()


async def _bench() -> list[dict[str, Any]]:
    async with fleet() as cluster:
        await cluster.group("idle", COMMAND, min=INSTANCES)
        running = await cluster.running(INSTANCES, "idle")
        await asyncio.sleep(SECONDS)
        above = parents()
        shims = [above[each["pid"]] for each in running]
        (keeper,) = {above[shim] for shim in shims}
        controller, daemon = memory(cluster.controller.pid), memory(cluster.daemon.pid)
        kept = memory(keeper)
        shim = statistics.median(memory(pid)["Private"] for pid in shims)
        module, zygote = await _module(cluster)
        await asyncio.sleep(SECONDS)
        modules, forked_from = memory(module), memory(zygote)
    return [
        _reported("idle controller, RSS", controller["Rss"]),
        _reported("idle controller, PSS", controller["Pss"]),
        _claimed("idle daemon, RSS", daemon["Rss"], MOST_DAEMON_MB),
        _reported("idle daemon, PSS", daemon["Pss"]),
        _reported("keeper, PSS", kept["Pss"]),
        _claimed("shim of an instance, private", shim, MOST_SHIM_MB),
        _reported("zygote of modules, PSS", forked_from["Pss"]),
        _reported("process of a module, private", modules["Private"]),
    ]


def _reported(name: str, value: float) -> dict[str, Any]:
    return result(f"P19 {name}", value, "MB", target="none, for information", ok=None)


def _claimed(name: str, value: float, most: float) -> dict[str, Any]:
    return result(f"P19 {name}", value, "MB", target=f"≤ {most:g} MB", ok=value <= most)


def run() -> list[dict[str, Any]]:
    return uvloop.run(_bench())
