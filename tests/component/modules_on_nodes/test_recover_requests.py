"""A recover of a module on nodes is logged there under its own request, not under that of the install."""

from __future__ import annotations

import httpx
import pytest
from module_peer import ORDERS, digest, peer
from node_archives import install, node_archive

from corral.modules.manifest.settings import settings_digest
from corral.testing.waiting import eventually
from corral.wire.v1.module_pb2 import MODULE_INTENT_ACTIVE, ModuleSetEntry


@pytest.fixture
async def controller(cluster):
    return await cluster.controller(link__heartbeat_seconds=30)


async def test_an_order_to_recover_names_the_request_of_the_recover(controller, scratch):
    archive = node_archive(scratch)
    await install(controller, archive)
    failed = ModuleSetEntry(
        module_id="small", sha256=digest(archive), version="1.0.0", intent=MODULE_INTENT_ACTIVE,
        settings_sha256=settings_digest({}), state="FAILED", reason="hook_overrun",
    )  # fmt: skip
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    async with (
        httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=60) as client,
        peer(controller, scratch, failed) as node,
    ):

        async def is_failed():
            shown = await controller.call("GET", "/api/v1/modules/small")
            return [each["phase"] for each in shown["nodes"]] == ["FAILED"]

        await eventually(is_failed)
        for request in ("req-recover-1", "req-recover-2"):
            answer = await client.post("/api/v1/modules/small/recover", headers={"X-Request-Id": request})
            assert answer.status_code == 200, answer.text
            message = await node.next_of(ORDERS)
            assert message.module_control.recover
            assert message.cause == f"request:{request}"
