"""The life of a module, by the table: hooks in order, steps stored before they are told, verbs in turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from engine_bench import EngineBench, manifest, package
from stand_in_house import Script, StandInProcess

from corral.domain.events import EventType
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.verbs import Verb
from corral.errors import Code, CorralError, IllegalTransition
from corral.modules.lifecycle.restart_backoff import SPAWN_ATTEMPTS
from corral.modules.process.call_failures import ZygoteGone
from corral.sdk.protocol.messages import CommandDeclaration, Registrations, RouteDeclaration
from corral.system.config_sections import ActivationSection
from corral.system.controller_config import ModulesSection
from corral.testing.memory_package_store import MemoryPackageStore
from corral.testing.waiting import eventually


async def raising(process: StandInProcess, values: dict[str, Any]) -> None:
    raise ValueError("no")


async def hanging(process: StandInProcess, values: dict[str, Any]) -> None:
    await asyncio.Event().wait()


async def dying(process: StandInProcess, values: dict[str, Any]) -> None:
    process.die()
    await asyncio.Event().wait()


async def test_a_module_is_loaded_started_stopped_and_unloaded_in_order() -> None:
    async with EngineBench() as bench:
        record = await bench.install(package(manifest("a")))
        assert record.phase is ModulePhase.ACTIVE
        await bench.engine.act("a", Verb.UNINSTALL)
        assert bench.journal == [
            "a 1.0.0 construct",
            "a 1.0.0 on_load",
            "a 1.0.0 on_start",
            "a 1.0.0 on_stop",
            "a 1.0.0 on_unload",
            "a 1.0.0 finish",
        ]
        assert bench.book.find("a") is None
        assert bench.book.types("a") == [
            EventType.MODULE_INSTALLED,
            EventType.MODULE_WAITING,
            EventType.MODULE_ACTIVATED,
            EventType.MODULE_STOPPING,
            EventType.MODULE_DEACTIVATED,
            EventType.MODULE_UNINSTALLED,
        ]


async def test_each_step_is_stored_before_what_it_brings_can_be_seen() -> None:
    async with EngineBench() as bench:
        script = Script()

        async def look(process: StandInProcess, values: dict[str, Any]) -> None:
            assert bench.phase("a") is ModulePhase.WAITING
            with pytest.raises(CorralError) as refused:
                bench.engine.routes.find("a", "GET", "/x")
            assert refused.value.code is Code.MODULE_NOT_ACTIVE

        script.does["on_start"] = look
        route = RouteDeclaration(number=1, method="GET", path="/x", permission="modules.read")
        script.registers = Registrations(routes=(route,))
        await bench.install(package(manifest("a")), script)
        assert bench.phase("a") is ModulePhase.ACTIVE
        assert bench.engine.routes.find("a", "GET", "/x").declaration == route


UP = ["construct", "on_load", "on_start"]
DOWN = ["on_stop", "on_unload", "finish"]


@pytest.mark.trap("T80")
@pytest.mark.parametrize("intent", [ModuleIntent.INACTIVE, ModuleIntent.PAUSED])
async def test_a_module_that_is_held_back_is_unloaded_and_loaded_afresh_when_it_comes_back(
    intent: ModuleIntent,
) -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("a")))
        record = await bench.engine.set_intent("a", intent, paused_reason="why")
        assert (record.phase, record.intent) == (ModulePhase.INSTALLED, intent)
        assert bench.house.alive() == []
        assert bench.engine.scope("a") is None
        assert (await bench.engine.set_intent("a", ModuleIntent.ACTIVE)).phase is ModulePhase.ACTIVE
        assert [line.split()[2] for line in bench.journal] == [*UP, *DOWN, *UP]


@pytest.mark.trap("T80")
async def test_one_that_waits_is_unloaded_without_a_stop_and_one_without_a_process_runs_no_hook() -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("a", requires={"demo.none": "*"})))
        assert (await bench.engine.act("a", Verb.DEACTIVATE)).phase is ModulePhase.INSTALLED
        assert [line.split()[2] for line in bench.journal] == ["construct", "on_load", "on_unload", "finish"]
        bench.journal.clear()
        await bench.engine.act("a", Verb.UNINSTALL)
        assert bench.journal == []


async def test_a_requirement_that_vanishes_leaves_its_consumer_loaded() -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("base", provides={"demo.x": "1.0.0"})))
        await bench.install(package(manifest("a", requires={"demo.x": "*"})))
        process = bench.process("a")
        await bench.engine.act("base", Verb.DEACTIVATE)
        await bench.until("a", ModulePhase.WAITING)
        assert bench.process("a") is process
        await bench.engine.act("base", Verb.ACTIVATE)
        await bench.until("a", ModulePhase.ACTIVE)
        assert [line.split()[2] for line in bench.journal if line.startswith("a ")] == [
            *UP,
            "on_stop",
            "on_start",
        ]


@pytest.mark.trap("T80")
@pytest.mark.parametrize("after", [False, True])
async def test_a_store_that_fails_while_a_module_is_held_back_leaves_no_process(after: bool) -> None:
    async with EngineBench() as bench:
        script = Script()

        async def unplug(process: StandInProcess, values: dict[str, Any]) -> None:
            bench.book.fail_next(1, after=after)

        script.does["on_unload"] = unplug
        await bench.install(package(manifest("a")), script)
        with pytest.raises(CorralError):
            await bench.engine.act("a", Verb.DEACTIVATE)
        record = await bench.until("a", ModulePhase.INSTALLED)
        assert (record.reason, bench.house.alive()) == ("deactivated", [])


async def test_a_package_held_back_is_stored_and_nothing_of_it_runs() -> None:
    async with EngineBench() as bench:
        record = await bench.install(package(manifest("a"), intent=ModuleIntent.INACTIVE))
        assert record.phase is ModulePhase.INSTALLED
        assert bench.house.started == []


async def test_a_paused_module_says_why_and_is_not_activated_but_resumed() -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("a")))
        record = await bench.engine.act("a", Verb.PAUSE, reason="waiting for a fix")
        assert (record.phase, record.reason, record.paused_reason) == (
            ModulePhase.INSTALLED,
            "paused",
            "waiting for a fix",
        )
        with pytest.raises(IllegalTransition):
            await bench.engine.act("a", Verb.ACTIVATE)
        record = await bench.engine.act("a", Verb.RESUME)
        assert (record.phase, record.paused_reason) == (ModulePhase.ACTIVE, "")
        with pytest.raises(IllegalTransition):
            await bench.engine.act("a", Verb.RESUME)


async def test_a_paused_module_that_is_deactivated_says_so_and_what_lets_it_run() -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("a")))
        await bench.engine.act("a", Verb.PAUSE, reason="waiting for a fix")
        record = await bench.engine.act("a", Verb.DEACTIVATE)
        assert (record.phase, record.reason, record.paused_reason) == (
            ModulePhase.INSTALLED,
            "deactivated",
            "",
        )
        with pytest.raises(IllegalTransition, match="corral module activate a"):
            await bench.engine.act("a", Verb.RESUME)
        assert (await bench.engine.act("a", Verb.PAUSE, reason="later")).reason == "paused"


@pytest.mark.parametrize(
    ("hook", "doing", "reason"),
    [
        ("construct", raising, "construct_failed"),
        ("on_load", raising, "hook_failed:on_load"),
        ("on_start", raising, "hook_failed:on_start"),
        ("on_load", hanging, "hook_overrun:on_load"),
        ("on_start", hanging, "hook_overrun:on_start"),
        ("on_load", dying, "process_died:SIGSEGV"),
        ("on_start", dying, "process_died:SIGSEGV"),
    ],
)
async def test_a_hook_that_fails_on_the_way_up_fails_the_module(hook: str, doing: Any, reason: str) -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does[hook] = doing
        record = await bench.install(package(manifest("a", hook_deadline_ms=50)), script)
        assert (record.phase, record.reason) == (ModulePhase.FAILED, reason)
        assert record.failure is not None
        assert record.failure.reason == reason
        assert bench.house.alive() == []
        assert bench.engine.live("a") is None


@pytest.mark.parametrize(
    ("doing", "reason"), [(raising, "hook_failed:on_stop"), (hanging, "hook_overrun:on_stop")]
)
async def test_a_stop_that_fails_cleans_up_all_the_same(doing: Any, reason: str) -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does["on_stop"] = doing
        route = RouteDeclaration(number=1, method="GET", path="/x", permission="modules.read")
        script.registers = Registrations(routes=(route,))
        await bench.install(package(manifest("a", hook_deadline_ms=50)), script)
        record = await bench.engine.act("a", Verb.DEACTIVATE)
        assert (record.phase, record.reason) == (ModulePhase.FAILED, reason)
        assert bench.engine.routes.of("a") == []
        assert bench.house.alive() == []


async def test_a_process_that_dies_in_its_stop_leaves_the_module_stopped() -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does["on_stop"] = dying
        await bench.install(package(manifest("a")), script)
        record = await bench.engine.act("a", Verb.DEACTIVATE)
        assert (record.phase, record.reason) == (ModulePhase.INSTALLED, "process_died:SIGSEGV")


async def test_an_unload_that_throws_changes_nothing() -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does["on_unload"] = raising
        await bench.install(package(manifest("a")), script)
        await bench.engine.act("a", Verb.UNINSTALL)
        assert bench.book.find("a") is None


async def test_failed_is_left_by_recovery_alone_and_the_next_attempt_starts_afresh() -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does["on_start"] = raising
        await bench.install(package(manifest("a")), script)
        for verb in (Verb.ACTIVATE, Verb.DEACTIVATE):
            with pytest.raises(IllegalTransition) as refused:
                await bench.engine.act("a", verb)
            assert "hook_failed:on_start" in str(refused.value)
        del script.does["on_start"]
        record = await bench.engine.act("a", Verb.RECOVER)
        assert (record.phase, record.failure) == (ModulePhase.ACTIVE, None)
        assert [line.split()[2] for line in bench.journal].count("on_load") == 2
        with pytest.raises(IllegalTransition):
            await bench.engine.act("a", Verb.RECOVER)


async def test_a_failed_module_can_be_uninstalled() -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does["on_load"] = raising
        await bench.install(package(manifest("a")), script)
        await bench.engine.act("a", Verb.UNINSTALL)
        assert bench.book.types("a")[-1] is EventType.MODULE_UNINSTALLED
        with pytest.raises(CorralError) as refused:
            await bench.engine.act("a", Verb.ACTIVATE)
        assert refused.value.code is Code.NOT_FOUND


async def test_verbs_of_one_module_are_done_in_turn() -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("a")))
        await asyncio.gather(
            bench.engine.act("a", Verb.DEACTIVATE),
            bench.engine.act("a", Verb.ACTIVATE),
            bench.engine.act("a", Verb.DEACTIVATE),
            bench.engine.act("a", Verb.ACTIVATE),
        )
        assert bench.phase("a") is ModulePhase.ACTIVE
        hooks = [line.split()[2] for line in bench.journal]
        assert hooks == [*UP, *DOWN] * 2 + UP


async def test_a_package_for_nodes_only_follows_its_intent_and_runs_nothing_here() -> None:
    async with EngineBench() as bench:
        record = await bench.install(package(manifest("a", hosts=(ModuleHost.DAEMON,), requires={"x": "*"})))
        assert record.phase is ModulePhase.ACTIVE
        assert (await bench.engine.act("a", Verb.DEACTIVATE)).phase is ModulePhase.INSTALLED
        assert bench.house.started == []


async def test_what_a_host_left_in_the_middle_is_walked_back_and_brought_up_again() -> None:
    book = MemoryPackageStore()
    async with EngineBench(book=book) as first:
        for id in ("a", "b"):
            await first.install(package(manifest(id)))
        await first.engine.act("b", Verb.DEACTIVATE)
    assert book.find("a").phase is ModulePhase.ACTIVE  # type: ignore[union-attr]
    async with EngineBench(book=book) as second:
        second.house.scripts = first.house.scripts
        await second.engine.boot()
        assert (second.phase("a"), second.phase("b")) == (ModulePhase.ACTIVE, ModulePhase.INSTALLED)
        assert second.steps("a")[-4:] == [
            "STOPPING host_restarted",
            "INSTALLED host_restarted",
            "WAITING",
            "ACTIVE",
        ]
        assert [process.module_id for process in second.house.started] == ["a"]


async def test_a_store_that_does_not_answer_in_the_middle_of_a_stop_delays_it() -> None:
    async with EngineBench() as bench:
        script = Script()

        async def unplug(process: StandInProcess, values: dict[str, Any]) -> None:
            bench.book.fail_next(2)

        script.does["on_stop"] = unplug
        await bench.install(package(manifest("a", provides={"x": "1.0.0"})), script)
        with pytest.raises(CorralError) as refused:
            await bench.engine.act("a", Verb.DEACTIVATE)
        assert refused.value.code is Code.STORE_UNAVAILABLE
        await bench.until("a", ModulePhase.INSTALLED)
        assert [line.split()[2] for line in bench.journal].count("on_stop") == 1
        assert bench.book.types("x") == [EventType.CAPABILITY_REGISTERED, EventType.CAPABILITY_CLEARED]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("failing", [1, 2, 3])
async def test_a_step_whose_answer_is_lost_is_taken_up_again(failing: int, after: bool) -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("a", provides={"x": "1.0.0"}), intent=ModuleIntent.INACTIVE))
        script = bench.script(bench.record("a"))

        async def unplug(process: StandInProcess, values: dict[str, Any]) -> None:
            bench.book.fail_next(failing, after=after)

        script.does["on_start"] = unplug
        with pytest.raises(CorralError):
            await bench.engine.act("a", Verb.ACTIVATE)
        await eventually(lambda: "x" in bench.engine.capabilities.provided())
        assert bench.phase("a") is ModulePhase.ACTIVE
        assert [line.split()[2] for line in bench.journal].count("on_start") == 1
        assert bench.book.types("x") == [EventType.CAPABILITY_REGISTERED]


async def test_a_module_that_waits_too_long_fails_with_what_it_waited_for() -> None:
    config = ModulesSection(activation=ActivationSection(wait_timeout_seconds=1))
    async with EngineBench(config=config) as bench:
        record = await bench.install(package(manifest("a", requires={"x": "*"})))
        assert (record.phase, record.reason) == (ModulePhase.WAITING, "waiting_for_capability:x")
        record = await bench.until("a", ModulePhase.FAILED)
        assert record.reason == "wait_timeout:x"


def _route(path: str = "/x", **more: Any) -> Registrations:
    fields: dict[str, Any] = {"number": 1, "method": "GET", "path": path, "permission": "modules.read"} | more
    return Registrations(routes=(RouteDeclaration(**fields),))


@pytest.mark.parametrize(
    ("registered", "reason"),
    [
        (_route("/health"), "bad_registration:route:GET /health"),
        (_route("/config/{x}"), "bad_registration:route:GET /config/{x}"),
        (_route("/"), "bad_registration:route:GET /"),
        (_route("x"), "bad_registration:route:GET x"),
        (_route(method="BREW"), "bad_registration:route:BREW /x"),
        (_route(permission="root"), "bad_registration:route:GET /x"),
        (Registrations(routes=_route("/{a}/b").routes + _route("/{c}/b").routes), "bad_registration:route:GET /{c}/b"),
        (Registrations(commands=(CommandDeclaration(number=1, name="taken word"),)), "bad_registration:command:taken word"),
    ],
)  # fmt: skip
async def test_what_cannot_be_bound_fails_the_module(registered: Registrations, reason: str) -> None:
    async with EngineBench() as bench:
        first = Script()
        first.registers = Registrations(commands=(CommandDeclaration(number=1, name="taken word"),))
        await bench.install(package(manifest("first")), first)
        script = Script()
        script.registers = registered
        record = await bench.install(package(manifest("a")), script)
        assert (record.phase, record.reason) == (ModulePhase.FAILED, reason)
        assert bench.engine.routes.of("a") == []
        assert [owner for owner, _ in bench.engine.commands.all()] == ["first"]


async def test_new_settings_reach_a_running_module_and_a_throw_leaves_the_old_ones() -> None:
    async with EngineBench() as bench:
        script = Script(hooks=["on_start", "on_reload"])
        taken: list[dict[str, Any]] = []

        async def reload(process: StandInProcess, values: dict[str, Any]) -> None:
            if values["config"].get("bad"):
                raise ValueError("bad")
            taken.append(values["config"])

        script.does["on_reload"] = reload
        await bench.install(package(manifest("a")), script)
        await bench.engine.act("a", Verb.RELOAD, settings={"x": 1})
        with pytest.raises(CorralError) as refused:
            await bench.engine.act("a", Verb.RELOAD, settings={"bad": True})
        assert refused.value.code is Code.MODULE_FAILED
        assert bench.record("a").settings == {"x": 1}
        assert (taken, bench.phase("a")) == ([{"x": 1}], ModulePhase.ACTIVE)
        bench.book.fail_next(1)
        with pytest.raises(CorralError):
            await bench.engine.act("a", Verb.RELOAD, settings={"x": 2})
        assert taken == [{"x": 1}, {"x": 2}, {"x": 1}]


async def test_changed_settings_are_told_by_their_names_and_the_same_again_is_no_news() -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("a")), Script(hooks=["on_reload"]))
        await bench.engine.act("a", Verb.RELOAD, settings={"x": 1, "kept": None})
        await bench.engine.act("a", Verb.RELOAD, settings={"y": "secret", "kept": None})
        await bench.engine.act("a", Verb.RELOAD, settings={"y": "secret", "kept": None})
        told = [draft.data for draft in bench.book.drafts if draft.type is EventType.MODULE_CONFIGURED]
        assert [data["changed"] for data in told] == [["kept", "x"], ["x", "y"]]
        assert told[0].keys() == {"id", "version", "from", "to", "intent", "reason", "at", "changed"}
        assert "secret" not in str(told)


async def test_a_module_without_a_reload_is_started_anew_with_its_settings() -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("a")))
        before = bench.process("a")
        record = await bench.engine.act("a", Verb.RELOAD, settings={"x": 1})
        assert (record.phase, record.settings) == (ModulePhase.ACTIVE, {"x": 1})
        assert bench.process("a") is not before
        assert bench.process("a").construct.config == {"x": 1}  # type: ignore[union-attr]
        assert bench.steps("a")[-4:] == ["STOPPING reload", "INSTALLED reload", "WAITING", "ACTIVE"]


async def test_the_end_stops_consumers_first_and_leaves_the_records_alone() -> None:
    book = MemoryPackageStore()
    async with EngineBench(book=book) as bench:
        await bench.install(package(manifest("base", provides={"x": "1.0.0"})))
        await bench.install(package(manifest("user", requires={"x": "*"}, provides={"y": "1.0.0"})))
        await bench.install(package(manifest("top", requires={"y": "*"})))
        commits = len(book.commits)
        bench.journal.clear()
        assert await bench.engine.close(budget=5) == []
    assert [line for line in bench.journal if "on_stop" in line or "on_unload" in line] == [
        "top 1.0.0 on_stop",
        "top 1.0.0 on_unload",
        "user 1.0.0 on_stop",
        "user 1.0.0 on_unload",
        "base 1.0.0 on_stop",
        "base 1.0.0 on_unload",
    ]
    assert len(book.commits) == commits
    assert {record.phase for record in book.all()} == {ModulePhase.ACTIVE}


async def test_who_does_not_end_in_time_is_killed_and_named() -> None:
    async with EngineBench() as bench:
        script = Script()
        script.does["on_unload"] = hanging
        await bench.install(package(manifest("slow", hook_deadline_ms=30_000)), script)
        await bench.install(package(manifest("good")))
        assert await bench.engine.close(budget=1.5) == ["slow"]
        assert bench.house.alive() == []
        with pytest.raises(CorralError) as refused:
            await bench.engine.act("good", Verb.ACTIVATE)
        assert refused.value.code is Code.SHUTTING_DOWN


async def test_calls_into_a_module_are_counted() -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("a")))
        before = bench.engine.live("a")
        scope = bench.engine.scope("a")
        assert before is not None
        assert scope is not None
        await scope.call("task:x", "task", None, answer=object, deadline=1)
        bench.house.scripts["a-1.0.0"].does["task"] = raising
        with pytest.raises(CorralError):
            await scope.call("task:x", "task", None, answer=object, deadline=1)
        after = bench.engine.live("a")
        assert after is not None
        assert (after.calls - before.calls, after.failures - before.failures) == (2, 1)


@pytest.mark.trap("T81")
async def test_a_host_without_modules_runs_none_obeys_verbs_and_a_later_one_goes_on() -> None:
    """However the last host left them: also one that every start of would end."""
    book = MemoryPackageStore()
    async with EngineBench(book=book) as bench:
        for id in ("active", "goes", "rests"):
            await bench.install(package(manifest(id)))
        broken = Script()
        broken.does["on_start"] = raising
        await bench.install(package(manifest("fails")), broken)
        await bench.engine.act("rests", Verb.PAUSE, reason="for now")
    off = ModulesSection(enabled=False)
    async with EngineBench(book=book, config=off) as bench:
        await bench.engine.boot()
        await bench.install(package(manifest("new")))
        await bench.engine.act("fails", Verb.RECOVER)
        await bench.engine.act("rests", Verb.RESUME)
        standing = {
            id: (bench.phase(id), bench.record(id).reason) for id in ("active", "fails", "new", "rests")
        }
        assert set(standing.values()) == {(ModulePhase.INSTALLED, "modules_disabled")}, standing
        await bench.engine.act("goes", Verb.UNINSTALL)
        await bench.engine.act("fails", Verb.DEACTIVATE)
        await bench.engine.upgrade(package(manifest("new", version="2.0.0")))
        assert bench.record("new").reason == "modules_disabled"
        assert bench.journal == []
    async with EngineBench(book=book, config=off) as bench:
        await bench.engine.boot()
        assert bench.record("active").intent is ModuleIntent.ACTIVE
        assert bench.journal == []
    async with EngineBench(book=book) as bench:
        for record in book.all():
            bench.script(record)
        await bench.engine.boot()
        phases = {record.id: record.phase.name for record in book.all()}
        assert phases == {"active": "ACTIVE", "fails": "INSTALLED", "new": "ACTIVE", "rests": "ACTIVE"}
        assert book.find("goes") is None


@pytest.mark.trap("T84")
@pytest.mark.parametrize("more", [-1, 0, 5])
async def test_a_module_that_gets_no_process_is_tried_again_but_not_for_ever(more: int) -> None:
    async with EngineBench() as bench:
        count = SPAWN_ATTEMPTS + more
        bench.house.unborn = [ZygoteGone("[Errno 90] Message too long") for _ in range(count)]
        await bench.install(package(manifest("base")))
        if more >= 0:
            record = await bench.until("base", ModulePhase.FAILED)
            assert (record.reason, len(bench.house.unborn)) == ("zygote_lost", more)
            assert record.failure is not None
            assert "10 times in a row" in record.failure.message
            assert "Message too long" in record.failure.message
            await bench.engine.act("base", Verb.RECOVER)  # begins to count anew
        record = await bench.until("base", ModulePhase.ACTIVE)
        failed = [step for step in record.history if step.to_phase is ModulePhase.FAILED]
        assert len(failed) == (more >= 0)
