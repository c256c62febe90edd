"""Sessions of one node that overlap, what a session begins with, and nodes as the lists show them."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from module_peer import digest, peer
from node_archives import install, node_archive

from corral.controller.sessions.daemon_service import DaemonService
from corral.controller.term.controller_role import LinkDirectory
from corral.daemon.node.identity import Identity, load_identity
from corral.domain.ids import NodeId
from corral.system.clock import SystemClock
from corral.system.controller_config import LinkSection
from corral.system.entropy import SystemEntropy
from corral.testing.scripted_peers import ScriptedDaemon
from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import MODULE_INTENT_ACTIVE, ModuleSetEntry


@pytest.fixture
async def controller(cluster):
    return await cluster.controller(link__heartbeat_seconds=30)


class SlowStream:
    """A stream whose other end takes its welcome only when it may."""

    def __init__(self, identity: Identity, hello: DaemonMessage) -> None:
        self.welcomed = asyncio.Event()
        self.may = asyncio.Event()
        self._identity = identity
        self._hello: DaemonMessage | None = hello

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_pem_cert": [self._identity.certificate_pem.encode()]}

    def peer(self) -> str:
        return "slow"

    async def read(self) -> DaemonMessage:
        first, self._hello = self._hello, None
        if first is None:
            await asyncio.Event().wait()
        assert first is not None
        return first

    async def write(self, _: ControllerMessage) -> None:
        self.welcomed.set()
        await self.may.wait()

    async def abort(self, *_: Any) -> None:
        raise grpc.aio.AbortError


@pytest.mark.trap("T40")
async def test_a_session_that_was_superseded_before_it_began_takes_nothing_from_the_next(controller, scratch):
    await install(controller, node_archive(scratch))
    async with peer(controller, scratch):
        pass
    identity = load_identity(scratch / "n1")
    assert identity is not None
    role, lookup = controller.app.role, LinkDirectory(controller.app.role, controller.app.own)
    service = DaemonService(
        lookup=lookup, settings=LinkSection(), clock=SystemClock(), entropy=SystemEntropy()
    )
    hello = ScriptedDaemon(identity, "unused").handshake(run_id="run-1")
    slow = SlowStream(identity, DaemonMessage(handshake=hello))
    old = asyncio.create_task(service.Connect(None, slow), name="test/slow")
    await slow.welcomed.wait()
    async with peer(controller, scratch) as node:
        await node.order()
        slow.may.set()
        assert isinstance((await asyncio.gather(old, return_exceptions=True))[0], grpc.aio.AbortError)
        assert role.term.node_modules.connected(NodeId("n1"))
        await controller.call("POST", "/api/v1/modules/small/deactivate", None)
        assert (await node.order()).module_id == "small"


async def test_what_goes_is_told_before_what_comes(controller, scratch):
    await install(controller, node_archive(scratch, "a-new"))
    gone = [ModuleSetEntry(module_id=id, sha256="0" * 64, version="1") for id in ("zoo", "a-new", "b-old")]
    async with peer(controller, scratch, *gone) as node:
        told = [(await node.order()).DESCRIPTOR.name for _ in range(3)]
        assert told == ["ModuleUninstall", "ModuleUninstall", "ModuleInstall"]


async def test_a_list_of_modules_counts_nodes_and_one_module_has_each(controller, scratch):
    archive = node_archive(scratch)
    await install(controller, archive)
    entry = ModuleSetEntry(
        module_id="small",
        sha256=digest(archive),
        version="1.0.0",
        intent=MODULE_INTENT_ACTIVE,
        state="ACTIVE",
    )
    broken = ModuleSetEntry(module_id="small", sha256=digest(archive), version="1.0.0", state="FAILED")
    async with peer(controller, scratch, entry), peer(controller, scratch, broken, node="n2"):

        async def counted() -> bool:
            (listed,) = (await controller.call("GET", "/api/v1/modules"))["items"]
            assert listed["nodes"] is None
            return listed["on_nodes"] == {
                "wanted": 2,
                "active": 1,
                "degraded": 1,
                "waiting": 0,
                "disconnected": 0,
            }

        await eventually(counted)
        shown = await controller.call("GET", "/api/v1/modules/small")
        assert [each["node"] for each in shown["nodes"]] == ["n1", "n2"]
