"""The bridge over a real link: module processes on one side, a controller that the test plays on the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bridge_rig import BridgeController, LinkedNode, bridge, cursor, event_frame, node_manifest

from corral.daemon.link.spool_table import BACKGROUND_BYTES
from corral.domain.modules.manifest import EventsPart
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.verbs import Verb
from corral.modules.services.event_rules import EVENTS_MISSED
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import InstanceStatusUpdate
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.module_pb2 import ModuleEvent

LISTENER = """
import asyncio, json

class Demo(DaemonModule):
    async def on_start(self, ctx):
        self.ctx = ctx
        await ctx.events.subscribe(["GROUP_CREATED", "echo/ASKED"], self.hear)

    async def hear(self, event):
        told = {"type": event.type, "subject": event.subject}
        await self.ctx.events.publish("HEARD", told, subject=event.subject)
"""


def heard(controller: BridgeController) -> list[str]:
    """The subjects that the module says it was given, as they arrived."""
    return [json.loads(told.payload_json)["subject"] for told in controller.of("event_publish")]


def wishes(controller: BridgeController) -> list[tuple[list[str], int | None]]:
    return [
        (list(asked.event_types), asked.after.sequence if asked.HasField("after") else None)
        for asked in controller.of("event_subscribe")
    ]


async def listening(node: LinkedNode, controller: BridgeController) -> None:
    await node.connected()
    await node.install(node_manifest("echo", events=EventsPart(publishes=("HEARD",))), LISTENER)
    await eventually(lambda: wishes(controller) == [(["GROUP_CREATED", "echo/ASKED"], None)])


async def tell(controller: BridgeController, *numbers: int, **more: Any) -> None:
    for number in numbers:
        await controller.say(module_event=event_frame(number, **more))


async def reconnected(node: LinkedNode, controller: BridgeController) -> None:
    session, asked = node.link.session_id, len(wishes(controller))
    controller.drop()
    await eventually(lambda: node.link.session_id not in ("", session))
    await eventually(lambda: len(wishes(controller)) > asked)


@pytest.mark.trap("T10", "T40")
async def test_events_of_both_directions_arrive_once_and_in_order_through_lost_connections(
    scratch: Any,
) -> None:
    async with bridge(scratch) as (node, controller):
        await listening(node, controller)
        await tell(controller, 1, 2)
        await eventually(lambda: heard(controller) == ["1", "2"])
        for round in range(3):
            controller.acknowledges = False
            first = 3 + 3 * round
            await tell(controller, first)
            await eventually(lambda first=first: heard(controller)[-1:] == [str(first)])
            await reconnected(node, controller)
            controller.acknowledges = True
            assert wishes(controller)[-1] == (["GROUP_CREATED", "echo/ASKED"], first)
            await tell(controller, first, first + 1, first + 2)  # the first again: it was seen
            await eventually(lambda first=first: heard(controller)[-1:] == [str(first + 2)])
        taken: dict[int, str] = {}
        for message in controller.heard:
            if message.spool_sequence:  # sent again under the same number while nobody confirms
                taken[message.spool_sequence] = json.loads(message.event_publish.payload_json)["subject"]
        assert [taken[number] for number in sorted(taken)] == [str(number) for number in range(1, 12)]
        assert node.phase("echo") is ModulePhase.ACTIVE


async def test_what_is_published_during_an_outage_arrives_when_there_is_a_controller_again(
    scratch: Any,
) -> None:
    code = """
        class Demo(DaemonModule):
            async def on_start(self, ctx):
                for number in range(50):
                    cursor = await ctx.events.publish("HEARD", {"subject": str(number)})
                    assert cursor == ""
    """
    async with bridge(scratch) as (node, controller):
        record = await node.install(node_manifest("echo", events=EventsPart(publishes=("HEARD",))), code)
        assert record.phase is ModulePhase.ACTIVE
        await node.connected()
        await eventually(lambda: len(heard(controller)) == 50)
        assert heard(controller) == [str(number) for number in range(50)]


async def test_a_gap_reaches_the_module_and_the_end_of_a_module_is_told(scratch: Any) -> None:
    async with bridge(scratch) as (node, controller):
        await listening(node, controller)
        missed = ModuleEvent(event_type=EVENTS_MISSED, missed=True, cursor=cursor(9))
        await controller.say(module_event=missed)
        await tell(controller, 10, type="echo/ASKED")
        await eventually(lambda: len(controller.of("event_publish")) == 2)
        types = [json.loads(told.payload_json)["type"] for told in controller.of("event_publish")]
        assert types == [EVENTS_MISSED, "echo/ASKED"]
        await node.engine.act("echo", Verb.DEACTIVATE)
        await eventually(lambda: controller.of("event_unsubscribe"))
        (left,) = controller.of("event_unsubscribe")
        assert list(left.event_types) == ["GROUP_CREATED", "echo/ASKED"]


async def test_figures_of_modules_go_up_while_there_is_a_connection(scratch: Any) -> None:
    code = """
        class Demo(DaemonModule):
            async def on_start(self, ctx):
                ctx.metrics.counter("rounds").increase(3, map="canyon")
    """
    async with bridge(scratch, metrics_every=0.05) as (node, controller):
        await node.connected()
        await node.install(node_manifest("echo"), code)

        def latest() -> dict[str, float]:
            frames = controller.of("module_metrics")
            found = frames[-1].families if frames else ()
            return {family.name: family.samples[0].value for family in found if family.module_id == "echo"}

        await eventually(lambda: latest().get("rounds") == 3, state=latest)
        await eventually(lambda: latest().get("memory_bytes", 0) > 1_000_000, state=latest)
        assert latest()["calls"] > 0
        await node.engine.act("echo", Verb.UNINSTALL)
        await eventually(lambda: not controller.of("module_metrics")[-1].families)
        count = len(controller.of("module_metrics"))
        await tell(controller, 1)  # a round trip later there is still nothing more to say
        assert len(controller.of("module_metrics")) == count


FLOOD = """
import asyncio

class Demo(DaemonModule):
    async def on_start(self, ctx):
        self._task = asyncio.get_running_loop().create_task(self.flood(ctx))

    async def flood(self, ctx):
        while True:
            try:
                await ctx.events.publish("HEARD", {"subject": "x" * 2000})
            except Exception:
                await asyncio.sleep(0.05)
"""


@pytest.mark.trap("T85")
async def test_a_report_does_not_wait_behind_the_events_of_a_module_that_floods(scratch: Any) -> None:
    """Not even while the controller confirms nothing."""
    async with bridge(scratch) as (node, controller):
        await node.connected()
        controller.acknowledges = False
        await node.install(node_manifest("echo", events=EventsPart(publishes=("HEARD",))), FLOOD)
        waits = node.spool._table
        await eventually(lambda: waits.committed.background_bytes > 200_000, state=lambda: waits.committed)
        update = InstanceStatusUpdate(instance_id="lobby-1", state=4)
        await node.spool.put(DaemonMessage(instance_status=update).SerializeToString())
        await eventually(lambda: controller.of("instance_status"))
        told = sum(len(event.payload_json) for event in controller.of("event_publish"))
        assert told < 2 * BACKGROUND_BYTES
        assert waits.committed.background_bytes > 0
        controller.acknowledges = True
        controller.drop()  # what was not confirmed comes again, and the rest behind it
        before = len(controller.of("event_publish"))
        await eventually(lambda: len(controller.of("event_publish")) > before + 100)
