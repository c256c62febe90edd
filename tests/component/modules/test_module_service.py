"""Modules of a real controller: install, upgrade, refuse, configure, remove; and what is left afterwards."""

from __future__ import annotations

import asyncio
import datetime as dt
import pathlib
from typing import Any

import msgspec
import pytest
from module_steps import OPERATOR, audited, install, modules_of, names_of, refusal, settled, term_of
from small_modules import archive

from corral.controller.modules.installer import InstallOptions, InstallOutcome
from corral.controller.modules.package_store import LEASE, UpgradeLease
from corral.controller.state.ledger import Actor
from corral.controller.templates.content_gc import BlobCollector
from corral.controller.term.leader_term import LeaderTerm
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.verbs import Verb
from corral.errors import Code, CorralError
from corral.modules.archive.compatibility import Outcome
from corral.signing import Sidecar, new_key, sign_keyed
from corral.system.clock import SystemClock
from corral.system.controller_config import TemplatesSection
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.waiting import eventually

RAISES = """
from corral.sdk import PlatformModule

class Module(PlatformModule):
    async def on_start(self, ctx):
        raise RuntimeError("not today")
"""
DELIBERATE = """
import asyncio
from corral.sdk import PlatformModule

class Module(PlatformModule):
    async def on_stop(self, ctx):
        await asyncio.sleep(30)
"""
SETTINGS = {"type": "object", "properties": {"greeting": {"type": "string", "default": "hello"}}}


class LeapingClock(SystemClock):
    """All its clocks leap together, as if so much time had passed."""

    def __init__(self) -> None:
        self._leap = dt.timedelta()

    def leap(self, by: dt.timedelta) -> None:
        self._leap += by

    def now(self) -> dt.datetime:
        return super().now() + self._leap

    def monotonic(self) -> float:
        return super().monotonic() + self._leap.total_seconds()


@pytest.fixture
async def controller(cluster: LocalCluster) -> LocalController:
    return await cluster.controller()


def shelf(controller: LocalController) -> list[str]:
    directory = controller.data / "artifacts"
    return sorted(path.name for path in directory.glob("*.zip")) if directory.exists() else []


async def test_a_module_is_installed_activated_and_told_about(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    answer = await install(controller, archive(scratch))
    assert answer.outcome is InstallOutcome.INSTALLED
    assert answer.record.phase is ModulePhase.ACTIVE
    assert term_of(controller).state.modules.require("small").record == answer.record
    assert await names_of(controller, "small") == ["MODULE_INSTALLED", "MODULE_WAITING", "MODULE_ACTIVATED"]
    assert await audited(controller) == [("operator", "modules.install", "small")]
    assert shelf(controller) == [f"{answer.record.sha256}.zip"]
    live = modules_of(controller).engine.live("small")
    assert live is not None
    assert live.pid > 0


async def test_the_same_archive_again_changes_nothing(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    path = archive(scratch)
    await install(controller, path)
    modules = modules_of(controller)
    pid, head = modules.engine.live("small").pid, term_of(controller).hub.head
    again = await install(controller, path, replace=True, allow_downgrade=True)
    assert again.outcome is InstallOutcome.UNCHANGED
    assert modules.engine.live("small").pid == pid
    assert term_of(controller).hub.head == head


async def test_a_package_can_be_installed_without_being_activated(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    answer = await install(controller, archive(scratch), activate=False)
    assert (answer.record.phase, answer.record.intent) == (ModulePhase.INSTALLED, ModuleIntent.INACTIVE)
    assert modules_of(controller).engine.live("small") is None
    record = await modules_of(controller).act("small", Verb.ACTIVATE, actor=OPERATOR)
    assert record.phase is ModulePhase.ACTIVE


async def test_a_higher_version_is_an_upgrade_and_what_is_left_of_the_old_one_goes(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    old = (await install(controller, archive(scratch))).record
    answer = await install(controller, archive(scratch, version="1.1.0"))
    assert answer.outcome is InstallOutcome.UPGRADED
    assert (answer.record.version, answer.record.phase) == ("1.1.0", ModulePhase.ACTIVE)
    assert answer.steps
    assert "MODULE_UPGRADED" in await names_of(controller, "small")
    await modules_of(controller)._parts.upkeep()
    assert shelf(controller) == [f"{answer.record.sha256}.zip"]
    assert old.sha256 not in str(list((controller.data / "artifacts" / "unpacked").iterdir()))


@pytest.mark.parametrize(
    ("version", "options", "outcome"),
    [
        ("1.0.0", {"replace": True}, InstallOutcome.REPLACED),
        ("0.9.0", {"allow_downgrade": True}, InstallOutcome.DOWNGRADED),
    ],
)
async def test_another_content_or_a_lower_version_wants_a_word(
    controller: LocalController, scratch: pathlib.Path, version: str, options: Any, outcome: InstallOutcome
) -> None:
    first = (await install(controller, archive(scratch))).record
    other = archive(scratch, version=version, description="another")
    error = await refusal(controller, other)
    assert error.code is Code.MODULE_VERSION_CONFLICT
    assert modules_of(controller).find("small") == first
    assert shelf(controller) == [f"{first.sha256}.zip"]
    answer = await install(controller, other, **options)
    assert answer.outcome is outcome
    assert answer.record.version == version


@pytest.mark.trap("T7")
async def test_a_failed_upgrade_leaves_the_old_version_serving(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    old = (await install(controller, archive(scratch))).record
    error = await refusal(controller, archive(scratch, version="2.0.0", source=RAISES))
    assert error.code is Code.MODULE_UPGRADE_FAILED
    record = modules_of(controller).find("small")
    assert (record.version, record.sha256, record.phase) == ("1.0.0", old.sha256, ModulePhase.ACTIVE)
    assert (await modules_of(controller).health("small")).healthy
    assert "MODULE_UPGRADE_ROLLED_BACK" in await names_of(controller, "small")
    await modules_of(controller)._parts.upkeep()
    assert shelf(controller) == [f"{old.sha256}.zip"]


@pytest.mark.parametrize(
    ("code", "made"),
    [
        (Code.MODULE_INCOMPATIBLE, {"api": ">=9"}),
        (Code.MANIFEST_INVALID, {"colour": "blue"}),
        (Code.SETTINGS_INVALID, {"config": {"type": "object", "required": ["must"]}}),
    ],
)
async def test_what_cannot_be_installed_leaves_nothing(
    controller: LocalController, scratch: pathlib.Path, code: Code, made: dict[str, Any]
) -> None:
    head = term_of(controller).hub.head
    error = await refusal(controller, archive(scratch, **made))
    assert error.code is code
    assert modules_of(controller).all() == []
    assert shelf(controller) == []
    assert term_of(controller).hub.head == head
    assert await audited(controller) == []


async def test_what_is_no_archive_is_refused(controller: LocalController, scratch: pathlib.Path) -> None:
    path = scratch / "no.cmod"
    path.write_bytes(b"this is no archive")
    assert (await refusal(controller, path)).code is Code.ARCHIVE_INVALID


async def test_two_providers_of_one_capability_are_refused_before_anything_is_stored(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    source = """
    from corral.sdk import CapabilityBinding, PlatformModule
    from typing import Protocol

    class Greeting(Protocol):
        async def hello(self) -> str: ...

    class Greeter:
        async def hello(self) -> str:
            return "hello"

    class Module(PlatformModule):
        def capability_handles(self):
            return [CapabilityBinding("greeting", Greeting, Greeter)]
    """
    provides = {"capabilities": {"provides": [{"id": "greeting", "version": "1.0.0"}]}}
    first = await install(controller, archive(scratch, "first", source=source, **provides))
    assert first.record.phase is ModulePhase.ACTIVE, first.record
    error = await refusal(controller, archive(scratch, "second", source=source, **provides))
    assert error.code is Code.CAPABILITY_CONFLICT
    told = (await controller.call("GET", "/api/v1/events?types=CAPABILITY_CONFLICT"))["items"]
    assert [(each["subject"], each["data"]["module"]) for each in told] == [("greeting", "second")]
    assert "already provided by module first" in told[0]["data"]["reason"]
    assert [record.id for record in modules_of(controller).all()] == ["first"]


async def test_examining_tells_what_would_happen_and_stores_nothing(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    modules = modules_of(controller)
    report = await modules.examine(archive(scratch), sidecar=None)
    assert (report.ok, report.action) == (True, Outcome.INSTALL)
    assert (modules.all(), shelf(controller)) == ([], [])
    bad = await modules.examine(archive(scratch, api=">=9"), sidecar=None)
    assert not bad.ok
    assert bad.problems[0].code == "MODULE_INCOMPATIBLE"


async def test_a_module_that_fails_is_failed_with_its_story_until_it_is_recovered(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    answer = await install(controller, archive(scratch, source=RAISES))
    assert answer.record.phase is ModulePhase.FAILED
    assert answer.record.reason == "hook_failed:on_start"
    assert answer.record.failure is not None
    assert "not today" in answer.record.failure.message + answer.record.failure.traceback
    again = await modules_of(controller).act("small", Verb.RECOVER, actor=OPERATOR)
    assert again.phase is ModulePhase.FAILED
    fixed = await install(controller, archive(scratch, version="1.0.1"))
    assert fixed.record.phase is ModulePhase.ACTIVE
    assert fixed.record.failure is None


async def test_verbs_move_the_module_and_are_audited_with_the_change(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    modules = modules_of(controller)
    await install(controller, archive(scratch))
    assert (await modules.act("small", Verb.DEACTIVATE, actor=OPERATOR)).phase is ModulePhase.INSTALLED
    assert (await modules.act("small", Verb.ACTIVATE, actor=OPERATOR)).phase is ModulePhase.ACTIVE
    paused = await modules.act("small", Verb.PAUSE, reason="a fix is coming", actor=OPERATOR)
    assert (paused.phase, paused.intent) == (ModulePhase.INSTALLED, ModuleIntent.PAUSED)
    assert paused.paused_reason == "a fix is coming"
    assert (await modules.act("small", Verb.RESUME, actor=OPERATOR)).phase is ModulePhase.ACTIVE
    with pytest.raises(CorralError) as caught:
        await modules.act("small", Verb.RECOVER, actor=OPERATOR)
    assert caught.value.code is Code.ILLEGAL_TRANSITION
    await modules.act("small", Verb.UNINSTALL, actor=OPERATOR)
    told = [action for _, action, _ in await audited(controller)]
    assert sorted(told) == sorted(
        [
            "modules.install",
            "modules.deactivate",
            "modules.activate",
            "modules.pause",
            "modules.resume",
            "modules.uninstall",
        ]
    )


async def test_verbs_asked_for_at_once_are_each_audited_under_who_asked(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    modules = modules_of(controller)
    await install(controller, archive(scratch))
    await asyncio.gather(
        modules.act("small", Verb.DEACTIVATE, actor=Actor(name="alice")),
        modules.act("small", Verb.ACTIVATE, actor=Actor(name="bob")),
        modules.act("small", Verb.PAUSE, reason="x", actor=Actor(name="carol")),
        modules.act("small", Verb.PAUSE, reason="x", actor=Actor(name="dave")),  # changes nothing any more
    )
    told = await audited(controller)
    assert sorted(told) == [
        ("alice", "modules.deactivate", "small"),
        ("bob", "modules.activate", "small"),
        ("carol", "modules.pause", "small"),
        ("operator", "modules.install", "small"),
    ]


async def test_a_verb_for_a_module_that_is_not_there_names_the_nearest(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    await install(controller, archive(scratch))
    modules = modules_of(controller)
    for call in (
        modules.act("smal", Verb.ACTIVATE, actor=OPERATOR),
        modules.act("smal", Verb.UNINSTALL, actor=OPERATOR),
        modules.act("smal", Verb.CONFIGURE, settings={}, actor=OPERATOR),
        modules.health("smal"),
        modules.read_frontend("smal", ""),
    ):
        with pytest.raises(CorralError) as caught:
            await call
        assert caught.value.code is Code.NOT_FOUND
        assert "small" in (caught.value.hint or "")


async def test_settings_have_defaults_and_are_checked_before_they_count(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    modules = modules_of(controller)
    answer = await install(controller, archive(scratch, config=SETTINGS))
    assert answer.record.settings == {"greeting": "hello"}
    record = await modules.act("small", Verb.CONFIGURE, settings={"greeting": "moin"}, actor=OPERATOR)
    assert record.settings == {"greeting": "moin"}
    assert record.phase is ModulePhase.ACTIVE
    with pytest.raises(CorralError) as caught:
        await modules.act("small", Verb.CONFIGURE, settings={"greeting": 7}, actor=OPERATOR)
    assert caught.value.code is Code.SETTINGS_INVALID
    upgraded = await install(controller, archive(scratch, version="1.1.0", config=SETTINGS))
    assert upgraded.record.settings == {"greeting": "moin"}


async def test_settings_can_come_with_the_archive(controller: LocalController, scratch: pathlib.Path) -> None:
    schema = {"type": "object", "required": ["must"], "properties": {"must": {"type": "integer"}}}
    path = archive(scratch, config=schema)
    assert (await refusal(controller, path, settings={"must": "x"})).code is Code.SETTINGS_INVALID
    answer = await install(controller, path, settings={"must": 3})
    assert answer.record.settings == {"must": 3}


async def test_an_uninstalled_module_leaves_nothing_but_its_data(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    source = """
    from corral.sdk import PlatformModule

    class Module(PlatformModule):
        async def on_start(self, ctx):
            await ctx.require_key_value_storage().put("seen", 1)
            await ctx.events.subscribe("GROUP_CREATED", self.heard, durable="mine")

        async def heard(self, event):
            pass
    """
    modules, state = modules_of(controller), term_of(controller).state
    answer = await install(controller, archive(scratch, source=source, storage={"keyValue": True}))
    assert answer.record.phase is ModulePhase.ACTIVE, answer.record
    assert [id for id, _ in state.module_cursors.items()] == ["small/mine"]
    with pytest.raises(CorralError) as caught:
        await modules.drop_storage("small", actor=OPERATOR)
    assert caught.value.code is Code.STORAGE_IN_USE
    await modules.act("small", Verb.UNINSTALL, actor=OPERATOR)
    assert modules.all() == []
    assert [id for id, _ in state.module_cursors.items()] == []
    assert modules.leaked() == []
    await modules._parts.upkeep()
    assert shelf(controller) == []
    assert (await modules.data.usage("small")).keys == 1
    await modules.drop_storage("small", actor=OPERATOR)
    assert await modules.data.generations("small") == []
    with pytest.raises(CorralError) as gone:
        await modules.drop_storage("small", actor=OPERATOR)
    assert gone.value.code is Code.NOT_FOUND


async def test_a_module_that_is_installed_again_finds_its_data(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    source = """
    from corral.sdk import Health, PlatformModule

    class Module(PlatformModule):
        async def on_start(self, ctx):
            self.kv = ctx.require_key_value_storage()
            await self.kv.increment("starts")

        async def health_check(self):
            return Health(healthy=True, detail=str((await self.kv.get("starts"))))
    """
    modules = modules_of(controller)
    path = archive(scratch, source=source, storage={"keyValue": True})
    await install(controller, path)
    await modules.act("small", Verb.UNINSTALL, actor=OPERATOR)
    await install(controller, path)
    assert "2" in (await modules.health("small")).detail


async def test_pages_of_a_module_are_read_from_its_archive_and_from_nowhere_else(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    files = {"frontend/index.html": b"<h1>hi</h1>", "frontend/app.js": b"1", "secret.txt": b"no"}
    page = {"frontend": {"entry": "index.html", "title": "Small"}}
    modules = modules_of(controller)
    await install(controller, archive(scratch, files=files, **page))
    entry = await modules.read_frontend("small", "")
    assert (entry.content, entry.content_type) == (b"<h1>hi</h1>", "text/html; charset=utf-8")
    assert (await modules.read_frontend("small", "app.js")).etag != entry.etag
    for path in ("../secret.txt", "nothing.js", "/etc/passwd", ".", "app.js/x", "a\0b"):
        with pytest.raises(CorralError) as caught:
            await modules.read_frontend("small", path)
        assert caught.value.code is Code.NOT_FOUND
    await install(
        controller, archive(scratch, version="1.1.0", files={"frontend/index.html": b"new"}, **page)
    )
    assert (await modules.read_frontend("small", "index.html")).content == b"new"


@pytest.mark.parametrize("damaged", [None, b"damaged", b""])
async def test_a_shelf_that_is_lost_or_damaged_is_made_again_from_the_store(
    controller: LocalController, scratch: pathlib.Path, damaged: bytes | None
) -> None:
    modules = modules_of(controller)
    record = (await install(controller, archive(scratch), activate=False)).record
    path = controller.data / "artifacts" / f"{record.sha256}.zip"
    path.unlink()
    if damaged is not None:
        path.write_bytes(damaged)
    assert (await modules.act("small", Verb.ACTIVATE, actor=OPERATOR)).phase is ModulePhase.ACTIVE
    assert path.stat().st_size == record.size


async def test_an_archive_that_is_nowhere_any_more_fails_the_module_with_a_reason(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    modules, store = modules_of(controller), term_of(controller).store
    path = archive(scratch)
    sha = (await install(controller, path, activate=False)).record.sha256
    await store.blobs.delete_blob(sha)
    (controller.data / "artifacts" / f"{sha}.zip").unlink()
    record = await modules.act("small", Verb.ACTIVATE, actor=OPERATOR)
    assert (record.phase, record.reason) == (ModulePhase.FAILED, "archive_missing")


async def test_the_collector_of_contents_keeps_what_installed_modules_need(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    key = new_key()
    term = term_of(controller)
    old = (await install(controller, archive(scratch))).record
    path = archive(scratch, version="2.0.0")
    carried = Sidecar(kind="sig", content=sign_keyed(path, key.private_pem))
    new = (await install(controller, path, sidecar=carried)).record
    clock = LeapingClock()
    collector = BlobCollector(
        term.store.blobs, config=TemplatesSection(collect_after_seconds=60), clock=clock
    )
    clock.leap(dt.timedelta(days=1))
    await collector.collect_now(term.state)
    assert await term.store.blobs.blob_info(old.sha256) is None
    assert await term.store.blobs.blob_info(new.sha256) is not None
    assert new.signature is not None
    assert await term.store.blobs.blob_info(new.signature.blob) is not None


async def test_signed_archives_are_proven_at_install_and_at_every_load(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    key = new_key()
    root = scratch / "keys.pem"
    root.write_bytes(key.public_pem)
    controller = await cluster.controller(
        modules__signing__required=True,
        modules__signing__mode="keyed",
        modules__signing__trust_root=str(root),
    )
    modules = modules_of(controller)
    path = archive(scratch)
    assert (await refusal(controller, path)).code is Code.SIGNATURE_VERIFICATION_FAILED
    strange = Sidecar(kind="sig", content=sign_keyed(path, new_key().private_pem))
    assert (await refusal(controller, path, sidecar=strange)).code is Code.SIGNATURE_VERIFICATION_FAILED
    assert (modules.all(), shelf(controller)) == ([], [])
    good = Sidecar(kind="sig", content=sign_keyed(path, key.private_pem))
    record = (await install(controller, path, sidecar=good, activate=False)).record
    assert record.signature is not None
    assert record.signature.key_sha256 == key.sha256
    broken = msgspec.structs.replace(record.signature, blob="")  # as if somebody had taken it away
    await modules._packages.step("small", lambda found: msgspec.structs.replace(found, signature=broken))
    refused = await modules.act("small", Verb.ACTIVATE, actor=OPERATOR)
    assert (refused.phase, refused.reason) == (ModulePhase.FAILED, "signature_refused")


async def test_a_controller_that_must_verify_and_cannot_does_not_start(cluster: LocalCluster) -> None:
    with pytest.raises(CorralError) as caught:
        await cluster.controller(modules__signing__required=True)
    assert caught.value.code is Code.INVALID_CONFIG


async def test_a_controller_is_ready_before_its_modules_are(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    may_start = scratch / "may-start"
    slow = f"""
    import asyncio, os
    from corral.sdk import PlatformModule

    class Module(PlatformModule):
        async def on_start(self, ctx):
            while not os.path.exists({str(may_start)!r}):
                await asyncio.sleep(0.01)
    """
    may_start.touch()
    first = await cluster.controller()
    await install(first, archive(scratch, source=slow, hook_ms=30_000))
    await first.app.stop()
    may_start.unlink()
    second = await cluster.controller()
    scope = modules_of(second).engine.scope
    assert scope("small") is None or not scope("small").serving
    assert (await second.call("GET", "/ready")) is not None
    may_start.touch()
    await eventually(lambda: scope("small") is not None and scope("small").serving)
    assert "host_restarted" in {step.reason for step in modules_of(second).find("small").history}


@pytest.mark.system
async def test_a_module_that_will_not_stop_does_not_hold_up_the_end(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    controller = await cluster.controller()
    await install(controller, archive(scratch, source=DELIBERATE, hook_ms=30_000))
    async with asyncio.timeout(15):
        await controller.app.stop()
    again = await cluster.controller()
    await eventually(lambda: modules_of(again).engine.live("small"))
    await settled(again, "small", ModulePhase.ACTIVE)


async def test_the_lease_is_taken_for_an_upgrade_and_given_back(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    store = term_of(controller).store
    guard = UpgradeLease(store.leases, holder="me")
    async with guard():
        row = await store.leases.read_lease(LEASE)
        assert row is not None
        assert row.holder == "me"
    row = await store.leases.read_lease(LEASE)
    assert row is not None
    assert row.holder == ""
    await store.leases.take_lease(LEASE, holder="dead", seen=row)  # a leader that died while it upgraded
    await install(controller, archive(scratch))
    await install(controller, archive(scratch, version="1.1.0"))
    row = await store.leases.read_lease(LEASE)
    assert row is not None
    assert row.holder == ""


async def test_upgrades_wait_for_each_other(controller: LocalController, scratch: pathlib.Path) -> None:
    await install(controller, archive(scratch))
    versions = [f"1.{number}.0" for number in range(1, 5)]
    answers = await asyncio.gather(
        *(install(controller, archive(scratch, version=version)) for version in versions),
        return_exceptions=True,
    )
    taken = [answer for answer in answers if not isinstance(answer, BaseException)]
    refused = [answer for answer in answers if isinstance(answer, CorralError)]
    assert len(taken) + len(refused) == 4
    assert all(error.code is Code.MODULE_VERSION_CONFLICT for error in refused)
    record = modules_of(controller).find("small")
    assert (record.version, record.phase) == ("1.4.0", ModulePhase.ACTIVE)


async def test_figures_of_modules_appear_at_metrics_and_go_with_them(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    source = """
    from corral.sdk import PlatformModule

    class Module(PlatformModule):
        async def on_start(self, ctx):
            ctx.metrics.counter("jumps", "How often.").increase(3, world="a")
            ctx.logger.warning("hello from inside")
    """
    await install(controller, archive(scratch, source=source))
    metrics = term_of(controller).http.setting.metrics

    async def shown(line: str) -> bool:
        return line in (await metrics.exposition()).decode()

    await eventually(lambda: shown('corral_module_jumps_total{module="small",world="a"} 3.0'))
    await eventually(lambda: shown('corral_module_memory_bytes{module="small"}'))
    assert await shown('corral_module_leaked{module="small"} 0.0')
    assert await shown('corral_module_classloader_leaked{moduleId="small"} 0.0')
    assert await shown('corral_module_calls_total{module="small"}')
    assert await shown(
        'corral_capability_calls_total{capability="corral.instance.files",provider="corral"} 0.0'
    )
    await modules_of(controller).act("small", Verb.UNINSTALL, actor=OPERATOR)
    assert not await shown("small")


async def test_a_process_that_will_not_end_is_killed_listed_told_of_and_counted(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    source = """
    import threading, time
    from corral.sdk import PlatformModule

    class Module(PlatformModule):
        def on_start(self, ctx):
            threading.Thread(target=time.sleep, args=(3600,), name="stubborn", daemon=False).start()
    """
    controller = await cluster.controller(modules__leak_grace_seconds=1)
    modules = modules_of(controller)
    await install(controller, archive(scratch, source=source))
    pid = modules.engine.live("small").pid
    await modules.act("small", Verb.UNINSTALL, actor=OPERATOR)
    await eventually(lambda: [leak.killed for leak in modules.leaked()] == [True])
    assert not pathlib.Path(f"/proc/{pid}").exists()

    async def told() -> bool:
        return "MODULE_LEAKED" in await names_of(controller, "small")

    await eventually(told)
    shown = (await term_of(controller).http.setting.metrics.exposition()).decode()
    assert 'corral_module_leaked{module="small"} 1.0' in shown


@pytest.mark.trap("T15")
async def test_a_deposed_leader_s_modules_write_nothing(
    controller: LocalController, scratch: pathlib.Path
) -> None:
    """Its store refuses every step, though its engine and its processes do not know yet."""
    modules, term = modules_of(controller), term_of(controller)
    await install(controller, archive(scratch))
    store = term.store
    before = await stored_package(term, "small")
    row = await store.leases.read_lease("leader")
    assert await store.leases.take_lease("leader", holder="successor", seen=row) is not None
    options = InstallOptions()
    for call in (
        lambda: modules.act("small", Verb.DEACTIVATE, actor=OPERATOR),
        lambda: modules.install(archive(scratch, "other"), sidecar=None, options=options, actor=OPERATOR),
        lambda: modules.act("small", Verb.CONFIGURE, settings={}, actor=OPERATOR),
        lambda: modules.act("small", Verb.UNINSTALL, actor=OPERATOR),
    ):
        with pytest.raises(CorralError) as caught:
            await call()
        assert caught.value.code in (Code.FENCED, Code.SHUTTING_DOWN, Code.MODULE_BUSY)

    async def started_by_the_next_term() -> dict[str, Any] | None:
        found = await stored_package(term, "small")
        return found if len(found["history"]) >= len(before["history"]) + 4 else None

    after = await eventually(started_by_the_next_term)
    since = [step["reason"] for step in after["history"][len(before["history"]) :]]
    assert since == ["host_restarted", "host_restarted", "", ""]
    changing = ("history", "updated_at")
    assert {**after, **dict.fromkeys(changing)} == {**before, **dict.fromkeys(changing)}
    assert await store.reads.get("module_packages", "other") is None


async def stored_package(term: LeaderTerm, id: str) -> dict[str, Any]:
    document = await term.store.reads.get("module_packages", id)
    assert document is not None
    return msgspec.json.decode(document.body, type=dict[str, Any])
