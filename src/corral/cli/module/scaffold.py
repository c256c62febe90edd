"""The source of a new module, which builds, passes its tests and can be installed."""

from __future__ import annotations

import keyword
import pathlib
import string
from collections.abc import Mapping
from typing import Final

from corral.cli.module.paired_scaffold import PAIRED_FILES
from corral.errors import Code, Rejected
from corral.modules.archive.archive_builder import NOT_PACKED, SOURCES
from corral.modules.manifest.manifest_checks import FOUND_FIRST, ID, ID_RULE
from corral.modules.manifest.manifest_reader import read_manifest

_CONTROLLER_MANIFEST: Final = """\
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

_CONTROLLER_MODULE: Final = '''\
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

_CONTROLLER_TEST: Final = '''\
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

CONTROLLER_FILES: Final = {
    "module.yaml": _CONTROLLER_MANIFEST,
    "${package}/module.py": _CONTROLLER_MODULE,
    "tests/test_module.py": _CONTROLLER_TEST,
}


_DAEMON_MANIFEST: Final = """\
manifestVersion: 1
id: ${id}
version: 0.1.0
title: ${title}
description: Gives every instance a greeting, and counts how they end.
api: ">=1.0 <2"
hosts: [daemon]
backend:
  daemon:
    entrypoint: ${package}.module:${name}
config:
  type: object
  properties:
    greeting: {type: string, default: Hello, maxLength: 100}
  additionalProperties: false
"""

_DAEMON_MODULE: Final = '''\
"""${title}: runs on every node."""

from __future__ import annotations

from corral.sdk import DaemonModule, ExitInfo, InstanceHandle, InstanceSpec, ModuleContext


class ${name}(DaemonModule):
    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.ended = ctx.metrics.counter("instances_ended", "Instances that ended, by group")

    async def on_instance_starting(self, spec: InstanceSpec) -> None:
        """Right before it is executed. `jvm_args`, `args` and `env` may be changed."""
        spec.env["GREETING"] = f"{self.ctx.config['greeting']}, {spec.instance_id}!"

    async def on_instance_started(self, handle: InstanceHandle) -> None:
        """It has a process; `adopted`: it ran before this module did."""
        self.ctx.logger.info("%s runs as process %d", handle.instance_id, handle.pid)

    async def on_instance_stopped(self, handle: InstanceHandle, exit: ExitInfo) -> None:
        """Told of every end, also of those that nobody was there to see."""
        self.ended.increase(group=handle.group, crashed="yes" if exit.crashed else "no")
'''

_DAEMON_TEST: Final = '''\
"""Tests of ${id}. Run them with: corral module test"""

from __future__ import annotations

from ${package}.module import ${name}

from corral.testing.module_bench import ModuleBench
from corral.testing.module_house import ModuleHouse


async def test_an_instance_is_greeted() -> None:
    """Only the class, behind the messages it will really see: quick."""
    async with ModuleBench(${name}, manifest="module.yaml", host="daemon") as bench:
        await bench.start()
        spec = await bench.node.starting("lobby-1", group="lobby")
        assert spec.env["GREETING"] == "Hello, lobby-1!"


async def test_it_runs_on_a_node(house: ModuleHouse) -> None:
    """The archive on a real node, around a real process."""
    await house.install()
    await house.wait_on_node("ACTIVE")
    instance = await house.start_instance("lobby", ["/bin/sh", "-c", "echo $$GREETING; exec sleep 60"])
    assert await house.wait_for_line(instance, "Hello") == f"Hello, {instance['id']}!"
'''

DAEMON_FILES: Final = {
    "module.yaml": _DAEMON_MANIFEST,
    "${package}/module.py": _DAEMON_MODULE,
    "tests/test_module.py": _DAEMON_TEST,
}


FILES: Final[Mapping[str, Mapping[str, str]]] = {
    "controller": CONTROLLER_FILES,
    "daemon": DAEMON_FILES,
    "both": PAIRED_FILES,
}
"""By where the module runs."""

_README: Final = """\
# ${title}

    corral module test .        # run its tests
    corral module build .       # dist/${id}-0.1.0.cmod
    corral module install dist/${id}-0.1.0.cmod
"""

_IGNORED: Final = "dist/\n__pycache__/\n.pytest_cache/\n*.key\n"


def _package(id: str) -> str:
    """Named like the module, unless such a package could not be built or imported."""
    package = id.replace("-", "_")
    unusable = {*FOUND_FIRST, *NOT_PACKED, SOURCES, *keyword.kwlist}
    return f"{package}_module" if package in unusable else package


def write_scaffold(id: str, target: pathlib.Path, *, host: str = "controller") -> list[pathlib.Path]:
    """Write the files of a new module into a directory that is not there yet, or is empty. `host` is one of
    `FILES`."""
    if not ID.fullmatch(id):
        raise Rejected(Code.INVALID_FIELD, f"{id[:80]!r} is not a module id", hint=ID_RULE, field="id")
    package = _package(id)
    name = "".join(part.capitalize() for part in id.split("-"))
    title = " ".join(part.capitalize() for part in id.split("-"))
    values = {"id": id, "package": package, "name": name, "title": title}
    files = {
        **FILES[host],
        "${package}/__init__.py": '"""${title}."""\n',
        "README.md": _README,
        ".gitignore": _IGNORED,
    }
    texts = {_filled(path, values): _filled(text, values) for path, text in files.items()}
    read_manifest(
        texts["module.yaml"], name="module.yaml"
    )  # refuses a reserved id before anything is written
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Rejected(
            Code.ALREADY_EXISTS, f"{target} is there already", hint="choose another place with --into DIR"
        )
    for path, text in texts.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text, "utf-8")
    return [target / path for path in texts]


def _filled(text: str, values: Mapping[str, str]) -> str:
    return string.Template(text).substitute(values)
