"""Capabilities of the controller on a node: offers decide who runs, the link only whether calls get through."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest
from bridge_rig import BridgeController, LinkedNode, PlayedSession, bridge, node_manifest, played

from corral.daemon.link.connection import LinkConnection
from corral.daemon.modules.controller_capabilities import ARGUMENT_BYTES, MOST_CALLS, ControllerCapabilities
from corral.domain.modules.phases import ModulePhase
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.sdk.protocol.messages import CapabilityAnswer, CapabilityRequest
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually
from corral.wire import features
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import CapabilityCall, CapabilityOffer, CapabilityOffers, CapabilityResult

CONSUMER = """
import asyncio, time
from typing import Protocol

class Flags(Protocol):
    async def flags(self, *, group: str) -> list[str]: ...

class Demo(DaemonModule):
    def on_load(self, ctx):
        self.ctx = ctx
        self.flags = ctx.capabilities.require("acme.flags", Flags, deadline=2.0)

    async def health_check(self):
        if not self.flags.available:
            return Health(healthy=False, detail="away")
        try:
            return Health(detail=",".join(await self.flags.call.flags(group="lobby")))
        except SdkError as error:
            return Health(healthy=False, detail=type(error).__name__)
"""


def offers(*versions: str, deprecated: bool = False) -> CapabilityOffers:
    return CapabilityOffers(
        offers=[
            CapabilityOffer(
                capability_id="acme.flags", version=version, provider="flags", deprecated=deprecated
            )
            for version in versions
        ]
    )


# --- a real module over a real link -----------------------------------------------------------------------
async def detail(node: LinkedNode) -> str:
    return (await node.engine.health("user")).detail


async def answered(node: LinkedNode, controller: BridgeController, **result: Any) -> str:
    """What the module makes of a call that the controller answers so."""
    before = len(controller.of("capability_call"))
    asking = asyncio.create_task(detail(node))
    await eventually(lambda: len(controller.of("capability_call")) > before)
    call: CapabilityCall = controller.of("capability_call")[-1]
    assert (call.module_id, call.capability_id, call.method) == ("user", "acme.flags", "flags")
    assert msgspec.msgpack.decode(call.arguments_msgpack) == {"group": "lobby"}
    await controller.say(capability_result=CapabilityResult(call_id=call.call_id, **result))
    return await asking


async def test_a_consumer_waits_for_an_offer_calls_through_the_link_and_stops_with_the_offer(
    scratch: pathlib.Path,
) -> None:
    async with bridge(scratch) as (node, controller):
        await node.connected()
        await node.install(node_manifest("user", requires="acme.flags"), CONSUMER)
        assert node.phase("user") is ModulePhase.WAITING
        (found,) = node.engine.capabilities.unresolved()
        assert (found.module, found.id) == ("user", "acme.flags")
        await controller.say(capability_offers=offers("0.9.0"))
        await eventually(lambda: node.engine.capabilities.unresolved()[0].why == "version_mismatch")
        assert node.phase("user") is ModulePhase.WAITING

        await controller.say(capability_offers=offers("1.2.0"))
        await node.until("user", ModulePhase.ACTIVE)
        (view,) = node.engine.capabilities.all()
        assert (view.id, view.version, view.consumers, view.remote) == (
            "acme.flags",
            "1.2.0",
            ("user",),
            True,
        )
        value = msgspec.msgpack.encode(["-Xms1g", "-Xmx1g"])
        assert await answered(node, controller, result_msgpack=value) == "-Xms1g,-Xmx1g"
        for code, raised in {
            "CAPABILITY_UNAVAILABLE": "CapabilityUnavailable",
            "CAPABILITY_TYPE": "CapabilityTypeError",
            "MODULE_TIMEOUT": "HostTimeout",
            "MODULE_FAILED": "Refused",
            "SOMETHING_NEWER": "Refused",
        }.items():
            told = await answered(node, controller, error_code=code, error_message="no")
            assert told == raised
        assert node.engine.capabilities.all()[0].failures == 5

        await controller.say(capability_offers=offers())
        await node.until("user", ModulePhase.WAITING)


async def test_a_lost_connection_clears_handles_and_stops_nobody(scratch: pathlib.Path) -> None:
    async with bridge(scratch) as (node, controller):
        await node.connected()
        await controller.say(capability_offers=offers("1.0.0"))
        await node.install(node_manifest("user", requires="acme.flags"), CONSUMER)
        await node.until("user", ModulePhase.ACTIVE)
        pid = node.engine.all_live()["user"].pid
        asking = asyncio.create_task(detail(node))
        await eventually(lambda: controller.of("capability_call"))
        controller.drop()
        assert await asking == "CapabilityUnavailable"
        await eventually(lambda: controller.peer.streams == 2 and node.link.connected.is_set())
        await node.hang_up()

        async def away() -> bool:
            return await detail(node) == "away"

        await eventually(away)
        for _ in range(20):
            node.remote.on_connected(cast("LinkConnection", PlayedSession(features.MODULES)))
            node.remote.on_disconnected()
        await node.engine.rest()
        assert node.phase("user") is ModulePhase.ACTIVE
        assert node.engine.all_live()["user"].pid == pid
        assert len(controller.of("capability_call")) == 1

    async with bridge(scratch) as (again, other):  # a new daemon on the same disk, with nobody to talk to
        await again.engine.install(_record(again))
        assert again.phase("user") is ModulePhase.ACTIVE
        assert await detail(again) == "away"
        assert other.peer.streams == 0


def _record(node: LinkedNode) -> Any:
    (node.data / "archives" / "user-1.0.0" / "demo.py").unlink()
    (node.data / "archives" / "user-1.0.0").rmdir()
    return node.written(node_manifest("user", requires="acme.flags"), CONSUMER)


# --- the calls themselves ---------------------------------------------------------------------------------
class Calls:
    """`ControllerCapabilities` with a session and a controller that the test plays."""

    def __init__(self, path: pathlib.Path) -> None:
        self.sent: list[CapabilityCall] = []
        self.takes = True
        self.changes: list[set[str]] = []
        self.remote = ControllerCapabilities(path=path, send=self._take, entropy=SystemEntropy())
        self.remote.on_change(self.changes.append)
        self.scope, _ = played("user")

    def _take(self, message: DaemonMessage) -> bool:
        if self.takes:
            self.sent.append(message.capability_call)
        return self.takes

    def connect(self, *known: str) -> None:
        self.remote.on_connected(cast("LinkConnection", PlayedSession(*(known or features.FEATURES))))

    def offer(self, *versions: str, **more: Any) -> None:
        message = ControllerMessage(capability_offers=offers(*versions, **more))
        self.remote.handlers["capability_offers"](self._take, message)

    def answer(self, call_id: str, **more: Any) -> None:
        message = ControllerMessage(capability_result=CapabilityResult(call_id=call_id, **more))
        self.remote.handlers["capability_result"](self._take, message)

    async def call(self, *, size: int = 0, deadline_ms: int = 0) -> CapabilityAnswer:
        arguments = msgspec.Raw(msgspec.msgpack.encode({"x": "y" * size}))
        request = CapabilityRequest(
            capability="acme.flags", method="flags", arguments=arguments, deadline_ms=deadline_ms
        )
        return await self.remote.call(self.scope, request)


@pytest.fixture
async def calls(scratch: pathlib.Path) -> AsyncIterator[Calls]:
    calls = Calls(scratch / "modules" / "offers.json")
    calls.connect()
    calls.offer("1.0.0")
    yield calls
    await calls.remote.close()


async def refused(call: Any) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await call
    return caught.value


async def test_answers_find_their_calls_and_late_ones_nobody(calls: Calls) -> None:
    first, second = asyncio.create_task(calls.call()), asyncio.create_task(calls.call())
    await eventually(lambda: len(calls.sent) == 2)
    calls.answer("nobody-asked", result_msgpack=b"\x01")
    calls.answer(calls.sent[1].call_id, result_msgpack=b"\x02")
    calls.answer(calls.sent[0].call_id)
    calls.answer(calls.sent[0].call_id, result_msgpack=b"\x07")
    assert bytes((await first).value) == b"\xc0"
    assert bytes((await second).value) == b"\x02"


async def test_a_call_ends_at_its_deadline_and_its_place_is_free_again(calls: Calls) -> None:
    error = await refused(calls.call(deadline_ms=20))
    assert (error.code, type(error)) == (Code.MODULE_TIMEOUT, Retryable)
    assert calls.sent[0].deadline_ms == 20
    calls.answer(calls.sent[0].call_id, result_msgpack=b"\x01")
    for number in range(MOST_CALLS + 1):
        assert (await refused(calls.call(deadline_ms=1))).code is Code.MODULE_TIMEOUT, number


async def test_no_more_calls_wait_than_may_and_all_fail_with_the_connection(calls: Calls) -> None:
    waiting = [asyncio.create_task(calls.call(deadline_ms=2**40)) for _ in range(MOST_CALLS)]
    await eventually(lambda: len(calls.sent) == MOST_CALLS)
    assert (await refused(calls.call())).code is Code.MODULE_BUSY
    calls.remote.on_disconnected()
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(outcome, Retryable)
        assert outcome.code is Code.CAPABILITY_UNAVAILABLE
    assert (await refused(calls.call())).code is Code.CAPABILITY_UNAVAILABLE
    calls.answer(calls.sent[0].call_id, result_msgpack=b"\x01")
    calls.connect()
    again = asyncio.create_task(calls.call())
    await eventually(lambda: len(calls.sent) == MOST_CALLS + 1)
    calls.answer(calls.sent[-1].call_id, result_msgpack=b"\x01")
    await again


async def test_what_cannot_be_sent_fails_at_once(calls: Calls) -> None:
    assert (await refused(calls.call(size=ARGUMENT_BYTES))).code is Code.BODY_TOO_LARGE
    calls.takes = False
    assert (await refused(calls.call())).code is Code.CAPABILITY_UNAVAILABLE
    calls.offer()
    assert (await refused(calls.call())).code is Code.CAPABILITY_UNAVAILABLE
    assert calls.sent == []


async def test_errors_are_those_of_a_local_call(calls: Calls) -> None:
    kinds = {
        Code.CAPABILITY_UNAVAILABLE: Retryable,
        Code.MODULE_BUSY: Retryable,
        Code.MODULE_TIMEOUT: Retryable,
        Code.CAPABILITY_TYPE: Rejected,
        Code.MODULE_FAILED: Rejected,
    }
    for code, kind in kinds.items():
        calling = asyncio.create_task(calls.call())
        await eventually(lambda: calls.sent)
        calls.answer(calls.sent.pop().call_id, error_code=code.name, error_message="it says")
        error = await refused(calling)
        assert (error.code, type(error), error.message) == (code, kind, "it says")


async def test_changes_are_told_by_id_and_the_other_host_s_coming_and_going_too(calls: Calls) -> None:
    assert calls.changes == [{"acme.flags"}]
    calls.offer("1.0.0")  # the same again
    calls.connect()
    assert calls.changes == [{"acme.flags"}]
    calls.offer("1.0.0", deprecated=True)
    assert calls.remote.deprecated("acme.flags")
    calls.remote.on_disconnected()
    calls.remote.on_disconnected()
    calls.offer()  # of the old stream, late
    assert calls.changes == [{"acme.flags"}] * 3
    assert "acme.flags" in calls.remote.offers()
    calls.connect(features.BATCH)  # a controller that knows nothing of all this
    assert not calls.remote.reachable


async def test_offers_are_remembered_and_a_damaged_file_is_none(scratch: pathlib.Path) -> None:
    path = scratch / "modules" / "offers.json"
    first = Calls(path)
    first.connect()
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        first.offer(version)
    await first.remote.close()
    again = Calls(path)
    assert again.remote.offers() == {"acme.flags": ("1.2.0", "flags")}
    assert not again.remote.reachable
    await again.remote.close()
    path.write_bytes(b'{"format": "corral-off')
    damaged = Calls(path)
    assert damaged.remote.offers() == {}
    damaged.connect()
    damaged.offer("2.0.0")
    await damaged.remote.close()
    assert Calls(path).remote.offers() == {"acme.flags": ("2.0.0", "flags")}
