"""The engine with real module processes: everything that the stand-ins promise, once for real."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engine_bench import manifest as declared
from real_engine import RealEngine, packed

from corral.domain.modules.manifest import Manifest
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.verbs import Verb
from corral.errors import Code, CorralError
from corral.modules.lifecycle.upgrade import UpgradeFailed
from corral.modules.process.zygote_deaths import MENDED
from corral.modules.scope import Scope
from corral.modules.services.host_operations import Operation
from corral.sdk.protocol.messages import (
    COMMAND,
    PUBLISH,
    ROUTE,
    CallerBody,
    CapabilityRequest,
    CommandAnswer,
    CommandRequest,
    Nothing,
    RouteAnswer,
    RouteRequest,
)
from corral.system.controller_config import ModulesSection
from corral.testing.waiting import eventually

PATIENT = 20_000
"""Milliseconds for a hook: no test here is about how fast a busy machine is."""


def manifest(id: str, version: str = "1.0.0", *, hook_deadline_ms: int = PATIENT, **more: Any) -> Manifest:
    return declared(id, version, hook_deadline_ms=hook_deadline_ms, **more)


CALLER = CallerBody(name="test", role="admin")

CONTRACT = """
from typing import Protocol

class Greeting(Protocol):
    async def greet(self, name: str) -> str: ...
"""

PROVIDER = (
    CONTRACT
    + """
class Impl:
    async def greet(self, name: str) -> str:
        return f"hello {name} from VERSION"

class Demo(PlatformModule):
    def capability_handles(self):
        return [CapabilityBinding("demo.greeting", Greeting, Impl)]
"""
)

CONSUMER = (
    CONTRACT
    + """
class Demo(PlatformModule):
    async def on_load(self, ctx):
        self.greeting = ctx.capabilities.require("demo.greeting", Greeting)

    async def on_start(self, ctx):
        self.first = await self.greeting.call.greet("start")

    def register_routes(self, routes):
        async def greet(request):
            return {"said": await self.greeting.call.greet("you"), "first": self.first}
        routes.get("/greet", greet)

    def register_commands(self, commands):
        commands.add("greet all", lambda call: ["hello", "all"])
"""
)


async def routed(bench: RealEngine, module: str, path: str) -> Any:
    match = bench.engine.routes.find(module, "GET", path)
    request = RouteRequest(route=match.declaration.number, method="GET", path=path, caller=CALLER)
    answer = await match.scope.call(f"route:GET {path}", ROUTE, request, answer=RouteAnswer, deadline=5)
    assert answer.status == 200
    return msgspec.json.decode(answer.body)


async def greet(bench: RealEngine) -> str:
    request = CapabilityRequest(capability="demo.greeting", method="greet", arguments=packed(name="host"))
    answer = await bench.engine.capabilities.call(None, request)
    return msgspec.msgpack.decode(answer.value, type=str)


@pytest.mark.trap("T6")
async def test_a_consumer_waits_for_its_provider_and_calls_it(tmp_path: Path) -> None:
    async with RealEngine(tmp_path) as bench:
        record = await bench.install(manifest("user", requires={"demo.greeting": "^1.0"}), CONSUMER)
        assert (record.phase, record.reason) == (ModulePhase.WAITING, "waiting_for_capability:demo.greeting")
        await bench.install(manifest("base", provides={"demo.greeting": "1.0.0"}), PROVIDER)
        await bench.until("user", ModulePhase.ACTIVE)
        answer = await routed(bench, "user", "/greet")
        assert answer == {"said": "hello you from VERSION", "first": "hello start from VERSION"}
        match = bench.engine.commands.find(["greet", "all"])
        said = await match.scope.call(
            "command:greet all",
            COMMAND,
            CommandRequest(command=match.declaration.number, caller=CALLER),
            answer=CommandAnswer,
            deadline=5,
        )
        assert said.lines == ("hello", "all")
        live = bench.engine.live("user")
        assert live is not None
        assert {kind for kind, _ in live.registrations} == {"route", "command"}
        assert (await bench.engine.health("user")).healthy


async def test_a_killed_provider_comes_back_and_so_does_its_consumer(tmp_path: Path) -> None:
    async with RealEngine(tmp_path) as bench:
        await bench.install(manifest("base", provides={"demo.greeting": "1.0.0"}), PROVIDER)
        await bench.install(manifest("user", requires={"demo.greeting": "^1.0"}), CONSUMER)
        live = bench.engine.live("base")
        user = bench.engine.live("user")
        assert live is not None
        assert user is not None
        os.kill(live.pid, signal.SIGKILL)
        await eventually(
            lambda: "process_died:SIGKILL" in [step.reason for step in bench.record("base").history]
        )
        await bench.until("base", ModulePhase.ACTIVE)
        await eventually(lambda: len(bench.record("user").history) >= 7)
        await bench.until("user", ModulePhase.ACTIVE)
        after = bench.engine.live("user")
        assert after is not None
        assert after.pid == user.pid
        assert (await routed(bench, "user", "/greet"))["said"] == "hello you from VERSION"


async def test_a_zygote_that_dies_a_few_times_is_held_against_no_module(tmp_path: Path) -> None:
    async with RealEngine(tmp_path, hold=0.0) as bench:
        await bench.install(manifest("base", provides={"demo.greeting": "1.0.0"}), PROVIDER)
        for count in range(1, MENDED + 1):
            zygote = bench.house.zygote_pid
            assert zygote is not None
            os.kill(zygote, signal.SIGKILL)
            await eventually(lambda n=count: _reasons(bench).count("zygote_lost") >= n)
            await bench.until("base", ModulePhase.ACTIVE)
        assert "process_died:SIGKILL" not in _reasons(bench)


def _reasons(bench: RealEngine) -> list[str]:
    """Of the steps in which a module's process was lost; each is followed by others."""
    story = bench.record("base").history
    return [step.reason for step in story if step.to_phase is ModulePhase.STOPPING]


@pytest.mark.trap("T7")
async def test_a_failed_upgrade_leaves_the_old_version_serving(tmp_path: Path) -> None:
    async with RealEngine(tmp_path) as bench:
        await bench.install(manifest("base", provides={"demo.greeting": "1.0.0"}), PROVIDER)
        await bench.install(manifest("user", requires={"demo.greeting": "^1.0"}), CONSUMER)
        steps = bench.record("user").history
        bad = (
            PROVIDER
            + """
    async def on_start(self, ctx):
        ctx.logger.error("about to break")
        raise RuntimeError("broken on purpose")
"""
        )
        record = bench.written(manifest("base", "1.1.0", provides={"demo.greeting": "1.1.0"}), bad)
        with pytest.raises(UpgradeFailed) as failed:
            await bench.engine.upgrade(record)
        assert "broken on purpose" in str(failed.value)
        assert bench.record("base").version == "1.0.0"
        assert bench.record("base").phase is ModulePhase.ACTIVE
        assert await greet(bench) == "hello host from VERSION"
        assert bench.record("user").history == steps
        await eventually(lambda: len(bench.house.processes) == 2)
        good = PROVIDER.replace("VERSION", "the next one")
        record = bench.written(manifest("base", "1.2.0", provides={"demo.greeting": "1.2.0"}), good)
        story = await bench.engine.upgrade(record)
        assert story.record.version == "1.2.0"
        assert (await routed(bench, "user", "/greet"))["said"] == "hello you from the next one"
        assert bench.record("user").history == steps
        await eventually(lambda: len(bench.house.processes) == 2)


HARMFUL = [
    ("import nowhere_to_be_found", "import_failed"),
    ("class Demo(PlatformModule):\n    def __init__(self):\n        raise ValueError('no')", "construct_failed"),
    (
        "class Demo(PlatformModule):\n    async def on_load(self, ctx):\n        raise ValueError('no')",
        "hook_failed:on_load",
    ),
    (
        "import os\nclass Demo(PlatformModule):\n    async def on_load(self, ctx):\n        os._exit(3)",
        "process_exited:3",
    ),
    (
        "class Demo(PlatformModule):\n    def on_start(self, ctx):\n        while True: pass",
        "hook_overrun:on_start",
    ),
    (
        "class Demo(PlatformModule):\n    def on_start(self, ctx):\n        self.x = ['a' * 1000000 for _ in range(10000000)]",
        "memory_limit",
    ),
]  # fmt: skip


async def test_what_a_module_does_to_itself_ends_in_failed_with_its_reason(tmp_path: Path) -> None:
    async with RealEngine(tmp_path) as bench:
        for number, (code, reason) in enumerate(HARMFUL):
            deadline = 1000 if "while True" in code else PATIENT
            record = await bench.install(manifest(f"bad-{number}", hook_deadline_ms=deadline), code)
            assert (record.phase, record.reason) == (ModulePhase.FAILED, reason)
            assert record.failure is not None
            assert record.failure.message
            await eventually(lambda: len(bench.house.processes) == 0)


async def test_a_syntax_error_is_told_with_the_line_of_its_author(tmp_path: Path) -> None:
    async with RealEngine(tmp_path) as bench:
        record = await bench.install(manifest("bad"), "x = 1\ndef (:\n")
        assert record.failure is not None
        *_, (path, line) = re.findall(r'File "([^"]+)", line ([0-9]+)', record.failure.traceback)
        assert Path(path).read_text().splitlines()[int(line) - 1] == "def (:"
        assert "CallRefused" not in record.failure.traceback


async def test_the_story_of_a_failure_has_the_last_log_lines_and_the_traceback(tmp_path: Path) -> None:
    async with RealEngine(tmp_path) as bench:
        record = await bench.install(
            manifest("bad"),
            """
            class Demo(PlatformModule):
                async def on_start(self, ctx):
                    ctx.logger.warning("the tank is empty")
                    raise RuntimeError("no fuel")
            """,
        )
        assert record.failure is not None
        assert "RuntimeError: no fuel" in record.failure.message
        assert "on_start" in record.failure.traceback
        assert [line for line in record.failure.log if "the tank is empty" in line] == [
            "WARNING the tank is empty"
        ]
        assert record.failure.memory_bytes > 0


async def test_an_archive_that_is_gone_fails_the_module_with_that_reason(tmp_path: Path) -> None:
    async with RealEngine(tmp_path) as bench:
        record = bench.written(manifest("a"), "class Demo(PlatformModule): pass")
        record = msgspec.structs.replace(record, sha256="gone")
        record = await bench.engine.install(record)
        assert (record.phase, record.reason) == (ModulePhase.FAILED, "archive_missing")


async def test_settings_are_reloaded_in_the_running_process(tmp_path: Path) -> None:
    async with RealEngine(tmp_path) as bench:
        await bench.install(
            manifest("a"),
            """
            class Demo(PlatformModule):
                async def on_load(self, ctx):
                    self.ctx = ctx
                async def on_reload(self, ctx):
                    if ctx.config.get("bad"):
                        raise ValueError("bad")
                def register_routes(self, routes):
                    routes.get("/now", lambda request: dict(self.ctx.config))
            """,
        )
        live = bench.engine.live("a")
        await bench.engine.act("a", Verb.RELOAD, settings={"x": 1})
        assert await routed(bench, "a", "/now") == {"x": 1}
        with pytest.raises(CorralError) as refused:
            await bench.engine.act("a", Verb.RELOAD, settings={"bad": True})
        assert refused.value.code is Code.MODULE_FAILED
        assert await routed(bench, "a", "/now") == {"x": 1}
        after = bench.engine.live("a")
        assert live is not None
        assert after is not None
        assert live.pid == after.pid


async def test_after_an_uninstall_nothing_is_left(tmp_path: Path) -> None:
    async with RealEngine(tmp_path) as bench:
        await bench.install(manifest("base", provides={"demo.greeting": "1.0.0"}), PROVIDER)
        await bench.engine.act("base", Verb.UNINSTALL)
        assert len(bench.house.processes) == 0
        assert bench.engine.capabilities.all() == []
        assert bench.engine.live("base") is None


RESTLESS = """
import asyncio, os, pathlib, threading, time

class Demo(PlatformModule):
    def note(self, what):
        with open(PLACE / "hooks", "a") as file:
            file.write(f"{what} {os.getpid()}\\n")

    async def on_load(self, ctx):
        self.note("on_load")
        threading.Thread(target=self.spin, daemon=True).start()
        self.task = asyncio.create_task(self.ask(ctx))

    async def on_unload(self, ctx):
        self.note("on_unload")

    def spin(self):
        while True:
            (PLACE / "beat").write_text(str(time.monotonic()))
            time.sleep(0.01)

    async def ask(self, ctx):
        while True:
            try:
                await ctx.events.publish("DEMO/BEAT", {})
            except Exception as error:
                (PLACE / "refused").write_text(str(error))
            await asyncio.sleep(0.01)
"""


@pytest.mark.trap("T80")
@pytest.mark.parametrize("verb", [Verb.DEACTIVATE, Verb.PAUSE])
async def test_what_is_held_back_has_no_process_and_is_answered_nothing(tmp_path: Path, verb: Verb) -> None:
    answered: list[bool] = []

    async def publish(scope: Scope, body: object) -> object:
        answered.append(scope.closed)
        return Nothing()

    operation = Operation(method=PUBLISH, body=dict, handler=publish)
    async with RealEngine(tmp_path, operations=(operation,)) as bench:
        code = f"import pathlib\nPLACE = pathlib.Path({str(tmp_path)!r})\n" + RESTLESS
        await bench.install(manifest("restless"), code)
        await eventually(lambda: answered and (tmp_path / "beat").exists())
        (process,) = bench.house.processes.values()
        record = await bench.engine.act("restless", verb, reason="it burns CPU")
        assert record.phase is ModulePhase.INSTALLED
        assert bench.engine.live("restless") is None
        assert not Path(f"/proc/{process.pid}").exists()
        assert True not in answered
        count = len(answered)
        assert len(answered) == count
        lets_run = Verb.ACTIVATE if verb is Verb.DEACTIVATE else Verb.RESUME
        assert (await bench.engine.act("restless", lets_run)).phase is ModulePhase.ACTIVE
        (again,) = bench.house.processes.values()
        noted = (tmp_path / "hooks").read_text().split("\n")[:3]
        assert noted == [f"on_load {process.pid}", f"on_unload {process.pid}", f"on_load {again.pid}"]


SPINNING = """
import asyncio

class Demo(PlatformModule):
    async def on_start(self, ctx):
        asyncio.get_running_loop().call_later(0.5, self.spin)

    def spin(self):
        while True:
            pass
"""


@pytest.mark.system
async def test_a_module_that_spins_with_nobody_calling_it_is_failed(tmp_path: Path) -> None:
    config = ModulesSection(leak_grace_seconds=0.3, health_check_seconds=0.2)
    async with RealEngine(tmp_path, config=config) as bench:
        await bench.install(manifest("spinning", hook_deadline_ms=1000), SPINNING)
        record = await bench.until("spinning", ModulePhase.FAILED)
        assert record.reason == "hook_overrun:health_check"
        assert record.failure is not None
        await eventually(lambda: not bench.house.processes)


KILLER = """
import asyncio, os

class Demo(PlatformModule):
    async def on_start(self, ctx):
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getppid(), 9)
"""
PLAIN = "class Demo(PlatformModule):\n    pass\n"


@pytest.mark.system
@pytest.mark.trap("T84")
async def test_who_kills_the_zygote_again_and_again_fails_and_its_neighbours_do_not(tmp_path: Path) -> None:
    async with RealEngine(tmp_path, hold=3.0) as bench:
        for id in ("before", "neighbour"):
            await bench.install(manifest(id), PLAIN)
        await bench.install(manifest("killer"), KILLER)
        record = await bench.until("killer", ModulePhase.FAILED)
        assert record.reason == "zygote_lost"
        assert record.failure is not None
        assert "again and again" in record.failure.message
        for id in ("before", "neighbour"):
            innocent = await bench.until(id, ModulePhase.ACTIVE)
            assert ModulePhase.FAILED not in {step.to_phase for step in innocent.history}


WAITING = """
import asyncio, pathlib

class Demo(PlatformModule):
    async def HOOK(self, ctx):
        PLACE.joinpath("begun").touch()
        while not PLACE.joinpath("go").exists():
            await asyncio.sleep(0.01)
"""


@pytest.mark.trap("T84")
@pytest.mark.parametrize("hook", ["on_load", "on_start", "import"])
async def test_a_zygote_lost_while_a_module_starts_is_a_retry(tmp_path: Path, hook: str) -> None:
    async with RealEngine(tmp_path) as bench:
        code = f"import pathlib\nPLACE = pathlib.Path({str(tmp_path)!r})\n"
        if hook == "import":
            code += "import time\nPLACE.joinpath('begun').touch()\n"
            code += "while not PLACE.joinpath('go').exists(): time.sleep(0.01)\n" + PLAIN
        else:
            code += WAITING.replace("HOOK", hook)
        installing = asyncio.ensure_future(bench.install(manifest("slow"), code))
        await eventually((tmp_path / "begun").exists)
        zygote = bench.house.zygote_pid
        assert zygote is not None
        os.kill(zygote, signal.SIGKILL)
        record = await installing
        assert record.phase is not ModulePhase.FAILED
        (tmp_path / "go").touch()
        record = await bench.until("slow", ModulePhase.ACTIVE)
        assert ModulePhase.FAILED not in {step.to_phase for step in record.history}


@pytest.mark.trap("T84")
@pytest.mark.parametrize("rollback", [True, False])
async def test_a_zygote_lost_in_an_upgrade_leaves_the_old_version_to_come_back(
    tmp_path: Path, rollback: bool
) -> None:
    async with RealEngine(tmp_path) as bench:
        await bench.install(manifest("slow"), PLAIN)
        code = f"import pathlib\nPLACE = pathlib.Path({str(tmp_path)!r})\n" + WAITING.replace(
            "HOOK", "on_start"
        )
        record = bench.written(manifest("slow", "2.0.0"), code)
        upgrading = asyncio.ensure_future(bench.engine.upgrade(record, rollback=rollback))
        await eventually((tmp_path / "begun").exists)
        zygote = bench.house.zygote_pid
        assert zygote is not None
        os.kill(zygote, signal.SIGKILL)
        with pytest.raises(UpgradeFailed) as failed:
            await upgrading
        assert (failed.value.reason, failed.value.blameless) == ("zygote_lost", True)
        assert (await bench.until("slow", ModulePhase.ACTIVE)).version == "1.0.0"
