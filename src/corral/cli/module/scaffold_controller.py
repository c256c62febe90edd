"""The source of a new module on the controller: routes, documents, an event, a setting."""

from __future__ import annotations

from typing import Final

_MANIFEST: Final = """\
manifestVersion: 1
id: ${id}
version: 0.1.0
title: ${title}
description: Counts who was greeted, and says hello.
api: ">=1.0 <2"
hosts: [controller]
backend:
  controller:
    entrypoint: ${package}.module:${name}
storage:
  documents: true
events:
  subscribes: [INSTANCE_RUNNING]
config:
  type: object
  properties:
    greeting: {type: string, default: Hello, maxLength: 100}
  additionalProperties: false
"""

_MODULE: Final = '''\
"""${title}: the controller side."""

from __future__ import annotations

import msgspec

from corral.sdk import Event, ModuleContext, PlatformModule, Request, Routes


class Guest(msgspec.Struct):
    """How often somebody was greeted; a document."""

    name: str
    visits: int = 0


class Greeting(msgspec.Struct):
    """The answer of GET /hello/{name}."""

    text: str
    visits: int


class ${name}(PlatformModule):
    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.guests = ctx.require_document_storage().collection("guests", Guest)
        await ctx.events.subscribe("INSTANCE_RUNNING", self.greet_instance)

    async def on_reload(self, ctx: ModuleContext) -> None:
        ctx.logger.info("the greeting is now %s", ctx.config["greeting"])

    def register_routes(self, routes: Routes) -> None:
        routes.get("/hello/{name}", self.hello, answer=Greeting, summary="Say hello, and count it.")

    async def hello(self, request: Request) -> Greeting:
        name = request.parameters["name"]
        await self.guests.update(name, upsert=True, set={"name": name}, inc={"visits": 1})
        guest = await self.guests.get(name)
        visits = guest.value.visits if guest else 0
        return Greeting(text=f"{self.ctx.config['greeting']}, {name}!", visits=visits)

    async def greet_instance(self, event: Event) -> None:
        self.ctx.logger.info("%s, %s!", self.ctx.config["greeting"], event.subject)
'''

_TEST: Final = '''\
"""Tests of ${id}. Run them with: corral module test"""

from __future__ import annotations

from ${package}.module import Greeting, ${name}

from corral.testing.module_bench import ModuleBench
from corral.testing.module_house import ModuleHouse


async def test_it_counts_visits() -> None:
    """Only the class, behind the messages it will really see: quick."""
    async with ModuleBench(${name}, manifest="module.yaml") as bench:
        await bench.start()
        await bench.request("GET", "/hello/Ada")
        again = await bench.request("GET", "/hello/Ada")
        assert again.json(Greeting) == Greeting(text="Hello, Ada!", visits=2)


async def test_it_runs_in_a_controller(house: ModuleHouse) -> None:
    """The archive in a real controller, in a process of its own."""
    module = await house.install()
    assert module["phase"] == "ACTIVE"
    answer = await house.request("GET", "/hello/Grace")
    assert answer == {"text": "Hello, Grace!", "visits": 1}
    await house.configure({"greeting": "Welcome"})
    assert (await house.request("GET", "/hello/Grace"))["text"] == "Welcome, Grace!"
'''

FILES: Final = {
    "module.yaml": _MANIFEST,
    "${package}/module.py": _MODULE,
    "tests/test_module.py": _TEST,
}
