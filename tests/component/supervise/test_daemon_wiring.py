"""Instances through a whole daemon: orders over the link, reports and console back."""

from __future__ import annotations

import asyncio

from supervised_node import FIRST, start_frame

from corral.testing import workloads
from corral.testing.cluster import LocalCluster
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.version import PROTOCOL_VERSION
from corral.wire.features import FEATURES
from corral.wire.frame_table import FROM_CONTROLLERS, FrameDelivery
from corral.wire.v1.instance_pb2 import InstanceState, StopInstance
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import Handshake, HandshakeAck, SpoolAck


class OrderingController:
    """Greets whoever comes, hears everything, says what it is given; `confirms` what is to be stored."""

    def __init__(self, *, features: tuple[str, ...] = FEATURES, confirms: bool = False) -> None:
        self.features = features
        self.confirms = confirms
        self.epoch = 1
        self.greetings: list[Handshake] = []
        self.heard: list[DaemonMessage] = []
        self.orders: asyncio.Queue[ControllerMessage] = asyncio.Queue()

    async def __call__(self, context) -> None:
        self.greetings.append((await context.read()).handshake)
        ack = HandshakeAck(
            session_id=f"s{len(self.greetings)}",
            heartbeat_interval_ms=60_000,
            protocol_version=PROTOCOL_VERSION,
            protocol_compatible=True,
            features=self.features,
            epoch=self.epoch,
        )
        await context.write(ControllerMessage(handshake_ack=ack, epoch=self.epoch))
        talking = asyncio.create_task(self._talk(context))
        try:
            while isinstance(frame := await context.read(), DaemonMessage):
                batched = frame.WhichOneof("payload") == "batch"
                messages = frame.batch.messages if batched else [frame]
                self.heard.extend(messages)
                if self.confirms and (stored := max(message.spool_sequence for message in messages)):
                    self.orders.put_nowait(ControllerMessage(spool_ack=SpoolAck(sequence=stored)))
        finally:
            talking.cancel()

    async def _talk(self, context) -> None:
        while True:
            order = await self.orders.get()
            order.epoch = order.epoch or self.epoch
            await context.write(order)

    def of(self, kind: str) -> list:
        return [getattr(message, kind) for message in self.heard if message.WhichOneof("payload") == kind]

    def states(self) -> list[str]:
        names = (InstanceState.Name(update.state) for update in self.of("instance_status"))
        return [name.removeprefix("INSTANCE_STATE_") for name in names]

    def console(self) -> bytes:
        return b"".join(block.data for batch in self.of("console_batch") for block in batch.blocks)


async def test_every_kind_of_frame_that_a_controller_may_send_is_dealt_with(scratch):
    async with ScriptedController(OrderingController()) as controller, LocalCluster(scratch) as cluster:
        controller.enrol(scratch / "n1", "n1")
        daemon = await cluster.daemon("n1", None, controllers=[controller.address])
        now = {kind for kind, rule in FROM_CONTROLLERS.items() if rule.delivery is FrameDelivery.NOW}
        assert daemon.app.link.kinds == now


async def test_an_instance_is_started_watched_and_stopped_over_the_link(scratch):
    script = OrderingController()
    async with ScriptedController(script) as controller, LocalCluster(scratch) as cluster:
        controller.enrol(scratch / "n1", "n1")
        settings = {"controllers": [controller.address], "instances__development": True}
        daemon = await cluster.daemon("n1", None, **settings)
        greeting = script.greetings[0]
        assert "process" in greeting.runtimes
        assert not greeting.running_instances
        script.orders.put_nowait(start_frame("one", workloads.reading_commands()))
        await eventually(lambda: script.states() == ["PREPARING", "STARTING", "RUNNING"], state=script.states)
        (ack,) = script.of("start_instance_ack")
        assert ack.accepted
        await eventually(lambda: script.console() == b"up\n", state=script.console)
        await eventually(lambda: script.of("node_status")[-1].instance_count == 1)

        again = await cluster.restart(daemon)
        await asyncio.wait_for(again.app.ready.wait(), 20)
        (running,) = script.greetings[-1].running_instances
        assert (running.instance_id, running.pid, running.incarnation) == ("one", ack.pid, FIRST)
        assert script.greetings[-1].spool_head >= 3

        stop = StopInstance(instance_id="one", incarnation=FIRST)
        script.orders.put_nowait(ControllerMessage(stop_instance=stop))
        await eventually(lambda: script.states()[-1] == "STOPPED", state=script.states)
        assert script.of("stop_instance_ack")[-1].accepted
        last = script.of("instance_status")[-1]
        assert (last.exit.outcome, last.exit.rung, last.exit.code) == ("stopped", "command stop", 0)
        await eventually(lambda: b"bye\n" in script.console(), state=script.console)
