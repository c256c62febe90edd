"""P12: a module from its upload until it is ACTIVE on fifty nodes, and what modules cost a start.

The controller is a process of its own, the fifty daemons share another: each has its own identity, link, cache
and module processes, as on fifty hosts, but only this machine's cores. The floor of the first figure is as many
bare module processes, started from one zygote, constructed, and asked a question. Reports of the nodes are
durable at both ends before they count.

The second figure is what `on_instance_starting` adds to a start with five modules: each gets its copy, is
asked, checked and merged.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import statistics
import tempfile
import time
from typing import Any, Final

import structlog
import uvloop
from structlog.testing import capture_logs

from benchmarks.figures import percentile, result
from benchmarks.site import Site, open_site
from corral.modules.process import ProcessHouse
from corral.testing.api_call import call
from corral.testing.archives import zipped
from corral.testing.cluster import LocalCluster
from corral.testing.groups import ApiCaller, create_group, wait_for_instances
from corral.testing.module_workbench import Workbench, run_hook
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually
from corral.testing.workloads import reading_commands

NODES: Final = 50
ROUNDS: Final = 5
STARTS: Final = 40
TARGET_SECONDS: Final = 1.0
TARGET_HOOKS_MS: Final = 5.0
_DEADLINE: Final = 120.0
_SOURCE: Final = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_instance_starting(self, spec):
        spec.env["FROM_%s"] = spec.group
"""


def run() -> list[dict[str, Any]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="corral-") as directory:
        place = pathlib.Path(directory)
        took, floor = uvloop.run(_on_fifty_nodes(place / "fleet")), uvloop.run(_bare(place / "bare"))
        hooks = uvloop.run(_hooks(place / "hooks"))
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
        result(
            "P12 on_instance_starting with 5 modules, p50",
            percentile(hooks, 0.5),
            "ms",
            target=f"<= {TARGET_HOOKS_MS:g} ms",
            ok=percentile(hooks, 0.5) <= TARGET_HOOKS_MS,
        ),
    ]


async def _on_fifty_nodes(directory: pathlib.Path) -> list[float]:
    web, grpc, bootstrap = free_addresses(3)
    directory.mkdir()
    async with ProcessCluster(directory) as processes, LocalCluster(directory) as nodes:
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
            await nodes.daemon(id, None, join=join["token"], controllers=[grpc])
        with open_site(web, token) as site:
            await _on_all(site, "warm-up")  # every node has its zygote from now on
            return [await _on_all(site, f"fresh-{number}") for number in range(ROUNDS)]


async def _bare(directory: pathlib.Path) -> float:
    async with ProcessHouse(directory=directory / "house") as house:
        bench = Workbench(house, directory / "module")
        await (await bench.start()).kill()

        async def one(number: int) -> None:
            await run_hook(await bench.start(module_id=f"m{number}"), "on_stop", deadline=_DEADLINE)

        began = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(NODES)))
        return time.perf_counter() - began


async def _hooks(directory: pathlib.Path) -> list[float]:
    """Milliseconds that the modules took of each start."""
    directory.mkdir()
    async with LocalCluster(directory) as cluster:
        controller = await cluster.controller()
        daemon = await cluster.daemon("n1", controller)
        api = ApiCaller(controller.url, controller.admin_token)
        with open_site(controller.url.removeprefix("http://"), controller.admin_token) as site:
            for number in range(5):
                await asyncio.to_thread(site.request, "POST", "/api/v1/modules", _archive(f"module-{number}"))
        await eventually(
            lambda: len(daemon.app.modules.engine.serving()) == 5,
            deadline=_DEADLINE,
        )
        structlog.reset_defaults()
        with capture_logs() as said:
            await create_group(api, "lobby", reading_commands(), min=STARTS)
            await wait_for_instances(api, "lobby", STARTS, deadline=_DEADLINE)
        return [entry["took_ms"] for entry in said if entry["event"] == "hooks.asked"]


async def _on_all(site: Site, id: str) -> float:
    """Seconds from the first byte of the upload until the API shows it ACTIVE on every node. The loop of the
    daemons is this process's: whoever asks must not hold it up."""
    began = time.perf_counter()
    await asyncio.to_thread(site.request, "POST", "/api/v1/modules", _archive(id))
    while True:
        shown = json.loads(await asyncio.to_thread(site.request, "GET", f"/api/v1/modules/{id}"))
        active = [node for node in shown["nodes"] if node["phase"] == "ACTIVE"]
        if len(active) == NODES:
            return time.perf_counter() - began
        await asyncio.sleep(0.01)


def _archive(id: str) -> bytes:
    manifest = {
        "manifestVersion": 1,
        "id": id,
        "version": "1.0.0",
        "api": ">=1.0",
        "hosts": ["daemon"],
        "backend": {"daemon": {"entrypoint": "bench_module:Module"}},
    }
    word = id.replace("-", "_").upper()
    return zipped(
        {"module.yaml": json.dumps(manifest).encode(), "bench_module.py": (_SOURCE % word).encode()}
    )


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
