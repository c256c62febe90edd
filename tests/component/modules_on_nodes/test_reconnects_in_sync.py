"""A node that has what it shall have: its next session brings no frame about modules, and holds nothing up."""

from __future__ import annotations

import pytest
import structlog
from module_peer import ORDERS, peer
from node_archives import at_nodes, install, node_archive, wait_at_nodes
from node_host_rig import NodeRig, packed

from corral.domain.ids import NodeId
from corral.errors import Code, Retryable
from corral.testing.waiting import eventually
from corral.wire.v1 import module_pb2 as pb

BROKEN = """
    from corral.sdk import DaemonModule

    class Module(DaemonModule):
        async def on_start(self, ctx):
            raise RuntimeError("not today")
"""


@pytest.mark.trap("T1")
async def test_a_node_in_sync_gets_no_frame_about_modules_when_it_is_back(cluster, scratch):
    controller = await cluster.controller(link__heartbeat_seconds=30)
    node = await cluster.daemon("n1", controller, link__reconnect_max_seconds=0.05)

    async def act(id, verb, body=None):
        await controller.call("POST", f"/api/v1/modules/{id}/{verb}", body)

    async def refuses(id):
        async def refused():
            return (await at_nodes(controller, id))["n1"]["refused"]

        await eventually(refused)

    for id in ("runs", "rests", "held", "back", "back-rests"):
        await install(controller, node_archive(scratch / "a", id))
        await wait_at_nodes(controller, id, n1=("ACTIVE", "1.0.0"))
    for id in ("back", "back-rests"):
        await install(controller, node_archive(scratch / "b", id, "2.0.0", source=BROKEN))
        await refuses(id)
    await act("held", "pause", {"reason": "maintenance"})
    for id in ("rests", "back-rests"):
        await act(id, "deactivate")
    for id, version in (("held", "1.0.0"), ("rests", "1.0.0"), ("back-rests", "1.0.0")):
        await wait_at_nodes(controller, id, n1=("INSTALLED", version))
    await node.app.modules.settled()

    before = controller.app.role.term.sessions.find(NodeId("n1"))
    with structlog.testing.capture_logs() as logged:
        before.close(Retryable(Code.TIMEOUT, "the test says so"))
        await eventually(lambda: controller.app.role.term.sessions.find(NodeId("n1")) not in (None, before))
        assert node.app.modules.awaited() == ()
        await install(controller, node_archive(scratch / "a", "zoo"))  # what was due before it has been sent
        await wait_at_nodes(controller, "zoo", n1=("ACTIVE", "1.0.0"))
    kinds = [entry["kind"] for entry in logged if entry["event"] == "frame.received"]
    assert [kind for kind in kinds if kind in ORDERS] == ["module_install"]


async def test_a_pause_and_its_reason_that_changed_while_a_node_was_away_are_sent(cluster, scratch):
    controller = await cluster.controller(link__heartbeat_seconds=30)
    archive = node_archive(scratch)
    await install(controller, archive)
    await controller.call("POST", "/api/v1/modules/small/pause", {"reason": "later"})
    async with peer(controller, scratch) as node:
        (desired,) = node.ack.modules
        assert desired.paused_reason == "later"
        await node.order()
    desired.paused_reason = "now"
    async with peer(controller, scratch, desired) as node:
        sent = await node.order()
        assert (sent.intent, sent.reason) == (pb.MODULE_INTENT_PAUSED, "later")


async def test_a_refused_version_that_was_deactivated_meanwhile_holds_starts_until_its_order_has_come(
    scratch,
):
    async with NodeRig(scratch, modules__node_sync_timeout_seconds=60) as rig:
        await rig.start()
        old, new = packed(scratch), packed(scratch, version="2.0.0", source=BROKEN)
        await rig.install(old)
        rig.script.set["small"] = new.entry()
        await rig.script.say(module_install=new.install())
        await eventually(lambda: rig.script.last("small").refused_sha256 == new.sha256)
        assert await rig.app.modules.settled() == ()
        rig.script.set["small"] = new.entry(intent=pb.MODULE_INTENT_INACTIVE)
        await rig.script.meet_again()
        await eventually(
            lambda: rig.app.modules.awaited() == ("small: not as the controller wants it yet",),
            state=rig.app.modules.awaited,
        )
        control = pb.ModuleControl(module_id="small", intent=pb.MODULE_INTENT_INACTIVE)
        await rig.script.say(module_control=control)
        await rig.script.told("small", "STOPPING", "INSTALLED")
        assert await rig.app.modules.settled() == ()
