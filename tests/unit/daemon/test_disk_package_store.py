"""The node's book of modules, on a disk that may fail or be cut off at any moment."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from corral.daemon.modules.package_store import ArchiveRefusal, DiskPackageStore, NodePackage
from corral.daemon.modules.state_reports import set_entry, state_updates
from corral.domain.modules.lifecycle_decisions import first_step, stepped
from corral.domain.modules.manifest import Manifest
from corral.domain.modules.phases import ModuleIntent, ModulePhase, ModuleTrigger
from corral.domain.modules.records import FailureDetails, PackageRecord
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.clock import SystemClock

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
MANIFEST = {
    "manifestVersion": 1,
    "id": "small",
    "version": "1.0.0",
    "api": "*",
    "hosts": ["daemon"],
    "backend": {"daemon": {"entrypoint": "small:Module"}},
}
RECORD = PackageRecord(
    id="small",
    version="1.0.0",
    sha256="1" * 64,
    size=10,
    manifest=msgspec.convert(MANIFEST, Manifest),
    installed_at=NOW,
    updated_at=NOW,
)
REFUSAL = ArchiveRefusal(
    sha256="2" * 64, version="2.0.0", code="MODULE_UPGRADE_FAILED", error="why\nstory", at=NOW
)


class Shelf:
    """A book, what it told, and its successor after a crash."""

    def __init__(self, directory) -> None:
        self.directory = directory
        self.told: list[tuple[str, str, str]] = []
        self.book = DiskPackageStore(directory, clock=SystemClock(), kept=self.kept)
        self.book.load()

    def kept(self, before: NodePackage, after: NodePackage, reason: str) -> None:
        for message in state_updates(before, after, reason, NOW):
            update = message.module_state_update
            self.told.append((update.from_state, update.state, update.reason))

    def crashed(self) -> DiskPackageStore:
        return Shelf(self.directory).book


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "records")


def to(trigger: ModuleTrigger, reason: str = "", **more):
    return lambda record: stepped(record, trigger, reason=reason, at=NOW, **more)


async def test_every_step_is_on_the_disk_before_it_is_told(shelf):
    await shelf.book.add(first_step(RECORD, at=NOW))
    await shelf.book.step("small", to(ModuleTrigger.ACTIVATE))
    failure = FailureDetails(at=NOW, reason="hook_failed:on_start", message="no")
    await shelf.book.step("small", to(ModuleTrigger.FAIL, "hook_failed:on_start", failure=failure))
    assert shelf.crashed().all() == shelf.book.all()
    assert shelf.told == [
        ("", "INSTALLED", "installed"),
        ("INSTALLED", "WAITING", ""),
        ("WAITING", "FAILED", "hook_failed:on_start"),
    ]
    entry = set_entry(shelf.book.package("small"))
    assert (entry.state, entry.last_error) == ("FAILED", "hook_failed:on_start: no")
    await shelf.book.remove("small", reason="uninstall")
    assert shelf.told[-1] == ("FAILED", "UNLOADED", "uninstall")
    assert shelf.crashed().packages() == []


async def test_a_change_beside_the_phase_is_told_as_one_that_stays(shelf):
    await shelf.book.add(first_step(RECORD, at=NOW))
    await shelf.book.step("small", lambda record: msgspec.structs.replace(record, intent=ModuleIntent.PAUSED))
    await shelf.book.note_settings("small", "a" * 64)
    await shelf.book.step("small", lambda record: record)
    assert shelf.told[1:] == [("INSTALLED", "INSTALLED", "installed")]
    assert shelf.crashed().package("small").settings_sha256 == "a" * 64


async def test_what_was_refused_is_remembered_until_another_archive_takes_its_place(shelf):
    await shelf.book.refuse("small", REFUSAL)
    assert shelf.told == [("", "FAILED", "refused:module_upgrade_failed")]
    entry = set_entry(shelf.crashed().package("small"))
    assert (entry.sha256, entry.refused_sha256, entry.state) == ("", REFUSAL.sha256, "FAILED")
    assert shelf.book.find("small") is None
    await shelf.book.add(first_step(RECORD, at=NOW))
    await shelf.book.refuse("small", REFUSAL)
    await shelf.book.step("small", to(ModuleTrigger.ACTIVATE))
    assert shelf.crashed().package("small").refused == REFUSAL
    await shelf.book.step("small", lambda record: msgspec.structs.replace(record, sha256="3" * 64))
    assert shelf.crashed().package("small").refused is None


async def test_an_archive_that_is_lost_is_none_for_the_controller(shelf):
    await shelf.book.add(first_step(RECORD, at=NOW))
    await shelf.book.step("small", to(ModuleTrigger.FAIL, "cannot_load:digest_mismatch"))
    assert set_entry(shelf.book.package("small")).sha256 == ""
    await shelf.book.step("small", to(ModuleTrigger.RECOVER))
    assert set_entry(shelf.book.package("small")).sha256 == RECORD.sha256


async def test_a_disk_that_refuses_changes_nothing_and_tells_nothing(shelf):
    await shelf.book.add(first_step(RECORD, at=NOW))
    told = list(shelf.told)
    (shelf.directory / "small.json").unlink()
    (shelf.directory / "small.json").mkdir()
    with pytest.raises(Retryable) as caught:
        await shelf.book.step("small", to(ModuleTrigger.ACTIVATE))
    assert caught.value.code is Code.STORE_UNAVAILABLE
    record = shelf.book.find("small")
    assert record is not None
    assert record.phase is ModulePhase.INSTALLED
    assert shelf.told == told


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"format": "other", "version": 1, "value": {"id": "small"}}',
        b'{"format": "corral-node-module", "version": 99, "value": {"id": "small"}}',
        b'{"format": "corral-node-module", "version": 1, "value": {"id": "another"}}',
        b'{"format": "corral-node-module", "version": 1, "value": {"id": "small", "record": 7}}',
        b"\xff\xfe",
    ],
)
def test_a_file_that_cannot_be_read_is_set_aside_and_does_not_harm_the_others(shelf, content):
    (shelf.directory / "small.json").write_bytes(content)
    assert shelf.crashed().packages() == []
    assert [path.name for path in shelf.directory.iterdir()] == ["small.json.damaged"]


async def test_nothing_is_stepped_that_is_not_there_nor_added_twice(shelf):
    with pytest.raises(CorralError) as missing:
        await shelf.book.step("small", to(ModuleTrigger.ACTIVATE))
    assert missing.value.code is Code.NOT_FOUND
    await shelf.book.add(first_step(RECORD, at=NOW))
    with pytest.raises(Rejected) as twice:
        await shelf.book.add(RECORD)
    assert twice.value.code is Code.ALREADY_EXISTS
    await shelf.book.remove("nobody", reason="uninstall")


async def test_wishes_that_were_carried_out_are_known_also_when_another_archive_comes_up(shelf):
    await shelf.book.refuse("small", REFUSAL)
    await shelf.book.carried_out("small", recovered_ms=5, reloaded_ms=6)
    await shelf.book.add(first_step(RECORD, at=NOW))
    package = shelf.crashed().package("small")
    assert (package.refused, package.recovered_ms, package.reloaded_ms) == (None, 5, 6)
