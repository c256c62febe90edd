"""What an install would do, and what is in its way."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from corral.domain.modules.manifest import Manifest
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import PackageRecord, SignatureFacts
from corral.errors import Code
from corral.modules.archive.archive_reader import ArchiveFacts
from corral.modules.archive.compatibility import (
    CompatibilityReport,
    Outcome,
    RequirementState,
    refusal,
    report,
)
from corral.modules.manifest.manifest_reader import read_manifest

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def module(version: str = "1.0.0", *, id: str = "stats", more: str = "", api: str = "^1") -> Manifest:
    return read_manifest(
        f"manifestVersion: 1\nid: {id}\nversion: {version}\napi: '{api}'\n"
        f"backend: {{controller: {{entrypoint: 'a:B'}}}}\n{more}"
    )


def facts(manifest: Manifest, sha256: str = "a" * 64) -> ArchiveFacts:
    return ArchiveFacts(
        manifest=manifest,
        manifest_text="",
        manifest_name="module.yaml",
        sha256=sha256,
        size=1,
        unpacked_bytes=1,
        files=(),
    )


def installed(manifest: Manifest, sha256: str = "b" * 64, **fields: Any) -> PackageRecord:
    return PackageRecord(
        id=manifest.id,
        version=manifest.version,
        sha256=sha256,
        size=1,
        manifest=manifest,
        installed_at=NOW,
        updated_at=NOW,
        **({"phase": ModulePhase.ACTIVE} | fields),
    )


PROVEN = SignatureFacts(kind="cosign-bundle", key_sha256="0" * 64)


def judged(manifest: Manifest, *others: PackageRecord, **options: Any) -> CompatibilityReport:
    usual = {"sdk_version": "1.0.0", "signature": PROVEN}
    return report(facts(manifest), others, **(usual | options))


@pytest.mark.parametrize(
    ("here", "new", "action"),
    [
        ("1.0.0", "1.0.1", Outcome.UPGRADE),
        ("1.9.0", "1.10.0", Outcome.UPGRADE),
        ("2.0.0-rc.1", "2.0.0", Outcome.UPGRADE),
        ("1.0.0", "1.0.0", Outcome.REPLACE),
        ("1.0.0+a", "1.0.0+b", Outcome.REPLACE),
        ("2.0.0", "2.0.0-rc.1", Outcome.DOWNGRADE),
        ("1.10.0", "1.9.0", Outcome.DOWNGRADE),
    ],
)
def test_version_and_digest_say_what_it_is(here: str, new: str, action: Outcome) -> None:
    found = judged(module(new), installed(module(here)))
    assert found.action is action
    assert found.current_version == here
    assert found.ok is (action is Outcome.UPGRADE)


def test_nothing_installed_is_an_install() -> None:
    found = judged(module())
    assert (found.action, found.ok, found.current_version) == (Outcome.INSTALL, True, "")
    assert refusal(found) is None


def test_the_same_digest_changes_nothing_whatever_stands_around_it() -> None:
    provides = "capabilities: {provides: [{id: x.y, version: 1.0.0}]}\n"
    here = installed(module(more=provides), "a" * 64)
    rival = installed(module(id="rival", more=provides))
    found = judged(module(more=provides), here, rival, sdk_version="9.0.0")
    assert (found.action, found.ok) == (Outcome.NOTHING, True)


def test_same_version_and_lower_version_need_to_be_asked_for() -> None:
    refused = refusal(judged(module("1.0.0"), installed(module("1.0.0"))))
    assert refused is not None
    assert (refused.code, refused.field) == (Code.MODULE_VERSION_CONFLICT, "version")
    assert "--replace" in (refused.hint or "")
    assert judged(module("1.0.0"), installed(module("1.0.0")), replace=True).ok
    lower = judged(module("0.9.0"), installed(module("1.0.0")), replace=True)
    assert "--allow-downgrade" in lower.problems[0].hint
    assert judged(module("0.9.0"), installed(module("1.0.0")), allow_downgrade=True).ok


def test_a_module_for_another_interface_is_refused() -> None:
    found = judged(module(api=">=2"))
    assert [each.code for each in found.problems] == ["MODULE_INCOMPATIBLE"]
    assert "corral.sdk >=2, this host has 1.0.0" in found.problems[0].message


def test_an_archive_that_nobody_signed_or_whose_signature_nobody_checked_is_told() -> None:
    assert "it is not signed" in judged(module(), signature=None).warnings[0]
    unchecked = judged(module(), signature=SignatureFacts(kind="sig"))
    assert "not verified" in unchecked.warnings[0]
    assert judged(module()).warnings == ()


def test_conflicts_and_cycles_are_problems() -> None:
    provides = "capabilities: {provides: [{id: x.y, version: 1.0.0}]}\n"
    rival = installed(module(id="rival", more=provides))
    assert judged(module(more=provides), rival).problems[0].code == "CAPABILITY_CONFLICT"
    paused = installed(module(id="rival", more=provides), intent=ModuleIntent.PAUSED)
    assert judged(module(more=provides), paused).ok
    circle = "capabilities: {provides: [{id: x.y, version: 1.0.0}], requires: [{id: x.y}]}\n"
    assert judged(module(more=circle)).problems[0].code == "CAPABILITY_CYCLE"
    assert judged(module(more=provides), built_in={"x.y"}).problems[0].code == "CAPABILITY_CONFLICT"


def test_requirements_are_shown_with_who_could_meet_them() -> None:
    needs = (
        "capabilities: {requires: [{id: here, versionRange: ^1}, {id: later}, {id: old, versionRange: ^2},"
        " {id: gone}, {id: nice, optional: true}, {id: host.thing}]}\n"
    )
    others = [
        installed(module(id="a", more="capabilities: {provides: [{id: here, version: 1.4.0, deprecatedSince: 1.3.0}]}\n")),
        installed(
            module(id="b", more="capabilities: {provides: [{id: later, version: 1.0.0}]}\n"),
            phase=ModulePhase.FAILED,
        ),
        installed(module(id="c", more="capabilities: {provides: [{id: old, version: 1.0.0}]}\n")),
    ]  # fmt: skip
    found = judged(module(more=needs), *others, built_in={"host.thing"})
    assert found.ok
    assert [(each.id, each.state, each.provider) for each in found.requires] == [
        ("here", RequirementState.BOUND, "a"),
        ("later", RequirementState.WAITING, "b"),
        ("old", RequirementState.MISMATCH, "c"),
        ("gone", RequirementState.MISSING, ""),
        ("nice", RequirementState.MISSING, ""),
        ("host.thing", RequirementState.BOUND, ""),
    ]
    assert found.warnings == (
        "it will wait for later *: b is not active",
        "it will wait for old ^2: c provides 1.0.0",
        "it will wait for gone *: nothing provides it",
        "here of a is deprecated since 1.3.0",
    )


def test_settings_that_do_not_fit_the_new_version_are_a_problem() -> None:
    new = module("2.0.0", more="config: {type: object, properties: {n: {type: integer}}}\n")
    found = judged(new, installed(module(), settings={"n": "text"}))
    assert [(each.code, each.field) for each in found.problems] == [("SETTINGS_INVALID", "n")]
    assert judged(new, installed(module(), settings={"n": 1})).ok


def test_settings_that_are_needed_are_announced() -> None:
    found = judged(module(more="config: {type: object, required: [url]}\n"))
    assert found.ok
    assert found.warnings[0].startswith("it needs settings: ")


def test_users_of_what_changes_are_warned_of() -> None:
    before = installed(
        module(more="capabilities: {provides: [{id: a, version: 1.0.0}, {id: b, version: 1.0.0}]}\n")
    )
    user = installed(
        module(id="user", more="capabilities: {requires: [{id: a, versionRange: ^1}, {id: b}]}\n")
    )
    new = module("2.0.0", more="capabilities: {provides: [{id: a, version: 2.0.0}]}\n")
    assert judged(new, before, user).warnings == (
        "user needs a ^1, this provides 2.0.0",
        "user uses b, which this version does not provide any more",
    )


def test_an_old_signature_is_warned_of() -> None:
    found = judged(module(), signature=SignatureFacts(kind="sig", key_sha256="0" * 64, legacy=True))
    assert "sign it with a cosign bundle" in found.warnings[0]
    assert found.ok
