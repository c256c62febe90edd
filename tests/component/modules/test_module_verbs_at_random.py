"""Verbs, deaths, broken hooks and a store that fails, in any order: the story is always the table's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from engine_bench import EngineBench, manifest, package, serving
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stand_in_house import Script, StandInProcess

from corral.domain.events import EventType
from corral.domain.modules.lifecycle_decisions import check_verb
from corral.domain.modules.phases import MODULE_LIFECYCLE, ModuleIntent, ModulePhase
from corral.domain.modules.records import event_of
from corral.domain.modules.verbs import Verb
from corral.errors import Code, CorralError, IllegalTransition
from corral.testing.waiting import eventually

NO_STEPS = {
    EventType.MODULE_CONFIGURED,
    EventType.MODULE_UPGRADED,
    EventType.MODULE_UPGRADE_ROLLED_BACK,
}
"""Told beside the steps of the table."""
MODULES = {
    "base": manifest("base", provides={"x": "1.0.0"}),
    "user": manifest("user", requires={"x": "*"}),
}
VERBS = [verb.value for verb in Verb]
EVENTS = ["install", "upgrade", "die", "break", "mend", "unplug"]
STEPS = {(source, target) for (source, _), target in MODULE_LIFECYCLE.transitions.items()}


async def raising(process: StandInProcess, values: dict[str, Any]) -> None:
    raise ValueError("broken")


class World:
    def __init__(self, bench: EngineBench) -> None:
        self.bench = bench
        self.version = 1
        self.broken: dict[str, str] = {}

    async def do(self, action: str, id: str, hook: str) -> None:
        record = self.bench.book.find(id)
        if action in VERBS:
            await self._verb(action, id)
        elif action == "install" and record is None:
            await self._allowing(self.bench.install(package(MODULES[id]), self._script(id)))
        elif action == "upgrade" and record is not None:
            self.version += 1
            provides = {"x": f"1.{self.version}.0"} if id == "base" else {}
            requires = {"x": "*"} if id == "user" else {}
            declared = manifest(id, f"1.{self.version}.0", provides=provides, requires=requires)
            new = package(declared)
            self.bench.house.scripts[new.sha256] = self._script(id)
            await self._allowing(self.bench.engine.upgrade(new), Code.MODULE_UPGRADE_FAILED, Code.NOT_FOUND)
        elif action == "die":
            for process in [process for process in self.bench.house.alive() if process.module_id == id]:
                process.die()
        elif action in ("break", "mend"):
            self.broken[id] = hook if action == "break" else ""
            for script in self.bench.house.scripts.values():
                script.does = {hook: raising} if action == "break" else {}
        elif action == "unplug":
            self.bench.book.fail_next(1)

    def _script(self, id: str) -> Script:
        script = serving(id)
        if self.broken.get(id):
            script.does[self.broken[id]] = raising
        return script

    async def _verb(self, verb: str, id: str) -> None:
        await self._allowing(
            self.bench.engine.act(id, Verb(verb), reason="why"), Code.NOT_FOUND, Code.ILLEGAL_TRANSITION
        )

    async def _allowing(self, asked: Awaitable[object], *codes: Code) -> None:
        try:
            await asked
        except CorralError as error:
            if error.code not in (*codes, Code.STORE_UNAVAILABLE):
                raise

    async def settle(self) -> None:
        self.bench.book.fail_next(0)
        await eventually(self._settled, state=self._state, deadline=10)

    def _settled(self) -> bool:
        """What is stored, what runs and what is bound say the same."""
        return all(self._consistent(id) for id in MODULES)

    def _consistent(self, id: str) -> bool:
        record = self.bench.book.find(id)
        live = [process for process in self.bench.house.alive() if process.module_id == id]
        bound = id == "base" and "x" in self.bench.engine.capabilities.provided()
        if record is None or record.phase is ModulePhase.FAILED:
            return not live and not bound
        wanted = record.intent is ModuleIntent.ACTIVE
        lacking = id == "user" and "x" not in self.bench.engine.capabilities.provided()
        expected = ModulePhase.WAITING if lacking else ModulePhase.ACTIVE
        if not wanted:
            return record.phase is ModulePhase.INSTALLED and not bound
        return record.phase is expected and len(live) == 1 and bound == (id == "base")

    def _state(self) -> object:
        return [
            (record.id, record.intent, record.phase, record.reason) for record in self.bench.book.all()
        ], [(process.module_id, process.version) for process in self.bench.house.alive()]

    def check_stories(self) -> None:
        told = [
            draft
            for draft in self.bench.book.drafts
            if draft.type.startswith("MODULE_") and draft.type not in NO_STEPS
        ]
        for id in MODULES:
            phase: ModulePhase | None = None
            for draft in [draft for draft in told if draft.subject == id]:
                start = ModulePhase(draft.data["from"]) if draft.data["from"] else None
                end = ModulePhase(draft.data["to"])
                assert draft.type is event_of(start, end)
                assert start is phase, (id, draft)
                assert start is None or (start, end) in STEPS
                phase = None if end is ModulePhase.UNLOADED else end
            record = self.bench.book.find(id)
            assert (record.phase if record else None) is phase


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from([*VERBS, *EVENTS, "install"]),
        st.sampled_from(sorted(MODULES)),
        st.sampled_from(["construct", "on_load", "on_start", "on_stop", "on_unload", "on_upgrade"]),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ACTIONS, st.booleans())
def test_whatever_happens_every_step_is_of_the_table_and_all_agree_in_the_end(
    actions: list[tuple[str, str, str]], together: bool
) -> None:
    async def scenario() -> None:
        async with EngineBench() as bench:
            world = World(bench)
            if together:
                await asyncio.gather(*(world.do(*action) for action in actions if action[0] != "install"))
            for action in actions:
                await world.do(*action)
            await world.do("mend", "base", "")
            await world.settle()
            world.check_stories()

    asyncio.run(scenario())


@pytest.mark.parametrize("verb", Verb)
async def test_a_verb_is_refused_exactly_where_the_rules_say_so(verb: Verb) -> None:
    async with EngineBench() as bench:
        await bench.install(package(MODULES["user"]))
        record = bench.record("user")
        try:
            check_verb(record, verb)
        except IllegalTransition:
            with pytest.raises(IllegalTransition):
                await bench.engine.act("user", verb, reason="why")
        else:
            await bench.engine.act("user", verb, reason="why")
