"""Archives that may not be installed: refused with a code, and not a trace of them is left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import yaml
from hostile_rig import Pen, code_of, pen
from hostile_zoo import harmless_archive
from module_steps import events_of, term_of
from small_modules import PLAIN, archive

from corral.domain.events import EventType
from corral.signing import new_key, sign_keyed
from corral.testing.archives import zipped
from corral.testing.cluster import LocalCluster
from corral.testing.signing_authority import SIGNER, SigningServices, Wrong

GOOD = {
    "manifestVersion": 1,
    "id": "beast",
    "version": "1.0.0",
    "backend": {"controller": {"entrypoint": "beast:Module"}},
}


def packed(more: dict[str, bytes] | None = None, **manifest: Any) -> bytes:
    said = yaml.safe_dump({**GOOD, **manifest}, sort_keys=False)
    return zipped({"module.yaml": said.encode(), "beast.py": PLAIN.encode(), **(more or {})})


def with_broken_content() -> bytes:
    """One byte of a file is another than its checksum was made of."""
    content = zipped({"module.yaml": yaml.safe_dump(GOOD).encode(), "beast.py": b"x" * 5000})
    at = content.index(b"beast.py") + 12
    return content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]


EXTENSION = {
    "id": "e",
    "variants": [
        {
            "id": "v",
            "platforms": ["paper"],
            "file": "e.jar",
            "sha256": "0" * 64,
            "installPath": "plugins/e.jar",
        }
    ],
}

BROKEN = {
    "no zip at all": (b"PK\x03\x04 and nothing else", "ARCHIVE_INVALID", ""),
    "nothing": (b"", "MISSING_FIELD", ""),
    "a zip that was cut short": (packed()[:-40], "ARCHIVE_INVALID", ""),
    "a zip with a file that is damaged": (with_broken_content(), "ARCHIVE_INVALID", ""),
    "no manifest": (zipped({"beast.py": b""}), "ARCHIVE_INVALID", "module.yaml"),
    "a path that leads out": (packed({"../evil.py": b""}), "PATH_REFUSED", "../evil.py"),
    "an unknown key": (packed(backdoor=True), "MANIFEST_INVALID", "module.yaml:7: backdoor: unknown key"),
    "an unknown key deep inside": (
        packed(capabilities={"provides": [{"id": "a.b", "version": "1.0.0", "secret": 1}]}),
        "MANIFEST_INVALID",
        "capabilities.provides[0].secret: unknown key",
    ),
    "a reserved id": (packed(id="platform"), "MANIFEST_INVALID", "platform"),
    "a file with another digest than it says": (
        packed({"e.jar": b"evil"}, extensions=[EXTENSION]),
        "MANIFEST_INVALID",
        hashlib.sha256(b"evil").hexdigest(),
    ),
    "an SDK there is not": (packed(api=">=99.0"), "MODULE_INCOMPATIBLE", "99"),
    "a cycle with itself": (
        packed(capabilities={"provides": [{"id": "a.b", "version": "1.0.0"}], "requires": [{"id": "a.b"}]}),
        "CAPABILITY_CYCLE",
        "in a circle, beast",
    ),
    "a cycle with another": (
        packed(
            capabilities={"provides": [{"id": "a.b", "version": "1.0.0"}], "requires": [{"id": "waits.for"}]}
        ),
        "CAPABILITY_CYCLE",
        "waiter",
    ),
    "a provider beside another": (
        packed(capabilities={"provides": [{"id": "zoo.lamb", "version": "2.0.0"}]}),
        "CAPABILITY_CONFLICT",
        "lamb",
    ),
    "a provider of what is built in": (
        packed(capabilities={"provides": [{"id": "corral.instance.files", "version": "1.0.0"}]}),
        "CAPABILITY_CONFLICT",
        "corral.instance.files",
    ),
}


async def traces(pen: Pen) -> dict[str, Any]:
    """All that an install could have left but what tells that it was refused."""
    controller = pen.controller
    uploads = controller.data / "uploads"
    return {
        "modules": [each["id"] for each in (await pen.ask("GET", "")).json()["items"]],
        "shelf": pen.shelf(),
        "uploads": sorted(path.name for path in uploads.glob("*")) if uploads.exists() else [],
        "blobs": sorted(
            str(stamp) for stamp in await term_of(controller).store.blobs.blob_stamps(limit=1000)
        ),
        "events": [
            (event.type, event.subject)
            for event in await events_of(controller)
            if event.type is not EventType.CAPABILITY_CONFLICT
        ],
        "capabilities": (await pen.ask("GET", "/capabilities")).json()["items"],
    }


@contextlib.asynccontextmanager
async def unchanged(pen: Pen) -> AsyncIterator[None]:
    before = await traces(pen)
    yield
    assert await traces(pen) == before
    assert pen.strays() == []


async def test_what_is_no_good_archive_is_refused_and_leaves_nothing(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    waiter = {"provides": [{"id": "waits.for", "version": "1.0.0"}], "requires": [{"id": "a.b"}]}
    async with pen(cluster, scratch) as made:
        await made.install(harmless_archive(made.scratch, "lamb"))
        await made.install(archive(made.scratch, "waiter", capabilities=waiter))
        assert await made.standing("waiter") == ("WAITING", "waiting_for_capability:a.b")
        told = {}
        async with unchanged(made):
            for name, (content, _, said) in BROKEN.items():
                answer = await made.send(content)
                told[name] = code_of(answer)
                assert said in answer.text, name
        for name, (
            content,
            _,
            _,
        ) in BROKEN.items():  # examined ones are kept for a while, to be installed otherwise
            dry = await made.send(content, dry_run=True)
            assert not dry.is_success or not dry.json()["ok"], name
        assert told == {name: code for name, (_, code, _) in BROKEN.items()}
        conflicts = [each for each in await events_of(made.controller) if "CONFLICT" in each.type]
        assert [each.subject for each in conflicts] == ["zoo.lamb", "corral.instance.files"]
        assert await made.standing("lamb") == ("ACTIVE", "")
        assert (await made.send(packed())).status_code == 201
        await made.uninstall("beast")


async def test_a_second_provider_is_refused_while_the_first_is_wanted_and_fails_later(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    async with pen(cluster, scratch) as made:
        await made.install(harmless_archive(made.scratch, "lamb"))
        assert (await made.ask("POST", "/lamb/pause", {"reason": "for the other"})).is_success
        rival = archive(
            made.scratch,
            "rival",
            source=PLAIN.replace("    pass", RIVAL),
            capabilities={"provides": [{"id": "zoo.lamb", "version": "1.0.0"}]},
        )
        assert (await made.install(rival))["phase"] == "ACTIVE"
        assert await made.act("lamb", "resume") == ("FAILED", "capability_conflict:zoo.lamb")
        assert await made.held("lamb") == []
        assert await made.standing("rival") == ("ACTIVE", "")
        await made.uninstall("rival")
        assert await made.act("lamb", "recover") == ("ACTIVE", "")
        await made.uninstall("lamb")


RIVAL = """
    def capability_handles(self):
        from corral.sdk import CapabilityBinding
        return [CapabilityBinding("zoo.lamb", Greeting, Greeting)]

class Greeting:
    async def greet(self, *, name: str) -> str:
        return name
"""


async def test_an_archive_that_was_changed_on_disk_is_never_loaded(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    """Neither the packed one nor the unpacked: both are made again from the store."""
    async with pen(cluster, scratch) as made:
        told = await made.install(harmless_archive(made.scratch, "lamb"))
        shelf = made.controller.data / "artifacts"
        evil = b"raise SystemExit('changed')"
        unpacked = shelf / "unpacked" / told["sha256"] / "lamb_module.py"
        for path, content in (
            (unpacked, evil),
            (shelf / f"{told['sha256']}.zip", zipped({"lamb_module.py": evil})),
        ):
            path.parent.chmod(0o755)
            path.chmod(0o644)
            path.write_bytes(content)
        again = (await made.ask("POST", "/lamb/reload")).json()
        assert again["phase"] == "ACTIVE", again["failure"]
        assert again["live"]["pid"] != told["live"]["pid"]
        assert b"changed" not in unpacked.read_bytes()
        await made.uninstall("lamb")


Signature = tuple[str, bytes] | None


async def check_signatures(
    made: Pen, path: pathlib.Path, wrong: dict[str, Signature], right: Signature
) -> None:
    told = {}
    async with unchanged(made):
        for name, signature in wrong.items():
            answer = await made.send(path, signature)
            told[name] = (answer.status_code, code_of(answer))
    assert told == dict.fromkeys(wrong, (422, "SIGNATURE_VERIFICATION_FAILED"))
    answer = await made.send(path, right)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["phase"], answer.json()["signature"] is None) == ("ACTIVE", False)
    await made.uninstall("small")


async def test_an_archive_without_the_signature_of_a_trusted_key_is_refused(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    key, (path, other) = new_key(), (archive(scratch / "a"), archive(scratch / "b", version="2.0.0"))
    trust = scratch / "trust.pem"
    trust.write_bytes(key.public_pem)
    flags = {"required": True, "mode": "keyed", "trust_root": str(trust)}
    async with pen(
        cluster, scratch, **{f"modules__signing__{name}": flag for name, flag in flags.items()}
    ) as made:
        good = sign_keyed(path, key.private_pem)
        wrong: dict[str, Signature] = {
            "missing": None,
            "of another archive": ("m.sig", sign_keyed(other, key.private_pem)),
            "foreign": ("m.sig", sign_keyed(path, new_key().private_pem)),
            "no signature": ("m.sig", b"bm90aGluZw=="),
            "changed": ("m.sig", good[:8] + (b"B" if good[8:9] == b"A" else b"A") + good[9:]),
            "no bundle": ("m.cosign.bundle", b"{}"),
        }
        await refused_unread(made, path, ("m.sig", good))
        await check_signatures(made, path, wrong, ("m.sig", good))


async def refused_unread(made: Pen, path: pathlib.Path, signature: Signature) -> None:
    """What does not carry its signature is not looked into: nobody says what else is wrong with it."""
    content = path.read_bytes()
    for changed in (b"PK\x03\x04 and nothing else", content[:-40], content[:60] + b"\xff" + content[61:]):
        for dry_run in (True, False):
            answer = await made.send(changed, signature, dry_run=dry_run)
            assert (answer.status_code, code_of(answer)) == (422, "SIGNATURE_VERIFICATION_FAILED")


@pytest.mark.parametrize("form", [SigningServices.classic, SigningServices.newer], ids=["classic", "newer"])
async def test_a_bundle_that_does_not_hold_is_refused(
    cluster: LocalCluster, scratch: pathlib.Path, form: Callable[..., bytes]
) -> None:
    house, (path, other) = (
        SigningServices(),
        (archive(scratch / "a"), archive(scratch / "b", version="2.0.0")),
    )
    root = house.write_trusted_root(scratch / "trusted_root.json")
    flags = {"required": True, "trust_root": str(root), "identities": [SIGNER], "allow_legacy_sig": False}
    async with pen(
        cluster, scratch, **{f"modules__signing__{name}": flag for name, flag in flags.items()}
    ) as made:
        bad = [
            Wrong.FOREIGN_ROOT,
            Wrong.WRONG_IDENTITY,
            Wrong.ANOTHER_SIGNATURE,
            Wrong.ENTRY_OF_ANOTHER_DIGEST,
            Wrong.ENTRY_BY_ANOTHER_KEY,
            Wrong.FOREIGN_LOG,
            Wrong.MISSING_ENTRY,
        ]
        wrong: dict[str, Signature] = {
            each.name: ("m.cosign.bundle", form(house, path, each)) for each in bad
        }
        wrong["missing"] = None
        wrong["of another archive"] = ("m.cosign.bundle", form(house, other))
        wrong["foreign throughout"] = ("m.cosign.bundle", form(SigningServices(), path))
        wrong["a plain signature"] = ("m.sig", sign_keyed(path, new_key().private_pem))
        await check_signatures(made, path, wrong, ("m.cosign.bundle", form(house, path)))


@pytest.mark.system
@pytest.mark.trap("T82")
async def test_a_schema_that_takes_a_minute_holds_up_nobody(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    """Nine hundred bytes of archive, which only had to be looked at: the whole controller stood still."""
    alternatives = {"anyOf": [{"const": 1}] * 3000}
    config: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": alternatives}},
    }
    config["properties"]["a"]["default"] = [0] * 20_000
    content = zipped(
        {"module.json": json.dumps({**GOOD, "config": config}).encode(), "beast.py": PLAIN.encode()}
    )
    async with pen(cluster, scratch) as made:
        looked_at = await made.send(content, dry_run=True)
        assert looked_at.status_code == 200
        assert "needs settings" in " ".join(looked_at.json()["warnings"])
        assert code_of(await made.send(content)) == "SETTINGS_INVALID"
        assert await made.held("beast") == []


@pytest.mark.trap("T82")
async def test_settings_that_are_nested_too_deep_are_refused_whatever_their_depth(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    refusals = {(422, "SETTINGS_INVALID"), (400, "INVALID_JSON")}
    async with pen(cluster, scratch) as made:
        await made.install(archive(made.scratch, "beast", "1.0.0", config={"type": "object"}))
        for levels in (33, 500, *range(955, 980), 5000):
            content = b'{"settings": {"a": ' + b"[" * levels + b"]" * levels + b"}}"
            answer = await made.put_bytes("/beast/config", content, **{"content-type": "application/json"})
            assert (answer.status_code, code_of(answer)) in refusals, (levels, answer.text)
        await made.uninstall("beast")
