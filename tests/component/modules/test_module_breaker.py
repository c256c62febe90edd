"""A module that does not answer, or whose process dies: given up in time, started again with patience."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from engine_bench import EngineBench, manifest, package
from stand_in_house import Script, StandInProcess

from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.verbs import Verb
from corral.errors import Code, CorralError
from corral.modules.process.call_failures import ModuleBusy
from corral.modules.scope import Scope
from corral.sdk.protocol.messages import Nothing, Registrations, RouteDeclaration
from corral.system.controller_config import ModulesSection
from corral.testing.waiting import eventually


async def hanging(process: StandInProcess, values: dict[str, Any]) -> None:
    await asyncio.Event().wait()


async def raising(process: StandInProcess, values: dict[str, Any]) -> None:
    raise ValueError("no")


async def task(scope: Scope) -> None:
    await scope.call("task:sweep", "task", Nothing(), answer=Nothing, deadline=0.02)


async def overrun(scope: Scope) -> None:
    with pytest.raises(CorralError) as late:
        await task(scope)
    assert late.value.code is Code.MODULE_TIMEOUT


async def loaded(bench: EngineBench, script: Script) -> Scope:
    await bench.install(package(manifest("a")), script)
    scope = bench.engine.scope("a")
    assert scope is not None
    return scope


async def test_three_overruns_in_a_row_fail_the_module_and_end_its_process() -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does["task"] = hanging
        route = RouteDeclaration(number=1, method="GET", path="/x", permission="modules.read")
        script.registers = Registrations(routes=(route,))
        scope = await loaded(bench, script)
        for _ in range(3):
            await overrun(scope)
        record = await bench.until("a", ModulePhase.FAILED)
        assert record.reason == "hook_overrun:task:sweep"
        await eventually(lambda: bench.house.alive() == [])
        assert scope.closed
        assert bench.engine.routes.of("a") == []
        assert "on_stop" not in [line.split()[2] for line in bench.journal]


async def test_an_answer_between_overruns_closes_the_count_even_if_it_is_an_exception() -> None:
    async with EngineBench() as bench:
        script = Script()
        scope = await loaded(bench, script)
        for _ in range(3):
            script.does["task"] = hanging
            await overrun(scope)
            await overrun(scope)
            script.does["task"] = raising
            with pytest.raises(CorralError) as failed:
                await task(scope)
            assert failed.value.code is Code.MODULE_FAILED
        assert bench.phase("a") is ModulePhase.ACTIVE
        assert not scope.breaker.open


async def test_what_answers_in_between_does_not_excuse_what_is_late_every_time() -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does["task"] = hanging
        scope = await loaded(bench, script)
        for _ in range(3):
            await overrun(scope)
            await scope.call("on_instance_started", "started", Nothing(), answer=Nothing, deadline=5)
        record = await bench.until("a", ModulePhase.FAILED)
        assert record.reason == "hook_overrun:task:sweep"


async def test_three_that_are_late_once_each_are_not_one_that_is_late_three_times() -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does["task"] = hanging
        scope = await loaded(bench, script)
        for name in ("event:A", "event:B", "route:GET /x"):
            with pytest.raises(CorralError):
                await scope.call(name, "task", Nothing(), answer=Nothing, deadline=0.02)
        assert not scope.breaker.open


async def test_a_module_that_nobody_calls_is_asked_for_its_health_and_failed_when_it_does_not_answer() -> (
    None
):
    async with EngineBench(config=ModulesSection(health_check_seconds=0.01)) as bench:
        script = Script()
        await bench.install(package(manifest("a", hook_deadline_ms=20)), script)
        await eventually(lambda: bench.journal.count("a 1.0.0 health") >= 3)
        assert bench.phase("a") is ModulePhase.ACTIVE
        script.does["health"] = hanging
        record = await bench.until("a", ModulePhase.FAILED)
        assert record.reason == "hook_overrun:health_check"
        await eventually(lambda: bench.house.alive() == [])


async def test_callers_who_ask_for_the_health_of_a_busy_module_do_not_fail_it() -> None:
    async with EngineBench(config=ModulesSection(health_check_seconds=3600)) as bench:
        script = Script()
        await bench.install(package(manifest("a", hook_deadline_ms=20)), script)
        script.does["health"] = hanging
        for _ in range(5):
            with pytest.raises(CorralError) as late:
                await bench.engine.health("a")
            assert late.value.code is Code.MODULE_TIMEOUT
        scope = bench.engine.scope("a")
        assert scope is not None
        assert not scope.breaker.open
        del script.does["health"]
        assert (await bench.engine.health("a")).healthy
        assert bench.phase("a") is ModulePhase.ACTIVE


async def test_a_module_that_does_not_serve_is_not_asked_for_its_health() -> None:
    async with EngineBench(config=ModulesSection(health_check_seconds=0.01)) as bench:
        await bench.install(package(manifest("base", provides={"demo.x": "1.0.0"})))
        await bench.install(package(manifest("a", requires={"demo.x": "*"})))
        await eventually(lambda: "a 1.0.0 health" in bench.journal)
        await bench.engine.act("base", Verb.DEACTIVATE)
        await bench.until("a", ModulePhase.WAITING)
        asked = bench.journal.count("a 1.0.0 health")
        names = {task.get_name() for task in asyncio.all_tasks() if not task.cancelling()}
        assert not [name for name in names if name.startswith("modules/health/")]
        await bench.engine.act("base", Verb.ACTIVATE)
        await bench.until("a", ModulePhase.ACTIVE)
        await eventually(lambda: bench.journal.count("a 1.0.0 health") > asked)


async def test_a_call_that_never_reached_the_module_is_no_answer() -> None:
    async with EngineBench() as bench:
        script = Script()
        scope = await loaded(bench, script)

        async def busy(process: StandInProcess, values: dict[str, Any]) -> None:
            raise ModuleBusy("a")

        for _ in range(3):
            script.does["task"] = hanging
            await overrun(scope)
            script.does["task"] = busy
            with pytest.raises(CorralError) as refused:
                await task(scope)
            assert refused.value.code is Code.MODULE_BUSY
        record = await bench.until("a", ModulePhase.FAILED)
        assert record.reason == "hook_overrun:task:sweep"


async def test_a_process_that_dies_is_started_again_through_the_table() -> None:
    async with EngineBench() as bench:
        await loaded(bench, Script())
        first = bench.process("a")
        first.die("memory_limit")
        await eventually(lambda: len(bench.house.started) == 2)
        await bench.until("a", ModulePhase.ACTIVE)
        assert bench.steps("a")[-4:] == [
            "STOPPING memory_limit",
            "INSTALLED memory_limit",
            "WAITING",
            "ACTIVE",
        ]
        assert [line.split()[2] for line in bench.journal].count("on_load") == 2


async def test_a_process_that_keeps_dying_is_given_up_with_its_last_reason() -> None:
    async with EngineBench(config=ModulesSection(deaths_before_failed=3)) as bench:
        await loaded(bench, Script())
        for attempt in range(4):
            await eventually(lambda count=attempt: len(bench.house.started) == count + 1)
            await bench.until("a", ModulePhase.ACTIVE)
            bench.process("a").die(f"process_exited:{attempt}")
        record = await bench.until("a", ModulePhase.FAILED)
        assert record.reason == "process_exited:3"
        assert record.failure is not None
        assert "Fatal Python error" in record.failure.traceback
        assert len(bench.house.started) == 4
        record = await bench.engine.act("a", Verb.RECOVER)
        assert record.phase is ModulePhase.ACTIVE
        bench.process("a").die()
        await eventually(lambda: len(bench.house.started) == 6)
        await bench.until("a", ModulePhase.ACTIVE)


async def test_a_death_in_on_unload_changes_nothing_about_a_deactivation() -> None:
    async with EngineBench() as bench:
        script = Script()

        async def dying(process: StandInProcess, values: dict[str, Any]) -> None:
            process.die()
            await asyncio.Event().wait()

        script.does["on_unload"] = dying
        await loaded(bench, script)
        await bench.engine.act("a", Verb.DEACTIVATE)
        assert bench.engine.live("a") is None
        assert bench.steps("a")[-1] == "INSTALLED deactivated"
        record = await bench.engine.act("a", Verb.ACTIVATE)
        assert record.phase is ModulePhase.ACTIVE


async def test_a_module_in_its_back_off_can_be_deactivated_and_uninstalled() -> None:
    async with EngineBench() as bench:
        await loaded(bench, Script())
        bench.process("a").die()
        await eventually(lambda: "INSTALLED process_died:SIGSEGV" in bench.steps("a"))
        await bench.engine.act("a", Verb.DEACTIVATE)
        assert bench.phase("a") is ModulePhase.INSTALLED
        await bench.engine.act("a", Verb.UNINSTALL)
        assert bench.book.find("a") is None


async def test_a_scope_is_undone_last_first_and_one_bad_undo_keeps_none_of_the_others() -> None:
    async with EngineBench() as bench:
        undone: list[str] = []
        script = Script()
        scope = await loaded(bench, script)

        def bad() -> None:
            raise RuntimeError("bad")

        async def good() -> None:
            undone.append("good")

        scope.own("task", "first", lambda: undone.append("first"))
        scope.own("task", "bad", bad)
        scope.own("task", "good", good)
        scope.own("task", "ended", lambda: undone.append("ended")).release()
        live = bench.engine.live("a")
        assert live is not None
        assert [name for kind, name in live.registrations if kind == "task"] == ["first", "bad", "good"]
        bench.process("a").die()
        await eventually(lambda: undone == ["good", "first"])
        with pytest.raises(CorralError):
            scope.own("task", "late", lambda: None)


async def test_what_was_registered_on_load_outlives_a_lost_requirement_but_rests() -> None:
    async with EngineBench() as bench:
        undone: list[str] = []
        await bench.install(package(manifest("a", requires={"demo.x": "*"})))
        scope = bench.engine.scope("a")
        assert scope is not None
        scope.own("subscription", "of the load", lambda: undone.append("of the load"))
        assert not scope.serving
        await bench.install(package(manifest("base", provides={"demo.x": "1.0.0"})))
        await bench.until("a", ModulePhase.ACTIVE)
        assert bench.engine.scope("a") is scope
        assert scope.serving
        scope.own("subscription", "of the start", lambda: undone.append("of the start"))
        await bench.engine.act("base", Verb.DEACTIVATE)
        await bench.until("a", ModulePhase.WAITING)
        assert undone == ["of the start"]
        assert not scope.serving
        await bench.engine.act("a", Verb.UNINSTALL)
        assert undone == ["of the start", "of the load"]


async def test_calls_that_are_late_together_are_one_silence() -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does["task"] = hanging
        scope = await loaded(bench, script)
        for _ in range(2):
            await asyncio.gather(*(overrun(scope) for _ in range(10)))
        assert bench.phase("a") is ModulePhase.ACTIVE
        await overrun(scope)
        await bench.until("a", ModulePhase.FAILED)
