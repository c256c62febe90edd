"""Real daemons that are killed at any moment of a start."""

from __future__ import annotations

import asyncio
import pathlib
import random
import time

import pytest
from supervised_node import FIRST, SupervisedNode, start_frame

from corral.testing import workloads
from corral.testing.processes import ProcessCluster
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.version import PROTOCOL_VERSION
from corral.wire.features import FEATURES
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.node_pb2 import HandshakeAck

ROUNDS = 6
NEW_EACH_ROUND = 3


class StartingController:
    """Greets, and sends the same starts to whoever comes, as a controller does that has no answer."""

    def __init__(self) -> None:
        self.frames: list[ControllerMessage] = []
        self.ordered = asyncio.Event()
        self.reported: list[dict[str, int]] = []

    async def __call__(self, context) -> None:
        greeting = await context.read()
        runs = greeting.handshake.running_instances
        self.reported.append({run.instance_id: run.pid for run in runs})
        ack = HandshakeAck(
            session_id=f"s{len(self.reported)}",
            heartbeat_interval_ms=60_000,
            protocol_version=PROTOCOL_VERSION,
            protocol_compatible=True,
            features=FEATURES,
            epoch=1,
        )
        await context.write(ControllerMessage(handshake_ack=ack, epoch=1))
        for frame in self.frames:
            await context.write(frame)
        self.ordered.set()
        while await context.read():
            pass


def processes() -> dict[str, list[int]]:
    """Every process of every instance of the node, whichever daemon may know of it."""
    found: dict[str, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"CORRAL_NODE_ID=killed-node" in variables:
                id = next(v for v in variables if v.startswith(b"CORRAL_INSTANCE_ID=")).decode().split("=")[1]
                found.setdefault(id, []).append(int(entry.name))
    return found


@pytest.mark.system
@pytest.mark.trap("T50")
@pytest.mark.timeout(300)
async def test_a_daemon_killed_at_any_moment_of_its_starts_leaves_one_process_of_each(scratch, reaper):
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    data = scratch / "node"
    script = StartingController()
    async with ScriptedController(script) as controller, ProcessCluster(scratch) as cluster:
        controller.enrol(data, "killed-node")
        command = ["daemon", "--data", str(data), "--controller", controller.address]
        environment = {"CORRAL_INSTANCES_DEVELOPMENT": "true"}
        ids = []
        for round in range(ROUNDS):
            ids += [f"i{round}-{number}" for number in range(NEW_EACH_ROUND)]
            script.frames = [_at_epoch_1(start_frame(id, workloads.silent())) for id in ids]
            script.ordered.clear()
            daemon = cluster.start(*command, environment=environment)
            await asyncio.wait_for(script.ordered.wait(), 30)
            await asyncio.sleep(chance.random() * 0.2)  # the moment is the point
            await daemon.kill()
            twice = {id: pids for id, pids in processes().items() if len(pids) > 1}
            assert not twice
        last = cluster.start(*command, environment=environment)
        await eventually(lambda: processes().keys() == set(ids))
        pids = {id: found[0] for id, found in processes().items()}
        await last.kill()
        script.ordered.clear()
        last = cluster.start(*command, environment=environment)
        await asyncio.wait_for(script.ordered.wait(), 30)
        assert script.reported[-1] == pids
        assert await last.terminate() == 0
        assert processes() == {id: [pid] for id, pid in pids.items()}, "the end of a daemon is no order"
    node = SupervisedNode(data)
    await node.clear()
    assert not processes()
    assert {run.order.incarnation for run in node.supervision.supervisor.instances.runs()} == {FIRST}


def _at_epoch_1(frame: ControllerMessage) -> ControllerMessage:
    frame.epoch = 1
    return frame
