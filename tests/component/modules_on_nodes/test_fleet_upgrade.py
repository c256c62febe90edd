"""A new version on twenty nodes, one of which cannot take it."""

from __future__ import annotations

import asyncio

import pytest
from node_archives import install, node_archive, wait_at_nodes

from corral.testing.waiting import eventually

NODES = [f"n{number}" for number in range(20)]
BAD = "n7"
SOURCE = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_upgrade(self, ctx):
        if ctx.node_id == "n7":
            raise RuntimeError(f"no room on {ctx.node_id}")
"""


@pytest.mark.system
async def test_one_node_that_fails_an_upgrade_keeps_the_old_version_and_the_others_have_the_new(
    cluster, scratch
):
    controller = await cluster.controller()
    await asyncio.gather(*(cluster.daemon(node, controller) for node in NODES))
    first = await install(controller, node_archive(scratch / "a", "guard", "1.0.0", source=SOURCE))
    assert first["phase"] == "ACTIVE"
    assert first["live"] is None
    await wait_at_nodes(controller, "guard", deadline=60, **dict.fromkeys(NODES, ("ACTIVE", "1.0.0")))

    await install(controller, node_archive(scratch / "b", "guard", "2.0.0", source=SOURCE))
    wanted = dict.fromkeys(NODES, ("ACTIVE", "2.0.0")) | {BAD: ("ACTIVE", "1.0.0")}
    seen = await wait_at_nodes(controller, "guard", deadline=60, **wanted)
    refused = {}

    async def told() -> bool:
        refused.update(seen[BAD])
        refused.update((await controller.call("GET", f"/api/v1/nodes/{BAD}/modules"))["items"][0])
        return refused["refused"]

    await eventually(told, state=lambda: refused)
    assert "no room on n7" in refused["error"]
    assert not refused["current"]
    assert all(seen[node]["current"] and not seen[node]["error"] for node in NODES if node != BAD)

    fixed = SOURCE.replace('"n7"', '"nowhere"')
    await install(controller, node_archive(scratch / "c", "guard", "2.0.1", source=fixed))
    seen = await wait_at_nodes(controller, "guard", deadline=60, **dict.fromkeys(NODES, ("ACTIVE", "2.0.1")))
    assert not any(each["error"] or each["refused"] for each in seen.values())
