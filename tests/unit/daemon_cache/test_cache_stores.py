"""What lies in the cache's directory: found again after a restart, and never believed blindly."""

from __future__ import annotations

import hashlib
import json
import os
import time

import msgspec
import pytest

from corral.daemon.cache.artifact_store import ArtifactFacts
from corral.daemon.cache.bootstrap_store import FORMAT, ISOLATED, BootstrapKey
from corral.daemon.cache.contents import PART_AGE_SECONDS, CacheContents
from corral.daemon.cache.sealed_files import SEAL_NS, SealedFiles
from corral.daemon.cache.template_store import REMEMBERED_FILES
from corral.daemon.workload.run_secrets import SecretGuard
from corral.domain.file_paths import Globs
from corral.domain.groups.secret_masks import SecretMask
from corral.domain.templates import TemplateFile, TemplateManifest
from corral.errors import Code, Rejected

NO_SECRETS = SecretGuard(SecretMask(), frozenset(), put_names=False)
KEY = BootstrapKey(
    group="lobby",
    user=ISOLATED,
    paths=("cache/",),
    config_format="paper",
    version="1.21",
    digest="d" * 64,
)


def scanned(root) -> CacheContents:
    stores = CacheContents(root)
    stores.scan()
    return stores


def stored(stores: CacheContents, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    part = stores.parts / f"{digest}.part"
    part.write_bytes(content)
    stores.contents.admit(part, digest)
    stores.added(len(content))
    return digest


def manifest_of(stores: CacheContents, **files: bytes) -> TemplateManifest:
    return TemplateManifest(
        files=tuple(
            TemplateFile(path=path, mode=0o644, size=len(content), digest=stored(stores, content))
            for path, content in sorted(files.items())
        )
    )


def put(
    stores: CacheContents, name: str, hash: str, *, now_ms: int = 1000, **files: bytes
) -> TemplateManifest:
    manifest = manifest_of(stores, **files)
    stores.templates.put(name, hash, manifest, now_ms=now_ms)
    return manifest


def artifact_facts(content: bytes) -> ArtifactFacts:
    return ArtifactFacts(
        platform="paper",
        version="1.21",
        file="server.jar",
        url="",
        sha256=hashlib.sha256(content).hexdigest(),
        size=len(content),
        cached_at_ms=5000,
    )


def test_a_restart_finds_what_was_there(scratch):
    first = scanned(scratch / "cache")
    manifest = put(first, "lobby", "a" * 64, now_ms=123_000, x=b"x" * 100, y=b"y" * 50)
    part = first.parts / "jar"
    part.write_bytes(b"jar")
    first.artifacts.put(part, artifact_facts(b"jar"))
    again = scanned(scratch / "cache")
    assert again.templates.manifest("a" * 64) == manifest
    assert [(one.name, one.size, one.used_ms) for one in again.templates.all()] == [("lobby", 150, 123_000)]
    assert [one.facts for one in again.artifacts.all()] == [artifact_facts(b"jar")]
    assert again.size == 150 + 3 + again.templates.all()[0].stored


def test_the_last_use_is_remembered_and_chooses_the_known_version(scratch):
    stores = scanned(scratch / "cache")
    put(stores, "lobby", "a" * 64, now_ms=1000, x=b"1")
    put(stores, "lobby", "b" * 64, now_ms=2000, x=b"2")
    put(stores, "other", "c" * 64, now_ms=9000, x=b"3")
    stores.templates.used("a" * 64, now_ms=3000)
    for one in (stores, scanned(scratch / "cache")):
        assert one.templates.newest("lobby").hash == "a" * 64
        assert one.templates.newest("nothing") is None


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(b"{"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: path.write_bytes(path.read_bytes().replace(b'"lobby"', b"7")),
        lambda path: path.rename(path.with_name("0" * 64 + ".json")),
        lambda path: path.rename(path.with_name(".tmp")),
    ],
    ids=["no JSON", "empty", "cut short", "wrong type", "another hash", "a temporary file"],
)
def test_a_damaged_entry_is_dropped_and_no_reason_to_fail(scratch, harm):
    stores = scanned(scratch / "cache")
    put(stores, "lobby", "a" * 64, x=b"1")
    harm(scratch / "cache" / "templates" / ("a" * 64 + ".json"))
    again = scanned(scratch / "cache")
    assert again.templates.all() == []
    assert list((scratch / "cache" / "templates").iterdir()) == []


def test_a_manifest_that_was_changed_on_disk_is_not_believed(scratch):
    stores = scanned(scratch / "cache")
    put(stores, "lobby", "a" * 64, x=b"1")
    path = scratch / "cache" / "templates" / ("a" * 64 + ".json")
    path.write_bytes(path.read_bytes().replace(b'"path":"x"', b'"path":"y"'))
    again = scanned(scratch / "cache")
    assert again.templates.manifest("a" * 64) is None
    assert again.templates.find("a" * 64) is None


def test_contents_are_sealed_read_only_and_recognised_without_reading(scratch):
    files = SealedFiles(scratch / "contents", fan_out=True)
    files.make()
    (scratch / "part").write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    files.admit(scratch / "part", digest)
    found = files.path(digest).stat()
    assert found.st_mtime_ns == SEAL_NS
    assert found.st_mode & 0o777 == 0o444
    assert files.sound(digest, 7)
    assert list(files.all()) == [(digest, 7)]


def test_a_hard_link_to_a_content_does_not_break_its_seal(scratch):
    files = SealedFiles(scratch / "contents", fan_out=True)
    files.make()
    (scratch / "part").write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    files.admit(scratch / "part", digest)
    os.link(files.path(digest), scratch / "linked")
    assert files.path(digest).stat().st_mtime_ns == SEAL_NS


def test_a_broken_seal_with_the_right_content_is_sealed_again_and_with_another_removed(scratch):
    dropped: list[int] = []
    files = SealedFiles(scratch / "contents", fan_out=True, dropped=dropped.append)
    files.make()
    digest = hashlib.sha256(b"content").hexdigest()
    (scratch / "part").write_bytes(b"content")
    files.admit(scratch / "part", digest)
    os.utime(files.path(digest))
    assert files.sound(digest, 7)
    assert files.path(digest).stat().st_mtime_ns == SEAL_NS
    files.path(digest).chmod(0o644)
    files.path(digest).write_bytes(b"CONTENT")
    assert not files.sound(digest, 7)
    assert not files.path(digest).exists()
    assert dropped == [7]


def test_a_link_in_place_of_a_content_is_not_followed(scratch):
    files = SealedFiles(scratch / "contents", fan_out=True)
    files.make()
    digest = hashlib.sha256(b"content").hexdigest()
    (scratch / "elsewhere").write_bytes(b"content")
    files.path(digest).symlink_to(scratch / "elsewhere")
    assert not files.sound(digest, 7)
    assert (scratch / "elsewhere").exists()


def test_parts_wait_a_day_for_their_continuation(scratch):
    stores = scanned(scratch / "cache")
    young, old, strange = (stores.parts / name for name in ("young.part", "old.part", "strange"))
    for path in (young, old, strange):
        path.write_bytes(b"x")
    past = time.time() - PART_AGE_SECONDS - 60
    os.utime(old, (past, past))
    again = scanned(scratch / "cache")
    assert [path.name for path in again.parts.iterdir()] == ["young.part"]
    assert again.size == 0


def test_while_the_daemon_runs_only_old_parts_go(scratch):
    stores = scanned(scratch / "cache")
    assert not stores.parts_due()
    past = time.time() - PART_AGE_SECONDS - 60
    for name in ("young.part", "old.part", "artifact-whole"):
        (stores.parts / name).write_bytes(b"x")
    os.utime(stores.parts / "old.part", (past, past))
    os.utime(stores.parts / "artifact-whole", (past, past))
    stores.drop_old_parts()
    assert sorted(path.name for path in stores.parts.iterdir()) == ["artifact-whole", "young.part"]


def test_the_lists_in_memory_are_those_used_last_and_not_too_many(scratch):
    stores = scanned(scratch / "cache")
    file = TemplateFile(path="x", mode=0o644, size=1, digest="d" * 64)
    many = TemplateManifest(files=(file,) * (REMEMBERED_FILES // 2))
    for letter in "abc":
        stores.templates.put("lobby", letter * 64, many, now_ms=1)
        stores.templates.remembered("a" * 64)
    assert stores.templates.remembered("a" * 64) is not None
    assert stores.templates.remembered("b" * 64) is None
    assert stores.templates.remembered("c" * 64) is not None
    stores.templates.forget("a" * 64)
    assert stores.templates.remembered("a" * 64) is None
    assert stores.templates.manifest("b" * 64) == many


def test_an_artifact_without_its_note_or_of_another_size_is_dropped(scratch):
    stores = scanned(scratch / "cache")
    for content in (b"one", b"two", b"three"):
        part = stores.parts / "jar"
        part.write_bytes(content)
        stores.artifacts.put(part, artifact_facts(content))
    root = scratch / "cache" / "artifacts"
    (root / f"{artifact_facts(b'one').sha256}.json").unlink()
    harmed = root / artifact_facts(b"two").sha256
    harmed.chmod(0o644)
    harmed.write_bytes(b"longer")
    again = scanned(scratch / "cache")
    assert [one.facts.size for one in again.artifacts.all()] == [5]
    assert len(list(root.iterdir())) == 2


def test_a_first_run_is_kept_whole_or_not_at_all(scratch):
    world = scratch / "work"
    (world / "cache").mkdir(parents=True)
    (world / "cache" / "a.jar").write_bytes(b"a" * 10)
    (world / "cache" / "classes.jsa").write_bytes(b"b" * 20)
    (world / "world.dat").write_bytes(b"w")
    (world / "cache" / "link").symlink_to("/etc/passwd")
    stores = scanned(scratch / "cache")
    assert (
        stores.bootstraps.copy_aside(
            KEY, world, Globs(("cache/",)), owner=os.geteuid(), limit=1000, guard=NO_SECRETS
        )
        == 30
    )
    assert scanned(scratch / "cache").bootstraps.all() == [], "a daemon that dies here has kept nothing"
    guard = SecretGuard(SecretMask(), frozenset({"cache/a.jar"}), put_names=False)
    assert (
        stores.bootstraps.copy_aside(
            KEY, world, Globs(("cache/",)), owner=os.geteuid(), limit=1000, guard=guard
        )
        == 20
    )
    stores.bootstraps.copy_aside(
        KEY, world, Globs(("cache/",)), owner=os.geteuid(), limit=1000, guard=NO_SECRETS
    )
    stores.bootstraps.put(KEY, now_ms=7000)
    for one in (stores, scanned(scratch / "cache")):
        (known,) = one.bootstraps.all()
        assert (known.key, known.size, known.has_cds) == (KEY, 30, True)
        tree = one.bootstraps.tree(KEY)
        assert sorted(path.name for path in tree.rglob("*")) == ["a.jar", "cache", "classes.jsa"]


@pytest.mark.trap("T77")
def test_a_file_into_which_a_workload_wrote_a_secret_is_no_first_run_result(scratch):
    world = scratch / "work"
    world.mkdir()
    (world / "plain").write_bytes(b"plain")
    (world / "large").write_bytes(b"x" * (2 << 20) + b"TOPSECRET" + b"x" * 10)
    stores = scanned(scratch / "cache")
    guard = SecretGuard(SecretMask({"PW": "TOPSECRET"}), frozenset(), put_names=False)
    size = stores.bootstraps.copy_aside(
        KEY, world, Globs(("**",)), owner=os.geteuid(), limit=9 << 20, guard=guard
    )
    assert size == 5
    stores.bootstraps.put(KEY, now_ms=7000)
    kept = [path for path in (scratch / "cache").rglob("*") if path.is_file()]
    assert [path.name for path in kept if path.parent == stores.bootstraps.tree(KEY)] == ["plain"]
    assert not any(b"TOPSECRET" in path.read_bytes() for path in kept)


def test_a_first_run_larger_than_its_limit_is_refused(scratch):
    world = scratch / "work"
    world.mkdir()
    (world / "big").write_bytes(b"a" * 1000)
    stores = scanned(scratch / "cache")
    with pytest.raises(Rejected) as caught:
        stores.bootstraps.copy_aside(
            KEY, world, Globs(("**",)), owner=os.geteuid(), limit=999, guard=NO_SECRETS
        )
    assert caught.value.code is Code.CACHE_FULL


def test_first_run_results_of_a_version_that_shared_them_are_removed(scratch):
    """They were known by format, version and jar alone, and came from whoever was first."""
    old = scratch / "cache" / "bootstraps" / hashlib.sha256(b"paper\x001.21\0" + b"d" * 64).hexdigest()
    (old / "tree").mkdir(parents=True)
    (old / "tree" / "planted").write_bytes(b"of another group")
    known = {"key": {"config_format": "paper", "version": "1.21", "digest": "d" * 64}, "size": 1}
    note = {"format": FORMAT, "version": 1, "value": {**known, "has_cds": False}}
    (old / "bootstrap.json").write_text(json.dumps(note))
    stores = scanned(scratch / "cache")
    assert (stores.bootstraps.all(), old.exists()) == ([], False)


@pytest.mark.trap("T76")
@pytest.mark.parametrize(
    "changed",
    [{"group": "other"}, {"user": "games"}, {"paths": ("cache/", "world/")}, {"digest": "e" * 64}],
    ids=lambda changed: next(iter(changed)),
)
def test_first_run_results_are_for_the_same_group_user_files_and_jar_alone(scratch, changed):
    world = scratch / "work"
    (world / "cache").mkdir(parents=True)
    (world / "cache" / "a.jar").write_bytes(b"a")
    stores = scanned(scratch / "cache")
    stores.bootstraps.copy_aside(
        KEY, world, Globs(KEY.paths), owner=os.geteuid(), limit=1000, guard=NO_SECRETS
    )
    stores.bootstraps.put(KEY, now_ms=7000)
    assert stores.bootstraps.find(KEY) is not None
    assert stores.bootstraps.find(msgspec.structs.replace(KEY, **changed)) is None
