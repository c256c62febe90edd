"""P12: a module from its upload until it is ACTIVE on fifty nodes.

The controller and each of the fifty daemons are processes of their own, as on fifty hosts, but all of them share
this machine's cores. The floor is as many bare module processes, started from one zygote, constructed, and asked
a question. Reports of the nodes are durable at both ends before they count.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import statistics
import time
from typing import Any, Final

import structlog
import uvloop

from benchmarks.figures import result
from benchmarks.module_sources import starting_module
from benchmarks.site import Site, open_site
from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory
from corral.modules.process import ProcessPool
from corral.testing.api_calls import call
from corral.testing.module_processes import Workbench, run_hook
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster

NODES: Final = sized(50, 2)
ROUNDS: Final = sized(5, 1)
TARGET_SECONDS: Final = 1.0
_DEADLINE: Final = 120.0


def run() -> list[dict[str, Any]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    place = fresh_directory()
    took, floor = uvloop.run(_on_fifty_nodes(place / "fleet")), uvloop.run(_bare(place / "bare"))
    seconds = statistics.median(took)
    return [
        result(
            f"P12 install to ACTIVE on {NODES} nodes, p50",
            seconds,
            "s",
            floor=floor,
            target=f"<= {TARGET_SECONDS:g} s",
            ok=seconds <= TARGET_SECONDS,
        ),
    ]


async def _on_fifty_nodes(directory: pathlib.Path) -> list[float]:
    web, grpc, bootstrap = free_addresses(3)
    directory.mkdir()
    async with ProcessCluster(directory) as processes:
        controller = processes.start(
            *("controller", "--data", str(directory / "c")),
            *("--http", web, "--grpc", grpc, "--bootstrap", bootstrap),
            environment={"CORRAL_BOOTSTRAP_RATE_PER_MINUTE": "10000"},
        )
        await controller.ready()
        token = (directory / "c" / "admin.token").read_text().strip()
        for number in range(NODES):
            id = f"n{number}"
            join = await call(f"http://{web}", token, "POST", "/api/v1/nodes/join-tokens", {"node_id": id})
            daemon = processes.start(
                *("daemon", "--data", str(directory / id), "--controller", grpc, "--node-id", id),
                *("--join", join["token"]),
            )
            await daemon.ready()
        with open_site(web, token) as site:
            await _on_all(site, "warm-up")  # every node has its zygote from now on
            return [await _on_all(site, f"fresh-{number}") for number in range(ROUNDS)]


async def _bare(directory: pathlib.Path) -> float:
    async with ProcessPool(directory=directory / "house") as house:
        bench = Workbench(house, directory / "module")
        await (await bench.start()).kill()

        async def one(number: int) -> None:
            await run_hook(await bench.start(module_id=f"m{number}"), "on_stop", deadline=_DEADLINE)

        began = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(NODES)))
        return time.perf_counter() - began


async def _on_all(site: Site, id: str) -> float:
    """Seconds from the first byte of the upload until the API shows it ACTIVE on every node."""
    began = time.perf_counter()
    site.request("POST", "/api/v1/modules", starting_module(id))
    while True:
        shown = json.loads(site.request("GET", f"/api/v1/modules/{id}"))
        active = [node for node in shown["nodes"] if node["phase"] == "ACTIVE"]
        if len(active) == NODES:
            return time.perf_counter() - began
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
