"""A store that is put back to an earlier state: what was started since goes on, on real daemons."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from corral.testing.api_calls import create_group, instances_of, wait_for_instances
from corral.testing.fault_proxy import FaultProxy
from corral.testing.waiting import eventually
from corral.testing.workloads import silent


async def copied(controller, target) -> None:
    """Its data directory, while it is down."""
    await controller.app.stop()
    await asyncio.to_thread(shutil.copytree, controller.data, target)


async def pids(controller) -> dict[str, int]:
    return {item["id"]: item["pid"] for item in await instances_of(controller, "lobby")}


@pytest.mark.trap("T65")
async def test_what_began_after_the_copy_is_adopted_by_its_ticket_also_from_a_restarted_daemon(
    cluster, scratch
):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        daemon = await cluster.daemon("n1", controller)
        await create_group(controller, "lobby", silent(), min=1)
        await wait_for_instances(controller, "lobby", count=1)
        await copied(controller, scratch / "copy")
        controller = await cluster.controller(via=proxy)
        await eventually(lambda: controller.node_state("n1") == "ONLINE")
        await controller.call("POST", "/api/v1/instances", {"group": "lobby"})
        await wait_for_instances(controller, "lobby", count=2)
        before = await pids(controller)
        await controller.app.stop()
        daemon = await cluster.restart(daemon)
        shutil.rmtree(controller.data)
        shutil.copytree(scratch / "copy", controller.data)
        controller = await cluster.controller(via=proxy)
        await controller.call("POST", "/api/v1/cluster/raise-epoch")
        await eventually(lambda: controller.node_state("n1") == "ONLINE")
        await wait_for_instances(controller, "lobby", count=2)
        assert await pids(controller) == before
        adopted = await controller.call("GET", "/api/v1/events?types=INSTANCE_ADOPTED")
        assert [event["subject"] for event in adopted["items"]] == ["lobby-2"]
        node = await controller.call("GET", "/api/v1/nodes/n1")
        assert node["stray_count"] == 0
        for id in before:
            await controller.call("POST", f"/api/v1/instances/{id}/kill", {})


async def test_what_was_stopped_after_the_copy_is_told_as_it_ended(cluster, scratch):
    """Its node has told that before, and it was confirmed: it is asked."""
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        await cluster.daemon("n1", controller)
        await create_group(controller, "lobby", silent(), min=0, stop=[{"signal": "SIGTERM"}])
        for _ in range(2):
            await controller.call("POST", "/api/v1/instances?wait=running", {"group": "lobby"})
        await copied(controller, scratch / "copy")
        controller = await cluster.controller(via=proxy)
        await eventually(lambda: controller.node_state("n1") == "ONLINE")
        for id in ("lobby-1", "lobby-2"):
            await controller.call("POST", f"/api/v1/instances/{id}/stop?wait=stopped", {})
        await controller.call("POST", "/api/v1/instances/lobby-2/restart", {})
        await wait_for_instances(controller, "lobby", count=1)
        before = {item["id"]: item["exit"] for item in await instances_of(controller, "lobby")}
        assert before["lobby-1"]["known"]
        await controller.app.stop()
        shutil.rmtree(controller.data)
        shutil.copytree(scratch / "copy", controller.data)
        controller = await cluster.controller(via=proxy)
        await controller.call("POST", "/api/v1/cluster/raise-epoch")
        await eventually(lambda: controller.node_state("n1") == "ONLINE")

        async def ended():
            return await controller.call("GET", "/api/v1/instances/lobby-1")

        await eventually(lambda: is_stopped(ended))
        assert (await ended())["exit"] == before["lobby-1"]
        (told,) = (await controller.call("GET", "/api/v1/events?types=STORE_OLDER_THAN_NODE"))["items"]
        assert told["subject"] == "n1"
        assert told["data"]["stored"] < told["data"]["confirmed"]
        for path in ("/ready", "/api/v1/cluster"):
            assert "older than they know" in (await controller.call("GET", path))["notes"][0]
        await wait_for_instances(controller, "lobby", count=2)  # so many were wanted when the copy was made
        for id in ("lobby-2", "lobby-3"):
            await controller.call("POST", f"/api/v1/instances/{id}/kill", {})


async def is_stopped(look) -> bool:
    found = await look()
    assert found["state"] != "CRASHED", found["reason"]
    return found["state"] == "STOPPED"
