"""The source of a new paired module: the controller keeps what the nodes apply."""

from __future__ import annotations

from typing import Final

_MANIFEST: Final = """\
manifestVersion: 1
id: ${id}
version: 0.1.0
title: ${title}
description: Greetings for groups, kept by the controller and given to instances on their nodes.
api: ">=1.0 <2"
hosts: [controller, daemon]
backend:
  controller:
    entrypoint: ${package}.controller:${name}
  daemon:
    entrypoint: ${package}.daemon:${name}OnNode
capabilities:
  provides:
    - {id: ${id}.greetings, version: 1.0.0}
  requires:
    # What the module itself provides and requires `from: controller` is how its parts talk. `optional`: the
    # part on a node runs while the controller is away, too.
    - {id: ${id}.greetings, versionRange: ^1.0, from: controller, optional: true}
storage:
  documents: true
events:
  subscribes: [${id}/GREETING_CHANGED]
  publishes: [GREETING_CHANGED]
"""

_CONTRACT: Final = '''\
"""What the part on the controller tells the parts on the nodes."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Greeting(msgspec.Struct):
    """How instances of a group are greeted; a document, and a value that travels."""

    group: str
    text: str


class Greetings(Protocol):
    """The capability ${id}.greetings."""

    async def all(self) -> list[Greeting]: ...
'''

_CONTROLLER: Final = '''\
"""${title}: the part on the controller keeps the greetings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from corral.sdk import CapabilityBinding, ModuleContext, PlatformModule, Request, Routes

from ${package}.contract import Greeting, Greetings


class NewGreeting(msgspec.Struct):
    """The body of PUT /greetings/{group}."""

    text: str


class ${name}(PlatformModule):
    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.kept = ctx.require_document_storage().collection("greetings", Greeting)

    def register_routes(self, routes: Routes) -> None:
        routes.get("/greetings", self.list_greetings, answer=list[Greeting], summary="All greetings.")
        routes.put("/greetings/{group}", self.greet, body=NewGreeting, summary="How to greet a group.")

    async def list_greetings(self, request: Request) -> list[Greeting]:
        return await self.all()

    async def greet(self, request: Request) -> Greeting:
        greeting = Greeting(group=request.parameters["group"], text=request.body.text)
        await self.kept.replace(greeting.group, greeting, upsert=True)
        await self.ctx.events.publish("GREETING_CHANGED", subject=greeting.group)
        return greeting

    def capability_handles(self) -> Sequence[CapabilityBinding[Any]]:
        return [CapabilityBinding("${id}.greetings", Greetings, lambda: self)]

    async def all(self) -> list[Greeting]:
        return [stored.value async for stored in self.kept.find()]
'''

_DAEMON: Final = '''\
"""${title}: the part on each node gives the greetings to what starts there."""

from __future__ import annotations

from corral.sdk import DaemonModule, Event, HostError, InstanceSpec, ModuleContext

from ${package}.contract import Greetings


class ${name}OnNode(DaemonModule):
    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.known: dict[str, str] = {}
        self.greetings = ctx.capabilities.require("${id}.greetings", Greetings, deadline=1.0)
        await ctx.events.subscribe("${id}/GREETING_CHANGED", self.follow)
        await self.learn()

    async def follow(self, event: Event) -> None:
        """A greeting changed, or events were missed (EVENTS_MISSED): both mean, read them all again."""
        await self.learn()

    async def learn(self) -> None:
        """What is known stays in force when the controller is away."""
        try:
            self.known = {each.group: each.text for each in await self.greetings.call.all()}
        except HostError as error:
            self.ctx.logger.info("going on with what is known: %s", error)

    async def on_instance_starting(self, spec: InstanceSpec) -> None:
        """Right before it is executed. `jvm_args`, `args` and `env` may be changed."""
        await self.learn()  # so that a greeting counts from the moment it was set
        spec.env["GREETING"] = self.known.get(spec.group, "Hello")
'''

_TEST: Final = '''\
"""Tests of ${id}. Run them with: corral module test"""

from __future__ import annotations

from ${package}.contract import Greeting, Greetings
from ${package}.controller import ${name}
from ${package}.daemon import ${name}OnNode

from corral.sdk import CapabilityBinding
from corral.testing.module_bench import ModuleBench
from corral.testing.module_house import ModuleHouse


class Told:
    """Stands for the controller's part."""

    async def all(self) -> list[Greeting]:
        return [Greeting(group="lobby", text="Welcome")]


async def test_the_controller_keeps_greetings_and_tells_of_changes() -> None:
    async with ModuleBench(${name}, manifest="module.yaml") as bench:
        await bench.start()
        await bench.request("PUT", "/greetings/lobby", json={"text": "Welcome"})
        answer = await bench.request("GET", "/greetings")
        assert answer.json(list[Greeting]) == [Greeting(group="lobby", text="Welcome")]
        assert [event.type for event in bench.published] == ["GREETING_CHANGED"]


async def test_a_node_gives_them_to_what_starts_there() -> None:
    told = CapabilityBinding("${id}.greetings", Greetings, Told)
    async with ModuleBench(
        ${name}OnNode, manifest="module.yaml", host="daemon", capabilities=[told]
    ) as bench:
        await bench.start()
        assert (await bench.node.starting("lobby-1", group="lobby")).env["GREETING"] == "Welcome"
        assert (await bench.node.starting("arena-1", group="arena")).env["GREETING"] == "Hello"


async def test_both_parts_work_together(house: ModuleHouse) -> None:
    """One archive on a real controller and a real node, around a real process."""
    await house.install()
    await house.wait_on_node("ACTIVE")
    await house.request("PUT", "/greetings/lobby", {"text": "Welcome"})
    instance = await house.start_instance("lobby", ["/bin/sh", "-c", "echo $$GREETING; exec sleep 60"])
    assert await house.wait_for_line(instance, "e") == "Welcome"
'''

PAIRED_FILES: Final = {
    "module.yaml": _MANIFEST,
    "${package}/contract.py": _CONTRACT,
    "${package}/controller.py": _CONTROLLER,
    "${package}/daemon.py": _DAEMON,
    "tests/test_module.py": _TEST,
}
