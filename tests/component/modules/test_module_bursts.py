"""An honest module that does much at once, with nothing but the SDK: slowed down perhaps, never punished."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from engine_bench import manifest
from real_engine import RealEngine

from corral.domain.modules.manifest import EventsPart, StoragePart
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.verbs import Verb
from corral.modules.scope import Scope
from corral.modules.services.host_operations import Operation
from corral.sdk.protocol.frames import MAX_CALLS_FROM_MODULE
from corral.sdk.protocol.messages import PUBLISH, ROUTE, CallerBody, Published, RouteAnswer, RouteRequest
from corral.sdk.protocol.storage_messages import INSERT, KV_INCREMENT, Incremented, Written
from corral.sdk.runner.workers import MAX_WORKERS
from corral.system.controller_config import ModulesSection
from corral.testing.waiting import eventually

_ANSWERS = {
    PUBLISH: Published(cursor="1"),
    INSERT: Written(ids=("a",), revision=1),
    KV_INCREMENT: Incremented(value=1),
}
_BURST = """
import asyncio, pathlib

class Demo(PlatformModule):
    async def on_start(self, ctx):
        self.begun = asyncio.create_task(self.all(ctx))

    async def all(self, ctx):
        documents = ctx.require_document_storage().collection("d", dict)
        keys = ctx.require_key_value_storage()
        one = {
            "publish": lambda: ctx.events.publish("X", {"i": "y" * 500}),
            "insert": lambda: documents.insert({"a": 1}),
            "increment": lambda: keys.increment("k"),
        }["KIND"]
        done = await asyncio.gather(*[one() for _ in range(COUNT)], return_exceptions=True)
        wrong = [each for each in done if isinstance(each, BaseException)]
        pathlib.Path("PLACE").write_text(f"{len(done)} done, wrong: {wrong[:3]}")
"""


_COUNT = 5000
_SLOWLY = 1000


class Host:
    """Answers the first calls two in a turn of the loop, once as many wait as may be, and takes long over the second, as
    under load: the module's next calls are there before the turn in which the earlier ones were answered is over."""

    def __init__(self) -> None:
        self.now = self.most = self.calls = 0
        self._waiting: list[asyncio.Future[None]] = []

    def operations(self) -> tuple[Operation, ...]:
        return tuple(Operation(method=method, body=dict, handler=self._answer(method)) for method in _ANSWERS)

    def _answer(self, method: str) -> Callable[[Scope, object], Awaitable[object]]:
        async def answer(_scope: Scope, _body: object) -> object:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
            if (number := self.calls) <= _SLOWLY:
                await self._turn()
                if number % 2 == 0:
                    time.sleep(0.001)  # on purpose: the turn is to be long
            self.now -= 1
            return _ANSWERS[method]

        return answer

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiting.append(turn := loop.create_future())
        if len(self._waiting) == MAX_CALLS_FROM_MODULE and self.calls == MAX_CALLS_FROM_MODULE:
            loop.call_soon(self._release)
        await turn

    def _release(self) -> None:
        for _ in range(min(2, len(self._waiting))):
            if not (turn := self._waiting.pop(0)).done():
                turn.set_result(None)
        if self._waiting or self.calls < _SLOWLY:
            asyncio.get_running_loop().call_soon(self._release)


@pytest.mark.parametrize("kind", ["publish", "insert", "increment"])
async def test_thousands_of_calls_at_once_through_the_sdk_are_all_answered(tmp_path: Path, kind: str) -> None:
    """From a task that begins in `on_start`: the calls are under way while the host asks for registrations."""
    said, host = tmp_path / "said", Host()
    code = _BURST.replace("KIND", kind).replace("COUNT", str(_COUNT)).replace("PLACE", str(said))
    declared = msgspec.structs.replace(
        manifest("burst", hook_deadline_ms=20_000),
        storage=StoragePart(documents=True, key_value=True),
        events=EventsPart(publishes=("X",)),
    )
    async with RealEngine(tmp_path, operations=host.operations()) as bench:
        record = await bench.install(declared, code)
        assert (record.phase, record.reason) == (ModulePhase.ACTIVE, "")
        (process,) = bench.house.processes.values()
        await eventually(lambda: said.exists() and said.read_text(), state=lambda: bench.record("burst"))
        assert said.read_text() == f"{_COUNT} done, wrong: []"
        assert list(bench.house.processes.values()) == [process]
    assert host.most <= MAX_CALLS_FROM_MODULE


_BLOCKED = """
import asyncio, pathlib, threading

class Demo(PlatformModule):
    def on_start(self, ctx):
        self.gate = threading.Event()

    def register_routes(self, routes):
        routes.get("/block", self.block)

    def block(self, request):
        self.gate.wait()

    def health_check(self):
        pathlib.Path("PLACE").write_text("asked")
        return Health(healthy=True)

    def on_stop(self, ctx):
        self.gate.set()
"""


async def test_plain_functions_that_block_keep_neither_the_health_check_nor_a_hook_from_its_turn(
    tmp_path: Path,
) -> None:
    asked = tmp_path / "asked"
    config = ModulesSection(leak_grace_seconds=2, health_check_seconds=0.2)
    async with RealEngine(tmp_path, config=config) as bench:
        await bench.install(manifest("blocked"), _BLOCKED.replace("PLACE", str(asked)))
        (process,) = bench.house.processes.values()
        request = RouteRequest(
            method="GET", route=1, path="/block", caller=CallerBody(name="a", role="ADMIN")
        )
        blocked = [
            asyncio.ensure_future(process.call(ROUTE, request, answer=RouteAnswer, deadline=60.0))
            for _ in range(MAX_WORKERS + 4)
        ]
        await eventually(lambda: (found := process.sample()) is not None and found.threads > MAX_WORKERS)
        asked.unlink(missing_ok=True)
        await eventually(asked.exists, state=lambda: bench.record("blocked"))
        stopped = await bench.engine.act("blocked", Verb.DEACTIVATE)
        assert (stopped.phase, stopped.reason) == (ModulePhase.INSTALLED, "deactivated")
        await asyncio.gather(*blocked, return_exceptions=True)
