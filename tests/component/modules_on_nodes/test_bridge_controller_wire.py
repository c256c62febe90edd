"""The controller's side of the bridge over real streams, with a node whose frames the test writes."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request
from collections.abc import Mapping
from typing import Any, Self

import msgspec
import pytest
from node_archives import install, node_archive

from corral.domain.event_schemas.catalog import example_data
from corral.domain.events import Draft, EventType
from corral.testing.cluster import LocalController
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.module_pb2 import (
    CapabilityCall,
    CapabilityResult,
    EventCursor,
    EventPublish,
    EventSubscribe,
    ModuleEvent,
    ModuleMetricFamily,
    ModuleMetrics,
    ModuleMetricSample,
)
from corral.wire.v1.node_pb2 import Pong

SHOP = """
from typing import Protocol
from corral.sdk import CapabilityBinding, PlatformModule

class Stock(Protocol):
    async def count(self, *, item: str) -> int: ...

class Module(PlatformModule):
    def capability_handles(self):
        return [CapabilityBinding("shop.stock", Stock, lambda: self)]

    async def count(self, *, item: str) -> int:
        return len(item)
"""
NEED = {"id": "shop.stock", "versionRange": "^1.0", "from": "controller"}


class Node:
    """Reads all the time and answers pings. Use as `async with`."""

    def __init__(self, identity: Any, controller: LocalController) -> None:
        self._daemon = ScriptedDaemon(identity, controller.grpc_address)
        self._stack = contextlib.AsyncExitStack()
        self.heard: list[ControllerMessage] = []
        self._calls = 0

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._daemon)
        await self._daemon.greet()
        task = asyncio.create_task(self._listen(), name="test/node")

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _listen(self) -> None:
        while True:
            frame = await self._daemon.read()
            for message in frame.batch.messages if frame.HasField("batch") else [frame]:
                if message.HasField("ping"):
                    await self.say(pong=Pong(sequence=message.ping.sequence))
                self.heard.append(message)

    async def say(self, **message: Any) -> None:
        await self._daemon.send(DaemonMessage(**message))

    async def subscribe(self, *types: str, after: EventCursor | None = None) -> None:
        """Returns when the controller has told where the subscription stands."""
        before = len(self.places())
        await self.say(event_subscribe=EventSubscribe(event_types=types, after=after))
        await eventually(lambda: len(self.places()) > before)

    def of(self, kind: str) -> list[Any]:
        return [getattr(message, kind) for message in self.heard if message.HasField(kind)]

    def places(self) -> list[EventCursor]:
        told: list[ModuleEvent] = self.of("module_event")
        return [each.cursor for each in told]

    def subjects(self) -> list[str]:
        return [
            msgspec.json.decode(e.payload_json)["subject"] for e in self.of("module_event") if e.event_type
        ]

    def offered(self) -> list[list[str]]:
        return [[offer.capability_id for offer in told.offers] for told in self.of("capability_offers")]

    async def call(self, **arguments: Any) -> CapabilityResult:
        self._calls += 1
        id = f"call-{self._calls}"
        call = CapabilityCall(
            call_id=id,
            capability_id="shop.stock",
            method="count",
            module_id="guard",
            arguments_msgpack=msgspec.msgpack.encode(arguments),
        )
        await self.say(capability_call=call)
        await eventually(lambda: any(each.call_id == id for each in self.of("capability_result")))
        found: CapabilityResult = self.of("capability_result")[-1]
        return found


@pytest.fixture
async def controller(cluster) -> LocalController:
    return await cluster.controller()


@pytest.fixture
async def identity(controller, scratch):
    return await enrolled_identity(scratch / "raw", token=await controller.join_token("raw"), node_id="raw")


def made(type: EventType, subject: str, data: Mapping[str, Any] | None = None) -> Draft:
    """An event with everything that belongs to its type."""
    return Draft(type=type, subject=subject, data={**example_data(type), **(data or {})})


async def tell(controller: LocalController, *subjects: str) -> None:
    drafts = [made(EventType.GROUP_CREATED, subject) for subject in subjects]
    await controller.app.role.term.ledger.commit(*drafts)


async def install_shop(controller: LocalController, scratch: Any) -> None:
    entry = {"controller": {"entrypoint": "shop_module:Module"}}
    provides = {"provides": [{"id": "shop.stock", "version": "1.1.0"}]}
    shop = node_archive(
        scratch / "a", "shop", source=SHOP, hosts=["controller"], backend=entry, capabilities=provides
    )
    assert (await install(controller, shop))["phase"] == "ACTIVE"


async def install_guard(controller: LocalController, scratch: Any) -> None:
    guard = node_archive(
        scratch / "a",
        "guard",
        capabilities={"requires": [NEED]},
        events={
            "publishes": ["SEEN"],
            "subscribes": ["guard/SEEN", "GROUP_CREATED", "CATALOG_UPDATED", "INSTANCE_COMMAND"],
        },
    )
    await install(controller, guard)


def scrape(controller: LocalController) -> str:
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    asked = urllib.request.Request(f"{controller.url}/metrics", headers=headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.trap("T10", "T40")
async def test_a_new_stream_gets_what_was_missed_and_keeps_it_when_the_old_one_closes_late(
    controller, identity, scratch
):
    await install_guard(controller, scratch)
    async with Node(identity, controller) as old:
        await old.subscribe("GROUP_CREATED")
        await tell(controller, "a", "b")
        await eventually(lambda: old.subjects() == ["a", "b"], state=old.subjects)
        seen = old.places()[-1]
        async with Node(identity, controller) as new:
            await tell(controller, "c")
            await new.subscribe("GROUP_CREATED", after=seen)
            await old.__aexit__()
            await tell(controller, "d")
            await eventually(lambda: len(new.subjects()) >= 2, state=new.subjects)
            assert new.subjects() == ["c", "d"]


async def test_a_capability_is_offered_called_counted_and_withdrawn(controller, identity, scratch):
    await install_guard(controller, scratch)
    async with Node(identity, controller) as node:
        await eventually(lambda: node.offered() == [["corral.instance.files"]], state=node.offered)
        assert (await node.call(item="sword")).error_code == "CAPABILITY_UNAVAILABLE"
        await install_shop(controller, scratch)
        await eventually(lambda: node.offered()[-1] == ["corral.instance.files", "shop.stock"])
        assert msgspec.msgpack.decode((await node.call(item="sword")).result_msgpack) == 5
        wrong = await node.call(item=7)
        assert wrong.error_code == "CAPABILITY_TYPE", wrong.error_message
        await controller.call("POST", "/api/v1/modules/shop/deactivate")
        await eventually(lambda: node.offered()[-1] == ["corral.instance.files"])
        assert (await node.call(item="sword")).error_code == "CAPABILITY_UNAVAILABLE"


async def test_what_a_module_tells_reaches_the_log_once_and_its_figures_are_shown_while_it_is_there(
    controller, identity, scratch
):
    await install_guard(controller, scratch)
    seen = EventPublish(module_id="guard", event_type="SEEN", subject="lobby", payload_json=b'{"n": 1}')
    sample = ModuleMetricSample(labels={"world": "a"}, value=4)
    depth = ModuleMetricFamily(module_id="guard", name="depth", kind="gauge", samples=[sample])
    async with Node(identity, controller) as node:
        await node.subscribe("guard/SEEN", "GROUP_CREATED")
        for _ in range(2):
            await node.say(event_publish=seen, spool_sequence=1)
        hostile = EventPublish(module_id="guard", event_type="NODE_REMOVED", payload_json=b"{")
        await node.say(event_publish=hostile, spool_sequence=2)
        await eventually(lambda: [ack.sequence for ack in node.of("spool_ack")][-1:] == [2])
        await tell(controller, "end")
        await eventually(lambda: node.subjects()[-1:] == ["end"])
        assert node.subjects() == ["lobby", "end"]
        shown = await controller.call("GET", "/api/v1/events?types=MODULE_EVENT")
        (event,) = [each for each in shown["items"] if each["type"] == "MODULE_EVENT"]
        assert (event["data"]["node"], event["data"]["module"]) == ("raw", "guard")
        await node.say(module_metrics=ModuleMetrics(families=[depth]))
        line = 'corral_module_depth{module="guard",node="raw",world="a"} 4.0'
        await eventually(lambda: asyncio.to_thread(lambda: line in scrape(controller)))
    await eventually(lambda: asyncio.to_thread(lambda: "corral_module_depth" not in scrape(controller)))


async def test_a_controller_that_ends_and_starts_withdraws_nothing(cluster, controller, identity, scratch):
    await install_guard(controller, scratch)
    await install_shop(controller, scratch)
    whole = ["corral.instance.files", "shop.stock"]
    async with Node(identity, controller) as node:
        await eventually(lambda: node.offered() == [whole], state=node.offered)
        await node.subscribe("GROUP_CREATED")
        await tell(controller, "a")
        await eventually(lambda: node.subjects() == ["a"])
        await controller.app.stop()
        assert node.offered() == [whole]
        place = node.places()[-1]
    again = await cluster.controller()
    await tell(again, "b")
    async with Node(identity, again) as node:
        await node.subscribe("GROUP_CREATED", after=place)
        await eventually(lambda: bool(node.offered()))
        assert node.offered() == [whole]
        await eventually(lambda: node.subjects() == ["b"], state=node.subjects)


async def test_a_node_subscribes_only_to_what_an_installed_module_for_nodes_declares(
    controller, identity, scratch
):
    never = ["INSTANCE_COMMAND", "TOKEN_CREATED", "JOIN_TOKEN_CREATED"]
    async with Node(identity, controller) as node:
        await node.say(event_subscribe=EventSubscribe(event_types=["GROUP_CREATED", *never]))
        await eventually(lambda: node.of("error_report"))
        report = node.of("error_report")[0]
        assert (report.error_code, report.context) == ("FORBIDDEN", "events")
        assert "events.subscribes" in report.error_message
        await install_guard(controller, scratch)
        await node.subscribe("GROUP_CREATED", "CATALOG_UPDATED", "NODE_ONLINE", *never)
        await eventually(lambda: len(node.of("error_report")) == 2)
        told = node.of("error_report")[1].error_message
        assert all(name in told for name in ("NODE_ONLINE", *never))
        line = made(EventType.INSTANCE_COMMAND, "lobby-1", {"line": "login hunter2"})
        url = {"url": "https://bob:hunter2@files.example/server.jar"}
        added = made(EventType.CATALOG_UPDATED, "paper/1", url)
        await controller.app.role.term.ledger.commit(line, added)
        await controller.join_token("other")
        await tell(controller, "a")
        await eventually(lambda: node.subjects() == ["paper/1", "a"], state=node.subjects)
        assert not [e for e in node.of("module_event") if b"hunter2" in e.payload_json]


async def test_a_module_for_nodes_that_lists_nothing_opens_types_whose_fields_are_all_open(
    controller, identity, scratch
):
    await install(controller, node_archive(scratch / "a", "unlisted", events={}))
    async with Node(identity, controller) as node:
        await node.subscribe("GROUP_CREATED", "INSTANCE_CRASHED", "TOKEN_CREATED", "MODULE_EVENT", "a/B")
        await eventually(lambda: node.of("error_report"))
        refused = node.of("error_report")[0].error_message
        assert "GROUP_CREATED" not in refused
        assert all(name in refused for name in ("INSTANCE_CRASHED", "TOKEN_CREATED", "MODULE_EVENT", "a/B"))
        await tell(controller, "a")
        await eventually(lambda: node.subjects() == ["a"], state=node.subjects)


async def test_what_no_module_declares_any_more_is_not_told_any_more(controller, identity, scratch):
    await install_guard(controller, scratch)
    async with Node(identity, controller) as node:
        await node.subscribe("GROUP_CREATED")
        await tell(controller, "before")
        await eventually(lambda: node.subjects() == ["before"], state=node.subjects)
        await controller.call("DELETE", "/api/v1/modules/guard")
        await tell(controller, "after")
        forwarding = controller.app.role.term.node_modules._forwarding
        await eventually(lambda: [len(each) for each in forwarding._forwarders.values()] == [0])
        await install_guard(controller, scratch)
        await node.subscribe("GROUP_CREATED")
        await tell(controller, "again")
        await eventually(lambda: node.subjects()[-1:] == ["again"], state=node.subjects)
        assert node.subjects() == ["before", "again"]


@pytest.mark.trap("T91")
async def test_what_a_node_gets_again_is_redacted_and_narrowed_as_what_it_gets_at_once(
    controller, identity, scratch
):
    """A node that was away asks for what it missed: also by a cursor from before all of it, and for types it may not have."""
    await install_guard(controller, scratch)
    ledger, start = controller.app.role.term.ledger, controller.app.role.term.hub.head
    url = {"url": "https://bob:hunter2@files.example/server.jar"}
    line = {"line": "login hunter2", "group": "lobby", "node": "other"}
    await ledger.commit(
        made(EventType.INSTANCE_COMMAND, "lobby-1", line),
        made(EventType.CATALOG_UPDATED, "paper/1", url),
        made(EventType.TOKEN_CREATED, "tok-1", {"name": "hunter2"}),
    )
    await tell(controller, "a")
    async with Node(identity, controller) as node:
        place = EventCursor(epoch=start.epoch, sequence=start.sequence)
        asked = ["CATALOG_UPDATED", "GROUP_CREATED", "INSTANCE_COMMAND", "TOKEN_CREATED", "NODE_ONLINE"]
        await node.subscribe(*asked, after=place)
        await eventually(lambda: node.subjects() == ["paper/1", "a"], state=node.subjects)
        assert not [e for e in node.of("module_event") if b"hunter2" in e.payload_json]
        assert "INSTANCE_COMMAND" in node.of("error_report")[0].error_message
