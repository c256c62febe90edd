"""Things asked of one module at once: each begins from what the one before it left."""

from __future__ import annotations

import asyncio
import pathlib

import pytest
from module_steps import OPERATOR, events_of, install, modules_of
from small_modules import archive

from corral.controller.modules.installer import InstallOutcome
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.verbs import Verb
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.waiting import eventually

GATED = """
import asyncio, pathlib
from corral.sdk import PlatformModule

class Module(PlatformModule):
    async def pass_gate(self, ctx, name):
        gate = pathlib.Path(ctx.config["gates"]) / name
        if gate.exists():
            gate.with_suffix(".reached").touch()
            while gate.exists():
                await asyncio.sleep(0.01)

    async def on_reload(self, ctx):
        await self.pass_gate(ctx, "on_reload")

    async def on_stop(self, ctx):
        await self.pass_gate(ctx, "on_stop")
"""


class Gate:
    def __init__(self, directory: pathlib.Path, hook: str) -> None:
        self._path = directory / hook
        self._path.touch()

    async def reached(self) -> None:
        await eventually(self._path.with_suffix(".reached").exists)

    def open(self) -> None:
        self._path.unlink()


@pytest.fixture
async def controller(cluster: LocalCluster) -> LocalController:
    return await cluster.controller()


def gated(scratch: pathlib.Path, version: str = "1.0.0") -> pathlib.Path:
    schema = {
        "type": "object",
        "properties": {
            "gates": {"type": "string", "default": str(scratch)},
            "word": {"type": "string", "default": "hello"},
        },
    }
    return archive(scratch / "archives", version=version, source=GATED, hook_ms=30_000, config=schema)


@pytest.mark.parametrize("verb", ["reload", "install"])
async def test_settings_that_are_being_changed_are_not_taken_back_by_what_is_asked_meanwhile(
    controller: LocalController, scratch: pathlib.Path, verb: str
) -> None:
    modules = modules_of(controller)
    await install(controller, gated(scratch))
    gate = Gate(scratch, "on_reload")
    first = asyncio.create_task(
        modules.act("small", Verb.CONFIGURE, settings={"word": "bye"}, actor=OPERATOR)
    )
    await gate.reached()
    if verb == "reload":
        second = asyncio.create_task(modules.act("small", Verb.RELOAD, actor=OPERATOR))
    else:
        second = asyncio.create_task(install(controller, gated(scratch, "1.1.0")))
    await eventually(lambda: modules._packages._turns.users("small") == 2)
    gate.open()
    await asyncio.gather(first, second)
    assert modules.find("small").settings["word"] == "bye"
    told = [event for event in await events_of(controller, about="small") if "changed" in event.data]
    assert [event.data["changed"] for event in told] == [["word"]]


async def test_an_install_that_comes_during_the_uninstall_installs(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    modules = modules_of(controller)
    await install(controller, gated(scratch))
    gate = Gate(scratch, "on_stop")
    leaving = asyncio.create_task(modules.act("small", Verb.UNINSTALL, actor=OPERATOR))
    await gate.reached()
    coming = asyncio.create_task(install(controller, gated(scratch, "1.1.0")))
    await eventually(lambda: modules._packages._turns.users("small") == 2)
    gate.open()
    await leaving
    answer = await coming
    assert (answer.outcome, answer.record.phase) == (InstallOutcome.INSTALLED, ModulePhase.ACTIVE)
