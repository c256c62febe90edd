"""Capabilities of the controller for modules on nodes: what is offered, and who may call it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from bridge_bench import HeldLink

from corral.controller.modules_on_nodes.capability_server import (
    LONGEST_SECONDS,
    MOST_OUTSTANDING,
    OF_ALL_NODES,
    OF_ONE_SESSION,
    VALUE_BYTES,
    CapabilityServer,
    OfferSender,
)
from corral.controller.modules_on_nodes.outbox_room import QUEUED_BYTES
from corral.domain.modules.manifest import CapabilitiesPart, Manifest, ModuleHost, Requirement, Source
from corral.domain.modules.records import PackageRecord
from corral.modules.capabilities.capability_calls import Consumer
from corral.modules.capabilities.capability_registry import MOST_UNDER_WAY, CapabilityRegistry
from corral.sdk.protocol.messages import CapabilityRequest
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.module_pb2 import CapabilityCall, CapabilityOffers, CapabilityResult, ModuleEvent

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SHOP = "shop.stock"


def package(id: str, *requires: Requirement, hosts: tuple[ModuleHost, ...] = (ModuleHost.DAEMON,)) -> Any:
    manifest = Manifest(
        manifest_version=1,
        id=id,
        version="1.0.0",
        hosts=hosts,
        capabilities=CapabilitiesPart(requires=requires),
    )
    return PackageRecord(
        id=id,
        version="1.0.0",
        sha256="0" * 64,
        size=1,
        manifest=manifest,
        installed_at=NOW,
        updated_at=NOW,
    )


def needs(id: str = SHOP, range: str = "^1.0", source: Source | None = Source.CONTROLLER) -> Requirement:
    return Requirement(id=id, version_range=range, from_=source)


PACKAGES = {
    each.id: each
    for each in (
        package("guard", needs()),
        package("local", needs(source=Source.NODE)),
        package("plain", needs(source=None)),
        package("ahead", needs(range="^2.0")),
        package("dreamer", needs("no.such")),
        package("central", needs(), hosts=(ModuleHost.CONTROLLER,)),
    )
}


class Shop:
    """What the controller has to offer in these tests."""

    def __init__(self) -> None:
        self.consumers: list[str] = []
        self.under_way = 0
        self.cancelled = 0
        self.let_go = asyncio.Event()

    async def count(self, consumer: Consumer | None, raw: msgspec.Raw) -> object:
        self.consumers.append(consumer.name if consumer else "")
        return {"item": msgspec.msgpack.decode(raw, type=dict[str, str]).get("item", ""), "left": 3}

    async def hang(self, _: Consumer | None, raw: msgspec.Raw) -> object:
        del raw
        self.under_way += 1
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "late"

    async def pour(self, _: Consumer | None, raw: msgspec.Raw) -> object:
        del raw
        return b"x" * (VALUE_BYTES + 1)

    async def stumble(self, _: Consumer | None, raw: msgspec.Raw) -> object:
        del raw
        raise RuntimeError("not told to a node")


class Rig:
    def __init__(self) -> None:
        self.shop = Shop()
        self.registry = CapabilityRegistry(ModuleHost.CONTROLLER, lambda ids: None, clock=SystemClock())
        methods = {
            "count": self.shop.count,
            "hang": self.shop.hang,
            "pour": self.shop.pour,
            "stumble": self.shop.stumble,
        }
        self.registry.provide_builtin(SHOP, "1.2.0", methods)
        self.desk = CapabilityServer(registry=self.registry, records=PACKAGES.get, clock=SystemClock())
        self._numbers = iter(range(1000))

    def call(self, link: HeldLink, method: str = "count", **more: Any) -> str:
        arguments = more.pop("arguments", msgspec.msgpack.encode({"item": "sword"}))
        id = str(next(self._numbers))
        fields = {"capability_id": SHOP, "module_id": "guard", "deadline_ms": 5000, **more}
        call = CapabilityCall(call_id=id, method=method, arguments_msgpack=arguments, **fields)
        self.desk.called(link, call)
        return id

    async def answer(self, link: HeldLink, method: str = "count", **more: Any) -> CapabilityResult:
        id = self.call(link, method, **more)
        await eventually(lambda: id in results(link), state=lambda: results(link))
        return results(link)[id]


def results(link: HeldLink) -> dict[str, CapabilityResult]:
    link.take()
    found = [m.capability_result for m in link.seen if m.WhichOneof("payload") == "capability_result"]
    return {each.call_id: each for each in found}


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(rig.desk.close)
        yield rig


async def test_a_call_is_answered_and_the_provider_knows_whose_it_was(rig):
    link = HeldLink("north")
    answer = await rig.answer(link)
    assert not answer.error_code
    assert msgspec.msgpack.decode(answer.result_msgpack) == {"item": "sword", "left": 3}
    assert rig.shop.consumers == ["guard@north"]
    (view,) = rig.registry.all()
    assert (view.calls, view.failures) == (1, 0)
    assert msgspec.msgpack.decode((await rig.answer(link, arguments=b"")).result_msgpack)["item"] == ""


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"module_id": "nobody"}, "CAPABILITY_UNAVAILABLE"),
        ({"module_id": "local"}, "CAPABILITY_UNAVAILABLE"),
        ({"module_id": "plain"}, "CAPABILITY_UNAVAILABLE"),
        ({"module_id": "central"}, "CAPABILITY_UNAVAILABLE"),
        ({"module_id": "ahead"}, "CAPABILITY_UNAVAILABLE"),
        ({"module_id": "dreamer", "capability_id": "no.such"}, "CAPABILITY_UNAVAILABLE"),
        ({"capability_id": "corral.secrets"}, "CAPABILITY_UNAVAILABLE"),
        ({"method": "steal"}, "CAPABILITY_TYPE"),
        ({"arguments": msgspec.msgpack.encode([1])}, "CAPABILITY_TYPE"),
        ({"arguments": b"\x81\xa1a\x92\x01"}, "CAPABILITY_TYPE"),
        ({"arguments": b"\x81\xa1a" + b"\x91" * 10_000}, "CAPABILITY_TYPE"),
        ({"arguments": b"\x80" * 2}, "CAPABILITY_TYPE"),
        ({"arguments": msgspec.msgpack.encode({"item": "x" * VALUE_BYTES})}, "BODY_TOO_LARGE"),
        ({"method": "pour"}, "BODY_TOO_LARGE"),
        ({"method": "stumble"}, "INTERNAL"),
        ({"method": "hang", "deadline_ms": 30}, "MODULE_TIMEOUT"),
    ],
)
async def test_what_cannot_be_answered_comes_back_with_its_code(rig, told, code):
    answer = await rig.answer(HeldLink(), **told)
    assert answer.error_code == code, answer.error_message
    assert answer.error_message
    assert "not told to a node" not in answer.error_message
    assert not answer.result_msgpack


async def test_a_node_has_so_many_calls_under_way_and_others_are_not_kept_waiting(rig):
    link, other = HeldLink(), HeldLink("south")
    for _ in range(MOST_OUTSTANDING):
        rig.call(link, "hang", deadline_ms=int(LONGEST_SECONDS * 1000))
    refused = await rig.answer(link)
    assert refused.error_code == "MODULE_BUSY"
    assert "north" in refused.error_message
    assert not (await rig.answer(other)).error_code
    assert rig.shop.under_way == OF_ONE_SESSION
    rig.shop.let_go.set()
    await eventually(lambda: len(results(link)) == MOST_OUTSTANDING + 1)
    assert not [each for each in results(link).values() if each.error_code not in ("", "MODULE_BUSY")]
    assert not (await rig.answer(link)).error_code


async def test_a_whole_fleet_may_call_the_same_capability_at_once(rig):
    """The registry refuses what is more than so many at a time; calls of nodes wait in line for that."""
    fleet = [HeldLink(f"n{number}") for number in range(3 * MOST_UNDER_WAY)]
    calls = [(link, rig.call(link, "hang")) for link in fleet]
    await eventually(lambda: rig.shop.under_way == OF_ALL_NODES)
    mine = CapabilityRequest(capability=SHOP, method="count", arguments=msgspec.Raw(b"\x80"))
    assert await rig.registry.call(None, mine), "there is room for the controller's own"
    impatient = await rig.answer(fleet[0], deadline_ms=30)
    assert impatient.error_code == "MODULE_TIMEOUT"
    rig.shop.let_go.set()
    await eventually(lambda: all(id in results(link) for link, id in calls))
    assert {results(link)[id].error_code for link, id in calls} == {""}


async def test_the_calls_of_a_session_end_with_it_and_those_of_the_next_do_not(rig):
    old, new = HeldLink(session="s1"), HeldLink(session="s2")
    rig.call(old, "hang")
    kept = rig.call(new, "hang")
    await eventually(lambda: rig.shop.under_way == 2)
    old.over.set()
    rig.desk.left(old)
    rig.desk.left(old)
    await eventually(lambda: rig.shop.cancelled == 1)
    rig.call(old)
    rig.shop.let_go.set()
    await eventually(lambda: kept in results(new))
    assert results(old) == {}
    assert msgspec.msgpack.decode(results(new)[kept].result_msgpack) == "late"


async def test_a_call_whose_id_is_under_way_is_not_made_twice(rig):
    link = HeldLink()
    call = CapabilityCall(call_id="one", capability_id=SHOP, method="hang", module_id="guard")
    rig.desk.called(link, call)
    rig.desk.called(link, call)
    rig.desk.called(link, CapabilityCall(capability_id=SHOP, method="hang", module_id="guard"))
    rig.shop.let_go.set()
    await eventually(lambda: "one" in results(link))
    assert rig.shop.under_way == 1


async def test_results_do_not_overflow_the_outbox_of_a_node_that_does_not_read(rig):
    link = HeldLink()
    while link.outbox.waiting_bytes <= QUEUED_BYTES:
        link.send(ControllerMessage(module_event=ModuleEvent(payload_json=b"x" * 65_536)))
    waiting = len(link.outbox)
    rig.call(link, deadline_ms=50)
    rig.call(link, module_id="nobody")
    patient = rig.call(link)
    await eventually(lambda: len(rig.shop.consumers) == 2)
    await eventually(lambda: len(_tasks()) == 1, state=_tasks)
    assert len(link.outbox) == waiting
    await eventually(lambda: patient in results(link))
    assert list(results(link)) == [patient]


def _tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("bridge/call")]


# --- offers ---------------------------------------------------------------------------------------


def offers(link: HeldLink) -> list[CapabilityOffers]:
    link.take()
    return [m.capability_offers for m in link.seen if m.WhichOneof("payload") == "capability_offers"]


def ids(told: CapabilityOffers) -> list[str]:
    return [each.capability_id for each in told.offers]


async def test_offers_are_made_when_all_modules_are_up_and_none_is_withdrawn_when_the_host_ends(rig):
    """Else each restart of a controller would stop, on all nodes, what needs something of it."""
    offering = OfferSender(rig.registry)
    early = HeldLink()
    offering.joined(early)
    assert offers(early) == []
    rig.registry.settle(True)
    assert [ids(told) for told in offers(early)] == [[SHOP]]
    (offer,) = offers(early)[0].offers
    assert (offer.version, offer.provider, offer.deprecated) == ("1.2.0", "corral", False)
    late = HeldLink("south")
    offering.joined(late)
    assert len(offers(late)) == 1
    assert len(offers(early)) == 1, "nothing is new to it"
    rig.registry.settle(False)
    rig.registry.provide_builtin("shop.more", "1.0.0", {})
    assert len(offers(early)) == len(offers(late)) == 1
    rig.registry.settle(True)
    assert ids(offers(late)[-1]) == ["shop.more", SHOP]
    offering.left(early)
    offering.left(early)
    rig.registry.provide_builtin("shop.most", "1.0.0", {})
    assert len(offers(early)) == 2


async def test_only_the_latest_offers_wait_for_a_node_that_does_not_read(rig):
    offering = OfferSender(rig.registry)
    rig.registry.settle(True)
    link = HeldLink()
    offering.joined(link)
    for number in range(50):
        rig.registry.provide_builtin(f"shop.n{number}", "1.0.0", {})
    assert len(link.outbox) == 1
    assert len(offers(link)[0].offers) == 51
