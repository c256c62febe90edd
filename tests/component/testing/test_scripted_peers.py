"""A daemon whose frames a test writes."""

from __future__ import annotations

import asyncio
from typing import Any

from corral.testing.cluster import LocalCluster
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import Pong


async def test_tasks_that_write_at_once_do_not_end_the_stream(tmp_path: Any) -> None:
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller()
        token = await controller.join_token("raw")
        identity = await enrolled_identity(tmp_path / "raw", token=token, node_id="raw")
        async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
            await daemon.greet()
            async with asyncio.TaskGroup() as tasks:
                for number in range(50):
                    tasks.create_task(daemon.send(DaemonMessage(pong=Pong(sequence=number))))
            assert (await daemon.read_until("ping")).HasField("ping")
