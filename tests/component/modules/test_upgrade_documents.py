"""Upgrades through the API with real documents: all of it, or as if nothing had been tried."""

from __future__ import annotations

import asyncio
import pathlib
import textwrap

import pytest
from small_modules import archive as small_archive

from corral.cli.failure import CommandRefused
from corral.errors import Code, Rejected
from corral.testing.module_house import ModuleHouse
from corral.testing.waiting import eventually

MANIFEST = """
manifestVersion: 1
id: ledger
version: {version}
backend:
  controller: {{entrypoint: "ledger.module:Ledger"}}
capabilities:
  provides: [{{id: ledger.sum, version: {version}}}]
storage: {{documents: true, keyValue: true}}
"""
MODULE = """
from typing import Protocol
import msgspec
from corral.sdk import CapabilityBinding, F, Index, PlatformModule

class Entry(msgspec.Struct):
    amount: int

class Sum(Protocol):
    async def total(self) -> int: ...

class Ledger(PlatformModule):
    async def on_load(self, ctx):
        storage = ctx.require_document_storage()
        self.entries = storage.collection("entries", Entry)
        self.keys = ctx.require_key_value_storage()
    {upgrade}
    async def on_start(self, ctx):
        {start}
    def register_routes(self, routes):
        routes.post("/entries", self.add, body=Entry)
        routes.get("/entries", self.show)
    async def add(self, request):
        await self.entries.insert(request.body)
        await self.keys.increment("added")
    async def show(self, request):
        amounts = sorted([each.value.amount for each in await self.entries.find()])
        return {{"version": "{version}", "amounts": amounts, "added": await self.keys.get("added", int)}}
    async def total(self) -> int:
        return sum([each.value.amount for each in await self.entries.find()])
    def capability_handles(self):
        return [CapabilityBinding("ledger.sum", Sum, lambda: self)]
"""
DOUBLE = """
    async def on_upgrade(self, ctx):
        assert ctx.previous_version == "1.0.0" and ctx.is_upgrade
        async for entry in self.entries.find():
            await self.entries.update(entry.id, set={"amount": entry.value.amount * 2})
        await self.entries.insert(Entry(amount=1000))
        await self.keys.put("added", 99)
"""


def source(root: pathlib.Path, version: str, *, upgrade: str = "", start: str = "pass") -> pathlib.Path:
    (root / "ledger").mkdir(parents=True)
    (root / "module.yaml").write_text(MANIFEST.format(version=version))
    (root / "ledger" / "__init__.py").touch()
    text = textwrap.dedent(MODULE).format(version=version, upgrade=upgrade, start=start)
    (root / "ledger" / "module.py").write_text(text)
    return root


@pytest.fixture
async def old(cluster, scratch) -> ModuleHouse:
    controller = await cluster.controller()
    house = ModuleHouse(controller, source(scratch / "old", "1.0.0"), scratch)
    assert (await house.install())["phase"] == "ACTIVE"
    for amount in (1, 2, 3):
        await house.request("POST", "/entries", {"amount": amount})
    return house


def newer(old: ModuleHouse, scratch: pathlib.Path, **parts: str) -> ModuleHouse:
    return ModuleHouse(old.controller, source(scratch / "new", "2.0.0", **parts), scratch)


async def test_an_upgrade_migrates_the_documents_and_the_new_version_serves(old, scratch):
    new = newer(old, scratch, upgrade=DOUBLE)
    answer = await new.install()
    assert (answer["outcome"], answer["version"], answer["phase"]) == ("upgraded", "2.0.0", "ACTIVE")
    shown = await new.request("GET", "/entries")
    assert shown == {"version": "2.0.0", "amounts": [2, 4, 6, 1000], "added": 99}
    events = await new.controller.call("GET", "/api/v1/events?types=MODULE_UPGRADED,CAPABILITY_SWAPPED")
    assert {event["type"] for event in events["items"]} == {"MODULE_UPGRADED", "CAPABILITY_REBOUND"}


@pytest.mark.system
@pytest.mark.trap("T7")
@pytest.mark.parametrize(
    "parts",
    [
        {"upgrade": DOUBLE, "start": "raise RuntimeError('not today')"},
        {"upgrade": DOUBLE, "start": "import os; os._exit(3)"},
        {"upgrade": DOUBLE + "        raise SystemExit(1)\n"},
        {"upgrade": DOUBLE, "start": "import time; time.sleep(30)"},
    ],
    ids=["start throws", "start exits", "upgrade throws", "start hangs"],
)
async def test_after_a_failed_upgrade_everything_is_as_before(old, scratch, parts):
    new = newer(old, scratch, **parts)
    with pytest.raises(Rejected) as refusal:
        await new.install()
    assert refusal.value.code is Code.MODULE_UPGRADE_FAILED
    assert "1.0.0" in refusal.value.message
    if "raise RuntimeError" in parts.get("start", ""):
        assert "ledger/module.py:" in refusal.value.message
    module = await old.info()
    assert (module["version"], module["phase"]) == ("1.0.0", "ACTIVE")
    shown = await old.request("GET", "/entries")
    assert shown == {"version": "1.0.0", "amounts": [1, 2, 3], "added": 3}
    capabilities = await old.controller.call("GET", "/api/v1/capabilities")
    mine = next(each for each in capabilities["items"] if each["id"] == "ledger.sum")
    assert mine["version"] == "1.0.0"
    events = await old.controller.call("GET", "/api/v1/events?types=MODULE_UPGRADE_ROLLED_BACK")
    assert len(events["items"]) == 1
    await eventually(lambda: _only_one_archive(old))
    await old.request("POST", "/entries", {"amount": 4})
    assert (await old.request("GET", "/entries"))["amounts"] == [1, 2, 3, 4]


def _only_one_archive(house: ModuleHouse) -> bool:
    """The tried one may stay on the shelf until the next look; it must not be named by anything."""
    modules = house.controller.app.role.term.state.modules
    return [stored.record.version for _, stored in modules.items()] == ["1.0.0"]


async def test_without_rollback_the_failure_stays_and_recover_tries_again(old, scratch):
    new = newer(old, scratch, upgrade=DOUBLE, start="raise RuntimeError('not today')")
    with pytest.raises(Rejected) as refusal:
        await new.install(rollback=False)
    assert refusal.value.code is Code.MODULE_UPGRADE_FAILED
    module = await old.info()
    assert (module["version"], module["phase"]) == ("2.0.0", "FAILED")
    assert "not today" in module["failure"]["message"]


async def test_a_downgrade_and_other_bytes_have_to_be_meant(old, scratch):
    lower = ModuleHouse(old.controller, source(scratch / "lower", "0.9.0"), scratch)
    with pytest.raises(Rejected) as refusal:
        await lower.install()
    assert refusal.value.code is Code.MODULE_VERSION_CONFLICT
    assert (await lower.install(allow_downgrade=True))["outcome"] == "downgraded"
    other = ModuleHouse(old.controller, source(scratch / "other", "0.9.0", start="x = 1"), scratch)
    with pytest.raises(Rejected) as refusal:
        await other.install()
    assert refusal.value.code is Code.MODULE_VERSION_CONFLICT
    assert (await other.install(replace=True))["outcome"] == "replaced"
    assert (await other.install())["outcome"] == "unchanged"
    assert (await other.request("GET", "/entries"))["amounts"] == [1, 2, 3]


async def test_a_signature_is_kept_beside_its_archive_and_goes_with_it(cluster, scratch):
    controller = await cluster.controller()
    house = ModuleHouse(controller, source(scratch / "signed", "1.0.0"), scratch)
    built = await house.build()
    sent = await house.send_archive(built.path, signature=b"bm90aGluZw==")
    assert sent["signature"]["kind"] == "sig"
    shelf = controller.data / "artifacts"
    assert (shelf / f"{built.sha256}.zip.sig").read_bytes() == b"bm90aGluZw=="
    await controller.call("DELETE", "/api/v1/modules/ledger")
    assert not [path.name for path in shelf.iterdir() if path.is_file()]


async def test_an_upgrade_does_not_hold_what_is_wanted_active(old, scratch):
    new = newer(old, scratch)
    with pytest.raises(Rejected) as refusal:
        await new.install(activate=False)
    assert refusal.value.code is Code.INVALID_FIELD
    assert (await old.info())["version"] == "1.0.0"
    await old.act("deactivate")
    answer = await new.install(activate=False)
    assert (answer["version"], answer["phase"], answer["intent"]) == ("2.0.0", "INSTALLED", "inactive")


async def test_a_pause_without_a_reason_is_refused(old):
    for body in ({}, {"reason": ""}):
        with pytest.raises(CommandRefused) as refusal:
            await old.act("pause", body)
        assert refusal.value.status == 400
    assert (await old.info())["phase"] == "ACTIVE"


@pytest.mark.trap("T79")
async def test_other_bytes_of_the_same_version_do_not_migrate_the_documents_again(old, scratch):
    new = newer(old, scratch, upgrade=DOUBLE)
    await new.install()
    for edit in ("x = 1", "x = 2"):
        directory = source(scratch / edit.replace(" ", ""), "2.0.0", upgrade=DOUBLE, start=edit)
        answer = await ModuleHouse(old.controller, directory, scratch).install(replace=True)
        assert (answer["outcome"], answer["phase"]) == ("replaced", "ACTIVE")
    shown = await new.request("GET", "/entries")
    assert shown == {"version": "2.0.0", "amounts": [2, 4, 6, 1000], "added": 99}


async def test_an_install_beside_a_long_upgrade_is_refused_with_what_it_would_wait_for(old, scratch):
    gate = scratch / "gate"
    wait = f"import asyncio, pathlib\n        while not pathlib.Path({str(gate)!r}).exists(): await asyncio.sleep(0.01)"
    new = newer(old, scratch, start=wait)
    patient = scratch / "new" / "module.yaml"
    patient.write_text(patient.read_text().replace(':Ledger"}', ':Ledger", hookDeadlineMs: 30000}'))
    upgrading = asyncio.ensure_future(new.install())
    await eventually(lambda: _phase(old) != "ACTIVE")
    other = small_archive(scratch / "other", "other")
    try:
        with pytest.raises(Rejected) as refusal:
            await old.send_archive(other)
    finally:
        gate.touch()
    assert refusal.value.code is Code.CONFLICT
    assert "the upgrade of ledger from 1.0.0 to 2.0.0 is under way" in refusal.value.message
    assert (await upgrading)["phase"] == "ACTIVE"
    assert (await old.send_archive(other))["phase"] == "ACTIVE"


def _phase(house: ModuleHouse) -> str:
    modules = house.controller.app.role.term.state.modules
    return str(modules.find("ledger").record.phase)
