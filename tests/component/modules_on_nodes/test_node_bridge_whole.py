"""Both ends of the bridge: a module with a part on the controller and one on a node."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Any

from node_archives import install, node_archive, wait_at_nodes

from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.waiting import eventually

SOURCE = """
from typing import Protocol
from corral.sdk import *

class Counting(Protocol):
    async def next(self, *, by: int) -> int: ...

class Counter:
    total = 0
    async def next(self, *, by: int) -> int:
        self.total += by
        return self.total

class Central(PlatformModule):
    def capability_handles(self):
        return [CapabilityBinding("acme.counting", Counting, Counter)]

    async def on_start(self, ctx):
        self.ctx, self.heard = ctx, []
        await ctx.events.subscribe("paired/COUNTED", self.hear)

    async def hear(self, event):
        self.heard.append((event.subject, event.data["total"], event.node))

    def register_routes(self, routes):
        routes.get("/heard", self.tell)
        routes.post("/ask", self.ask)

    async def tell(self, request):
        return self.heard

    async def ask(self, request):
        await self.ctx.events.publish("ASKED", {"by": 2}, subject=request.query["name"])

class Module(DaemonModule):
    async def on_start(self, ctx):
        self.ctx = ctx
        self.counting = ctx.capabilities.require("acme.counting", Counting)
        await ctx.events.subscribe("paired/ASKED", self.asked)

    async def asked(self, event):
        total = await self.counting.call.next(by=event.data["by"])
        await self.ctx.events.publish("COUNTED", {"total": total}, subject=event.subject)
"""


async def test_events_and_calls_go_round_and_survive_a_lost_connection(
    cluster: LocalCluster, scratch: Any
) -> None:
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    archive = node_archive(
        scratch / "archives",
        "paired",
        source=SOURCE,
        hosts=["controller", "daemon"],
        backend={
            "controller": {"entrypoint": "paired_module:Central"},
            "daemon": {"entrypoint": "paired_module:Module"},
        },
        events={"publishes": ["ASKED", "COUNTED"], "subscribes": ["paired/ASKED", "paired/COUNTED"]},
        capabilities={
            "provides": [{"id": "acme.counting", "version": "1.0.0"}],
            "requires": [{"id": "acme.counting", "versionRange": ">=1.0", "from": "controller"}],
        },
    )
    await install(controller, archive)
    await wait_at_nodes(controller, "paired", n1=("ACTIVE", "1.0.0"))

    async def heard() -> list[Any]:
        return await controller.call("GET", "/api/v1/modules/paired/heard")

    async def ask(name: str) -> None:
        await controller.call("POST", f"/api/v1/modules/paired/ask?name={name}")

    await ask("one")

    async def hears(*wanted: list[Any]) -> None:
        async def there() -> bool:
            return await heard() == list(wanted)

        await eventually(there)

    await hears(["one", 2, "n1"])
    session = daemon.app.link.session_id
    await daemon.app.link._current.connection.close()
    await ask("two")  # in between, or not
    await eventually(lambda: daemon.app.link.session_id not in ("", session))
    await ask("three")
    await hears(["one", 2, "n1"], ["two", 4, "n1"], ["three", 6, "n1"])

    async def shown() -> bool:
        lines = (await asyncio.to_thread(exposed, controller)).splitlines()
        return any(line.startswith("corral_module_calls_total") and 'node="n1"' in line for line in lines)

    await eventually(shown)


def exposed(controller: LocalController) -> str:
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    asked = urllib.request.Request(f"{controller.url}/metrics", headers=headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return str(answer.read().decode())
