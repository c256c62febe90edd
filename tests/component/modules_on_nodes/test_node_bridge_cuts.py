"""Connections that break at the worst moment: what a subscription loses it is told of, and nothing else is lost."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from bridge_rig import PlayedProcess, played
from node_archives import install, node_archive

from corral.domain.event_schemas.catalog import example_data
from corral.domain.events import Draft, EventType
from corral.modules.scope import Scope
from corral.modules.services.event_rules import EVENTS_MISSED
from corral.modules.services.host_operations import OperationTable
from corral.sdk.protocol.messages import SUBSCRIBE, UNSUBSCRIBE, EventBody, Subscribe, Unsubscribe
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.testing.fault_proxy import FaultProxy
from corral.testing.waiting import eventually

TYPE = "GROUP_CREATED"


class CutBridge:
    """A node behind a proxy, and one module on it that the test plays."""

    def __init__(
        self,
        proxy: FaultProxy,
        controller: LocalController,
        daemon: LocalDaemon,
        scope: Scope,
        process: PlayedProcess,
    ) -> None:
        self.process = process
        self._proxy = proxy
        self._controller = controller
        self._daemon = daemon
        self._scope = scope
        self._table = OperationTable(daemon.app._parts._events.operations())

    async def _call(self, method: str, body: object) -> None:
        await self._table.serve(self._scope, method, msgspec.Raw(msgspec.msgpack.encode(body)))

    async def subscribe(self) -> None:
        """Returns when the controller has it, whether or not its answers come through."""
        await self._call(SUBSCRIBE, Subscribe(subscription=1, types=(TYPE,)))
        await eventually(lambda: self._at_controller() == [1])

    async def unsubscribe(self) -> None:
        await self._call(UNSUBSCRIBE, Unsubscribe(subscription=1))
        await eventually(lambda: self._at_controller() == [0])

    def _at_controller(self) -> list[int]:
        """How many types each session of the node wants there."""
        traffic = self._controller.app.role.term.node_modules
        return [len(forwarder) for forwarder in traffic._forwarding._forwarders.values()]

    async def position_known(self) -> None:
        events = self._daemon.app._parts._events
        await eventually(lambda: events._seen is not None)

    async def publish(self, *subjects: str) -> None:
        drafts = [
            Draft(type=EventType(TYPE), subject=subject, data=example_data(EventType(TYPE)))
            for subject in subjects
        ]
        await self._controller.app.role.term.ledger.commit(*drafts)

    def hold_answers(self) -> None:
        """What the controller says from now on never arrives."""
        self._proxy.stall(answers_only=True)

    async def cut(self) -> None:
        session = self._daemon.app.link.session_id
        await self._proxy.cut(refuse=False)
        self._proxy.heal()
        await eventually(lambda: self._daemon.app.link.session_id not in ("", session))
        await eventually(lambda: self._at_controller() == [1])

    async def heard_to(self, subject: str) -> list[EventBody]:
        await eventually(lambda: subject in self.process.subjects, state=lambda: self.process.events)
        return self.process.events


@contextlib.asynccontextmanager
async def cut_bridge(cluster: LocalCluster) -> AsyncIterator[CutBridge]:
    scope, process = played()
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        declaring = node_archive(controller.data / "archives", "declaring", events={"subscribes": [TYPE]})
        await install(controller, declaring, activate=False)
        daemon = await cluster.daemon("n1", controller)
        try:
            yield CutBridge(proxy, controller, daemon, scope, process)
        finally:
            await scope.close()
            await daemon.app.stop()


def holes(told: Sequence[str], heard: Sequence[EventBody]) -> list[str]:
    """What was told, is not among what was heard, and has no EVENTS_MISSED in its place. Each may be heard
    once, in order."""
    left, silent, excused = list(told), [], False
    for event in heard:
        if event.type == EVENTS_MISSED:
            excused = True
            continue
        assert event.subject in left, f"{event.subject} again, out of order, or from before"
        lost = left[: left.index(event.subject)]
        silent += [] if excused else lost
        left, excused = left[len(lost) + 1 :], False
    return silent + ([] if excused else left)


@pytest.mark.trap("T10")
async def test_events_between_the_first_subscription_and_its_answer_are_told_as_missed(
    cluster: LocalCluster,
) -> None:
    async with cut_bridge(cluster) as bridge:
        await bridge.publish("before")
        bridge.hold_answers()
        await bridge.subscribe()
        await bridge.publish("lost")
        await bridge.cut()
        await bridge.publish("after")
        heard = await bridge.heard_to("after")
        assert [(event.type, event.subject) for event in heard] == [(EVENTS_MISSED, ""), (TYPE, "after")]
        assert heard[0].data["until"] < heard[1].cursor
        await bridge.cut()  # the next one finds a position: nothing is missed again
        await bridge.publish("later")
        assert len(await bridge.heard_to("later")) == 3


async def test_whoever_subscribes_when_all_others_are_gone_is_no_worse_off(cluster: LocalCluster) -> None:
    async with cut_bridge(cluster) as bridge:
        await bridge.subscribe()
        await bridge.publish("first")
        await bridge.heard_to("first")
        await bridge.unsubscribe()
        await bridge.publish("nobody's")
        bridge.hold_answers()
        await bridge.subscribe()
        await bridge.publish("lost")
        await bridge.cut()
        await bridge.publish("after")
        assert holes(["first", "lost", "after"], await bridge.heard_to("after")) == []


async def test_a_subscription_that_has_its_position_loses_nothing(cluster: LocalCluster) -> None:
    async with cut_bridge(cluster) as bridge:
        await bridge.subscribe()
        await bridge.position_known()
        bridge.hold_answers()
        await bridge.publish("held back", "too")
        await bridge.cut()
        await bridge.publish("after")
        assert [event.subject for event in await bridge.heard_to("after")] == ["held back", "too", "after"]


@pytest.mark.parametrize("cut_at", [0, 1, 2, 5])
async def test_wherever_the_stream_is_cut_no_event_is_lost_silently(
    cluster: LocalCluster, cut_at: int
) -> None:
    """Subscribe, then one event after the other. From before `cut_at` of them on nothing arrives (the first
    time not even the answer to the subscription), and behind it all is cut."""
    told = [f"event {number}" for number in range(6)]
    async with cut_bridge(cluster) as bridge:
        await bridge.publish("before")
        for number, subject in enumerate(told):
            if number == cut_at:
                bridge.hold_answers()
            if number == 0:
                await bridge.subscribe()
            await bridge.publish(subject)
            if number == cut_at:
                await bridge.cut()
        await bridge.publish("end")
        assert holes([*told, "end"], await bridge.heard_to("end")) == []
