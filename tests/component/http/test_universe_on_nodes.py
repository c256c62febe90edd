"""Universe's routes in front of a real daemon: an instance that runs, reports, talks and is replaced."""

from __future__ import annotations

import sys
from typing import Any

from http_rig import DEADLINE
from websockets.asyncio.client import connect

from corral.domain.node_states import NodeState
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.testing.waiting import eventually

SERVER = """
import sys
print("begins", flush=True)
for line in sys.stdin:
    print("got", line.strip(), flush=True)
    if line.strip() == "stop":
        break
"""


async def ready(controller: LocalController, id: str, wanted: bool) -> dict[str, Any]:
    async def as_wanted() -> dict[str, Any] | None:
        found: dict[str, Any] = await controller.call("GET", f"/api/v1/instances/{id}")
        return found if found["ready"] == wanted else None

    return await eventually(as_wanted, deadline=DEADLINE)


async def report(controller: LocalController, id: str, state: str) -> None:
    answer = await controller.call("PUT", f"/api/instances/{id}/state", {"state": state})
    assert (answer["id"], answer["state"]) == (id, "ONLINE")


async def started(cluster: LocalCluster) -> tuple[LocalController, LocalDaemon, str]:
    controller = await cluster.controller()
    daemon = await cluster.daemon("node-1", controller)
    document = {"name": "lobby", "command": [sys.executable, "-c", SERVER], "min_alive_ms": 0}
    await controller.call("POST", "/api/v1/groups", document)
    made = await controller.call("POST", "/api/instances", {"configurationName": "lobby"})
    return controller, daemon, made["id"]


async def test_an_instance_that_reports_that_it_is_not_ready_is_not_until_it_says_so(
    cluster: LocalCluster,
) -> None:
    controller, daemon, id = await started(cluster)
    before = await ready(controller, id, True)
    await report(controller, id, "OFFLINE")
    found = await ready(controller, id, False)
    assert (found["reason"], found["state"], found["wanted"]) == (
        "the workload reports that it is not ready",
        "RUNNING",
        "run",
    )
    await cluster.restart(daemon)
    await controller.wait_for_node("node-1", NodeState.ONLINE)
    await controller.call("POST", f"/api/instances/{id}/execute", {"command": "back"})

    async def answered() -> bool:
        logs = await controller.call("GET", f"/api/instances/{id}/logs")
        return "got back" in logs["lines"]

    await eventually(answered, deadline=DEADLINE)
    found = await controller.call("GET", f"/api/v1/instances/{id}")
    assert (found["ready"], found["pid"]) == (False, before["pid"])
    await report(controller, id, "ONLINE")
    assert (await ready(controller, id, True))["pid"] == before["pid"]


async def test_its_log_is_followed_while_it_gets_lines(cluster: LocalCluster) -> None:
    controller, _, id = await started(cluster)
    await ready(controller, id, True)
    url = f"{controller.url.replace('http', 'ws', 1)}/api/instances/{id}/live-log"
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    async with connect(url, additional_headers=headers) as socket:
        await controller.call("POST", f"/api/instances/{id}/execute", {"command": "a"})
        seen = [await socket.recv()]
        while seen[-1] != "got a":
            seen.append(await socket.recv())
        assert seen in (["got a"], ["begins", "got a"])
        await controller.call("DELETE", f"/api/instances/{id}")
        assert await socket.recv() == "got stop"

    async def stopped() -> bool:
        found = await controller.call("GET", f"/api/instances/{id}")
        return bool(found["state"] == "STOPPED")

    await eventually(stopped, deadline=DEADLINE)
    logs = await controller.call("GET", f"/api/instances/{id}/logs")
    assert logs["lines"] == ["begins", "got a", "got stop"]
