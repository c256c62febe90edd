"""P4: from a publish on the controller to a handler in a module of a node, over mutual TLS.

Controller and daemon are processes of their own. A paired module publishes from its part on the controller
with the time in the event; both of its parts listen, and note how long that took: the durable write is in
both figures, the link only in the node's. The floor is the part on the controller.
"""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any, Final

import uvloop

from benchmarks.figures import percentile, result
from benchmarks.site import open_site
from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory
from corral.testing.api_calls import call
from corral.testing.archives import zipped
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually

EVENTS: Final = sized(500, 10)
WARM_UP: Final = sized(50, 2)
TARGET_P50: Final = 3.0
TARGET_P99: Final = 20.0
_DEADLINE: Final = 60.0
_SOURCE: Final = """
import json
import pathlib
import time

from corral.sdk import DaemonModule, PlatformModule


class Ear:
    async def listen(self, ctx, name):
        self.path = pathlib.Path(ctx.config["directory"]) / name
        self.heard = []
        await ctx.events.subscribe("echo/TICK", self.hear)

    async def hear(self, event):
        self.heard.append((time.monotonic_ns() - event.data["at"]) / 1e6)
        if event.data["last"]:
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(self.heard))
            part.rename(self.path)


class Mouth(Ear, PlatformModule):
    async def on_start(self, ctx):
        self.ctx = ctx
        await self.listen(ctx, "controller.json")

    def register_routes(self, routes):
        routes.post("/tick", self.tick)

    async def tick(self, request):
        last = request.query.get("last") == "1"
        await self.ctx.events.publish("TICK", data={"at": time.monotonic_ns(), "last": last})


class NodeEar(Ear, DaemonModule):
    async def on_start(self, ctx):
        await self.listen(ctx, "node.json")
"""
_MANIFEST: Final = {
    "manifestVersion": 1,
    "id": "echo",
    "version": "1.0.0",
    "api": ">=1.0",
    "hosts": ["controller", "daemon"],
    "backend": {
        "controller": {"entrypoint": "echo_module:Mouth"},
        "daemon": {"entrypoint": "echo_module:NodeEar"},
    },
    "events": {"publishes": ["TICK"], "subscribes": ["echo/TICK"]},
    "config": {"type": "object", "properties": {"directory": {"type": "string", "default": ""}}},
}


def run() -> list[dict[str, Any]]:
    here, there = uvloop.run(_measured(fresh_directory()))
    floor = percentile(here, 0.5)
    p50, p99 = percentile(there, 0.5), percentile(there, 0.99)
    return [
        result(
            "P4 publish -> handler on a node, p50",
            p50,
            "ms",
            floor=floor,
            target=f"<= {TARGET_P50:g} ms",
            ok=p50 <= TARGET_P50,
        ),
        result(
            "P4 publish -> handler on a node, p99",
            p99,
            "ms",
            floor=percentile(here, 0.99),
            target=f"<= {TARGET_P99:g} ms",
            ok=p99 <= TARGET_P99,
        ),
    ]


async def _measured(directory: pathlib.Path) -> tuple[list[float], list[float]]:
    """What the controller's part noted, and what the node's did."""
    web, grpc, bootstrap = free_addresses(3)
    async with ProcessCluster(directory) as processes:
        controller = processes.start(
            *("controller", "--data", str(directory / "c")),
            *("--http", web, "--grpc", grpc, "--bootstrap", bootstrap),
        )
        await controller.ready()
        token = (directory / "c" / "admin.token").read_text().strip()
        join = await call(f"http://{web}", token, "POST", "/api/v1/nodes/join-tokens", {"node_id": "n1"})
        daemon = processes.start(
            *("daemon", "--data", str(directory / "d"), "--controller", grpc, "--node-id", "n1"),
            *("--join", join["token"]),
        )
        await daemon.ready()
        with open_site(web, token) as site:
            site.request("POST", "/api/v1/modules", _archive(directory))

            def listening() -> bool:
                nodes = json.loads(site.request("GET", "/api/v1/modules/echo"))["nodes"]
                return [node["phase"] for node in nodes] == ["ACTIVE"]

            await eventually(listening, deadline=_DEADLINE)
            for number in range(WARM_UP + EVENTS):
                last = number == WARM_UP + EVENTS - 1
                site.request("POST", f"/api/v1/modules/echo/tick?last={int(last)}")
                time.sleep(0.002)  # one by one: what is measured is a way, not a queue
        found = [directory / "controller.json", directory / "node.json"]
        await eventually(lambda: all(path.exists() for path in found), deadline=_DEADLINE)
        here, there = (json.loads(path.read_text())[WARM_UP:] for path in found)
        return here, there


def _archive(directory: pathlib.Path) -> bytes:
    properties = {"directory": {"type": "string", "default": str(directory)}}
    manifest = {**_MANIFEST, "config": {"type": "object", "properties": properties}}
    return zipped({"module.yaml": json.dumps(manifest).encode(), "echo_module.py": _SOURCE.encode()})


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
