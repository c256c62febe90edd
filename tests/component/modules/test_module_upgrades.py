"""Upgrades: the new version proves itself while the old one serves, or everything is as it was."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import msgspec
import pytest
from engine_bench import EngineBench, manifest, package, serving
from stand_in_house import Script, StandInProcess

from corral.domain.events import EventType
from corral.domain.modules.lifecycle_decisions import first_step
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.verbs import Verb
from corral.errors import Code, CorralError
from corral.modules.lifecycle.upgrade import UpgradeFailed
from corral.sdk.protocol.messages import Registrations, RouteDeclaration
from corral.system.controller_config import ModulesSection
from corral.testing.memory_package_store import MemoryPackageStore
from corral.testing.waiting import eventually


def _serves(bench: EngineBench, id: str) -> bool:
    scope = bench.engine.scope(id)
    return scope is not None and scope.serving


def shop(version: str, **more: Any) -> Any:
    return package(manifest("shop", version, provides={"demo.shop": version}, documents=True, **more))


USER = package(manifest("user", requires={"demo.shop": ">=1"}))


async def raising(process: StandInProcess, values: dict[str, Any]) -> None:
    raise ValueError("broken")


async def hanging(process: StandInProcess, values: dict[str, Any]) -> None:
    await asyncio.Event().wait()


async def dying(process: StandInProcess, values: dict[str, Any]) -> None:
    process.die("process_died:SIGABRT")
    await asyncio.Event().wait()


async def with_old(bench: EngineBench) -> None:
    bench.data.kept["shop", 1] = {"doc": "old"}
    await bench.install(shop("1.0.0"), serving("old"))
    await bench.install(USER)


def migrating(bench: EngineBench, script: Script) -> Script:
    """Its `on_upgrade` changes the documents of the generation it works on."""

    async def migrate(process: StandInProcess, values: dict[str, Any]) -> None:
        newest = max(generation for _, generation in bench.data.kept)
        assert newest == 2
        bench.data.kept["shop", newest]["doc"] = "new"

    script.does["on_upgrade"] = migrate
    return script


async def upgrade(bench: EngineBench, record: Any, script: Script, *, rollback: bool = True) -> Any:
    bench.house.scripts[record.sha256] = script
    return await bench.engine.upgrade(record, rollback=rollback)


async def test_an_upgrade_goes_in_the_order_of_the_contract_and_its_consumers_notice_nothing() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        user_steps, user = bench.steps("user"), bench.process("user")
        bench.journal.clear()
        story = await upgrade(bench, shop("2.0.0"), migrating(bench, serving("new")))
        assert (story.record.version, story.record.phase) == ("2.0.0", ModulePhase.ACTIVE)
        assert (story.record.generation, story.record.previous_version) == (2, "")
        await eventually(lambda: "shop 1.0.0 finish" in bench.journal)
        assert bench.journal == [
            "shop 2.0.0 construct",
            "shop 1.0.0 on_stop",
            "shop 2.0.0 on_load",
            "shop 2.0.0 on_upgrade",
            "shop 2.0.0 on_start",
            "shop 1.0.0 on_unload",
            "shop 1.0.0 finish",
        ]
        await eventually(lambda: bench.data.kept == {("shop", 2): {"doc": "new"}})
        assert (bench.steps("user"), bench.process("user")) == (user_steps, user)
        assert await user.ask("demo.shop") == "new"
        assert user.available == {"demo.shop": "2.0.0"}
        assert bench.book.types("demo.shop") == [
            EventType.CAPABILITY_REGISTERED,
            EventType.CAPABILITY_REBOUND,
        ]
        (commit,) = [c for c in bench.book.commits if EventType.MODULE_UPGRADED in [d.type for d in c]]
        assert {draft.type for draft in commit} >= {EventType.MODULE_ACTIVATED, EventType.CAPABILITY_REBOUND}


async def test_all_three_hooks_of_an_upgrade_see_the_previous_version_and_later_starts_do_not() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        await upgrade(bench, shop("2.0.0"), serving("new"))
        construct = bench.house.started[-1].construct
        assert construct is not None
        assert (construct.previous_version, construct.is_upgrade) == ("1.0.0", True)
        await eventually(lambda: len(bench.house.alive()) == 2)
        bench.process("shop").die()
        await eventually(lambda: bench.house.started[-1].construct is not construct)
        await bench.until("shop", ModulePhase.ACTIVE)
        construct = bench.house.started[-1].construct
        assert construct is not None
        assert (construct.previous_version, construct.is_upgrade) == ("", False)
        assert bench.journal.count("shop 2.0.0 on_upgrade") == 1


@pytest.mark.trap("T7")
@pytest.mark.parametrize(
    ("hook", "doing", "reason"),
    [
        ("on_load", raising, "hook_failed:on_load"),
        ("on_upgrade", raising, "hook_failed:on_upgrade"),
        ("on_upgrade", hanging, "hook_overrun:on_upgrade"),
        ("on_start", raising, "hook_failed:on_start"),
        ("on_start", hanging, "hook_overrun:on_start"),
        ("on_start", dying, "process_died:SIGABRT"),
    ],
)
async def test_after_a_failed_upgrade_the_old_version_serves_as_before(
    hook: str, doing: Any, reason: str
) -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        before, user_steps = bench.process("shop"), bench.steps("user")
        script = migrating(bench, serving("new"))
        script.does[hook] = doing
        with pytest.raises(UpgradeFailed) as failed:
            await upgrade(bench, shop("2.0.0", hook_deadline_ms=100), script)
        assert failed.value.code is Code.MODULE_UPGRADE_FAILED
        assert failed.value.reason == reason
        assert failed.value.lines[-1] == "1.0.0 serves again; its documents are as they were."
        record = bench.record("shop")
        assert (record.version, record.phase, record.generation) == ("1.0.0", ModulePhase.ACTIVE, 1)
        assert bench.process("shop") is before
        assert await bench.process("user").ask("demo.shop") == "old"
        assert bench.steps("user") == user_steps
        await eventually(lambda: bench.data.kept == {("shop", 1): {"doc": "old"}})
        assert bench.journal.count("shop 1.0.0 on_load") == 1
        assert bench.journal.count("shop 1.0.0 on_start") == 2
        (told,) = [draft for draft in bench.book.drafts if draft.type is EventType.MODULE_UPGRADE_ROLLED_BACK]
        assert told.data["reason"] == reason


@pytest.mark.trap("T7")
@pytest.mark.parametrize("doing", [raising, hanging, dying])
async def test_a_new_version_that_cannot_be_constructed_never_touches_the_old_one(doing: Any) -> None:
    async with EngineBench(config=ModulesSection(load_timeout_seconds=1)) as bench:
        await with_old(bench)
        commits = len(bench.book.commits)
        script = serving("new")
        script.does["construct"] = doing
        with pytest.raises(UpgradeFailed) as failed:
            await upgrade(bench, shop("2.0.0"), script)
        assert "1.0.0 served all the time" in str(failed.value)
        assert len(bench.book.commits) == commits
        assert await bench.process("user").ask("demo.shop") == "old"


async def test_a_new_version_that_needs_what_nobody_provides_is_refused_while_the_old_one_serves() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        with pytest.raises(UpgradeFailed) as failed:
            await upgrade(bench, shop("2.0.0", requires={"demo.none": "*"}), serving("new"))
        assert failed.value.reason == "waiting_for_capability:demo.none"
        assert bench.record("shop").version == "1.0.0"
        assert len(bench.house.alive()) == 2


async def test_without_a_rollback_the_new_version_stays_failed_and_the_old_one_is_gone() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        script = serving("new")
        script.does["on_start"] = raising
        with pytest.raises(UpgradeFailed):
            await upgrade(bench, shop("2.0.0"), script, rollback=False)
        record = bench.record("shop")
        assert (record.version, record.phase, record.generation) == ("2.0.0", ModulePhase.FAILED, 1)
        assert record.failure is not None
        assert record.previous_version == "1.0.0"
        await bench.until("user", ModulePhase.WAITING)
        await eventually(lambda: bench.data.kept == {("shop", 1): {"doc": "old"}})
        del script.does["on_start"]
        record = await bench.engine.act("shop", Verb.RECOVER)
        assert (record.phase, record.generation, record.previous_version) == (ModulePhase.ACTIVE, 2, "")
        assert bench.journal.count("shop 2.0.0 on_upgrade") == 2
        await bench.until("user", ModulePhase.ACTIVE)


async def test_an_old_version_that_fails_to_stop_does_not_stand_in_the_way() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        bench.script(bench.record("shop")).does["on_stop"] = raising
        story = await upgrade(bench, shop("2.0.0"), serving("new"))
        assert (story.record.phase, story.record.failure) == (ModulePhase.ACTIVE, None)
        assert bench.steps("shop")[-4:] == [
            "FAILED hook_failed:on_stop",
            "INSTALLED upgrade",
            "WAITING upgrade",
            "ACTIVE",
        ]
        assert await bench.process("user").ask("demo.shop") == "new"


async def test_an_old_version_that_failed_to_stop_is_loaded_afresh_for_a_rollback() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        bench.script(bench.record("shop")).does["on_stop"] = raising
        script = serving("new")
        script.does["on_start"] = raising
        with pytest.raises(UpgradeFailed):
            await upgrade(bench, shop("2.0.0"), script)
        assert bench.record("shop").version == "1.0.0"
        assert await bench.process("user").ask("demo.shop") == "old"
        assert bench.journal.count("shop 1.0.0 on_load") == 2


async def test_a_rollback_that_fails_too_is_told_with_both_reasons() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        old = bench.script(bench.record("shop"))
        script = serving("new")

        async def break_both(process: StandInProcess, values: dict[str, Any]) -> None:
            old.does["on_start"] = raising
            raise ValueError("broken")

        script.does["on_start"] = break_both
        with pytest.raises(UpgradeFailed) as failed:
            await upgrade(bench, shop("2.0.0"), script)
        record = bench.record("shop")
        assert (record.version, record.phase, record.reason) == (
            "1.0.0",
            ModulePhase.FAILED,
            "hook_failed:on_start",
        )
        assert "brought back and is FAILED" in failed.value.lines[-1]
        await bench.until("user", ModulePhase.WAITING)


@pytest.mark.parametrize("before", ["inactive", "paused", "failed", "waiting"])
async def test_what_does_not_serve_is_just_replaced_and_follows_its_intent(before: str) -> None:
    async with EngineBench() as bench:
        bench.data.kept["shop", 1] = {"doc": "old"}
        script = serving("old")
        requires = {"demo.none": "*"} if before == "waiting" else {}
        if before == "failed":
            script.does["on_start"] = raising
        await bench.install(shop("1.0.0", requires=requires), script)
        if before == "inactive":
            await bench.engine.act("shop", Verb.DEACTIVATE)
        if before == "paused":
            await bench.engine.act("shop", Verb.PAUSE, reason="why")
        story = await upgrade(bench, shop("2.0.0"), migrating(bench, serving("new")))
        if before in ("inactive", "paused"):
            assert (story.record.phase, story.record.previous_version) == (ModulePhase.INSTALLED, "1.0.0")
            assert "shop 2.0.0 construct" not in bench.journal
            await bench.engine.act("shop", Verb.RESUME if before == "paused" else Verb.ACTIVATE)
        record = bench.record("shop")
        assert (record.version, record.phase, record.generation) == ("2.0.0", ModulePhase.ACTIVE, 2)
        assert bench.journal.count("shop 2.0.0 on_upgrade") == 1
        await eventually(lambda: bench.data.kept == {("shop", 2): {"doc": "new"}})


async def test_a_module_without_on_upgrade_keeps_its_generation() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        script = serving("new")
        script.hooks.remove("on_upgrade")
        story = await upgrade(bench, shop("2.0.0"), script)
        assert story.record.generation == 1
        assert bench.data.kept == {("shop", 1): {"doc": "old"}}


async def test_a_call_in_the_middle_of_an_upgrade_waits_for_the_successor() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        script = serving("new")
        asked: list[asyncio.Task[Any]] = []

        async def ask(process: StandInProcess, values: dict[str, Any]) -> None:
            asked.append(asyncio.create_task(bench.process("user").ask("demo.shop")))
            await asyncio.sleep(0)

        script.does["on_load"] = ask
        await upgrade(bench, shop("2.0.0"), script)
        assert await asked[0] == "new"


async def test_a_capability_that_the_new_version_has_not_takes_its_consumers_back_to_waiting() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        await upgrade(bench, package(manifest("shop", "2.0.0", documents=True)), Script())
        record = await bench.until("user", ModulePhase.WAITING)
        assert record.reason == "waiting_for_capability:demo.shop"
        assert bench.book.types("demo.shop")[-1] is EventType.CAPABILITY_CLEARED


@pytest.mark.trap("T7")
@pytest.mark.parametrize("where", ["construct", "on_load", "on_upgrade", "on_start"])
async def test_a_host_that_ends_in_the_middle_of_an_upgrade_comes_up_with_the_old_version(where: str) -> None:
    book = MemoryPackageStore()
    async with EngineBench(book=book) as bench:
        await with_old(bench)
        reached = asyncio.Event()
        script = migrating(bench, serving("new"))

        async def stay(process: StandInProcess, values: dict[str, Any]) -> None:
            reached.set()
            await asyncio.Event().wait()

        script.does[where] = stay
        upgrading = asyncio.create_task(upgrade(bench, shop("2.0.0", hook_deadline_ms=30_000), script))
        await reached.wait()
        await bench.engine.close(budget=5)
        with pytest.raises(CorralError) as cut:
            await upgrading
        assert cut.value.code is Code.SHUTTING_DOWN
    async with EngineBench(book=book) as second:
        second.house.scripts, second.data.kept = bench.house.scripts, bench.data.kept
        await second.engine.boot()
        record = second.record("shop")
        assert (record.version, record.phase, record.generation) == ("1.0.0", ModulePhase.ACTIVE, 1)
        await second.until("user", ModulePhase.ACTIVE)
        assert second.data.kept["shop", 1] == {"doc": "old"}
        assert await second.process("user").ask("demo.shop") == "old"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("hook", ["on_load", "on_start"])
async def test_a_store_that_fails_in_the_middle_of_an_upgrade_leaves_one_version_serving(
    hook: str, after: bool
) -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        script = serving("new")

        async def unplug(process: StandInProcess, values: dict[str, Any]) -> None:
            bench.book.fail_next(1, after=after)

        script.does[hook] = unplug
        with pytest.raises(CorralError) as failed:
            await upgrade(bench, shop("2.0.0"), script)
        assert failed.value.code is Code.STORE_UNAVAILABLE
        expected = "new" if after and hook == "on_start" else "old"
        await eventually(lambda: _serves(bench, "shop"))
        await bench.until("user", ModulePhase.ACTIVE)
        assert await bench.process("user").ask("demo.shop") == expected
        assert bench.record("shop").version == ("2.0.0" if expected == "new" else "1.0.0")


async def test_routes_of_the_old_version_are_not_served_by_the_new_one() -> None:
    async with EngineBench() as bench:
        old, new = Script(), Script()
        for script, path in ((old, "/old"), (new, "/new")):
            route = RouteDeclaration(number=1, method="GET", path=path, permission="modules.read")
            script.registers = Registrations(routes=(route,))
        await bench.install(package(manifest("a")), old)
        await upgrade(bench, package(manifest("a", "1.1.0")), new)
        assert [route.path for route in bench.engine.routes.of("a")] == ["/new"]
        assert bench.engine.routes.find("a", "GET", "/new").scope.version == "1.1.0"


async def test_an_uninstall_waits_for_the_version_that_is_still_on_its_way_out() -> None:
    async with EngineBench() as bench:
        gate, old = asyncio.Event(), Script()

        async def linger(process: StandInProcess, values: dict[str, Any]) -> None:
            await gate.wait()

        old.does["on_unload"] = linger
        await bench.install(shop("1.0.0"), old)
        await upgrade(bench, shop("2.0.0"), Script())
        first, second = bench.house.started
        uninstall = asyncio.create_task(bench.engine.act("shop", Verb.UNINSTALL))
        await eventually(second.death.done)
        assert not first.death.done()
        asyncio.get_running_loop().call_later(0.05, gate.set)
        await uninstall
        assert first.death.done()
        assert bench.book.find("shop") is None


async def test_a_replacement_of_the_same_version_runs_the_new_archive() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        fixed = package(bench.record("shop").manifest, sha256="fixed")
        story = await upgrade(bench, fixed, serving("fixed"))
        assert (story.record.version, story.record.sha256) == ("1.0.0", "fixed")
        assert await bench.process("user").ask("demo.shop") == "fixed"
        assert story.record.intent is ModuleIntent.ACTIVE


@pytest.mark.trap("T79")
async def test_on_upgrade_is_not_called_for_the_version_whose_data_are_there() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        for edit in ("first", "second"):
            fixed = package(bench.record("shop").manifest, sha256=edit)
            story = await upgrade(bench, fixed, serving(edit))
            assert (story.record.sha256, story.record.phase) == (edit, ModulePhase.ACTIVE)
            construct = bench.house.started[-1].construct
            assert construct is not None
            assert (construct.previous_version, construct.is_upgrade) == ("", False)
        assert "shop 1.0.0 on_upgrade" not in bench.journal
        await eventually(lambda: bench.data.kept == {("shop", 3): {"doc": "old"}})


@pytest.mark.trap("T79")
async def test_a_replacement_of_the_same_version_that_fails_leaves_the_documents_as_they_were() -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        script = serving("spoilt")

        async def spoil(process: StandInProcess, values: dict[str, Any]) -> None:
            bench.data.kept["shop", 2]["doc"] = "spoilt"
            raise ValueError("broken")

        script.does["on_start"] = spoil
        with pytest.raises(UpgradeFailed):
            await upgrade(bench, package(bench.record("shop").manifest, sha256="spoilt"), script)
        await eventually(lambda: bench.data.kept == {("shop", 1): {"doc": "old"}})
        assert await bench.process("user").ask("demo.shop") == "old"


@pytest.mark.trap("T79")
@pytest.mark.parametrize("recovered_first", [False, True])
async def test_a_failed_upgrade_that_is_undone_by_hand_finds_its_documents_by_their_version(
    recovered_first: bool,
) -> None:
    async with EngineBench() as bench:
        await with_old(bench)
        broken = serving("new")
        broken.does["on_start"] = raising
        with pytest.raises(UpgradeFailed):
            await upgrade(bench, shop("4.0.0"), broken, rollback=False)
        if recovered_first:
            assert (await bench.engine.act("shop", Verb.RECOVER)).phase is ModulePhase.FAILED
        story = await upgrade(bench, shop("1.0.0"), serving("old"))
        assert (story.record.version, story.record.phase) == ("1.0.0", ModulePhase.ACTIVE)
        assert "shop 1.0.0 on_upgrade" not in bench.journal
        assert {data["doc"] for data in bench.data.kept.values()} == {"old"}
        story = await upgrade(bench, shop("2.0.0"), serving("new"))
        construct = bench.house.started[-1].construct
        assert construct is not None
        assert construct.previous_version == "1.0.0"


@pytest.mark.trap("T79")
async def test_a_version_that_never_ran_leaves_nothing_to_upgrade() -> None:
    async with EngineBench() as bench:
        await bench.install(package(manifest("shop", documents=True), intent=ModuleIntent.INACTIVE))
        await upgrade(bench, shop("2.0.0"), serving("new"))
        await bench.engine.act("shop", Verb.ACTIVATE)
        assert bench.phase("shop") is ModulePhase.ACTIVE
        assert "shop 2.0.0 on_upgrade" not in bench.journal


@pytest.mark.trap("T79")
@pytest.mark.parametrize(("previous", "runs"), [("", False), ("0.9.0", True)])
async def test_a_record_from_before_data_versions_is_read_by_what_it_says(previous: str, runs: bool) -> None:
    kept = msgspec.structs.replace(
        first_step(shop("1.0.0"), at=dt.datetime.now(dt.UTC)),
        intent=ModuleIntent.INACTIVE,
        previous_version=previous,
        data_version=None,
    )
    async with EngineBench() as bench:
        await bench.book.add(kept)
        await upgrade(bench, package(kept.manifest, sha256="fixed"), serving("fixed"))
        await bench.engine.act("shop", Verb.ACTIVATE)
        assert bench.phase("shop") is ModulePhase.ACTIVE
        assert ("shop 1.0.0 on_upgrade" in bench.journal) is runs
