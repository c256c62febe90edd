"""Static directories: seeded once, brought up to date file by file, never lost."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import msgspec
import pytest

from corral.daemon.workload.start_stages import StageFailed
from corral.domain.groups.group import PatchSpec
from corral.errors import Code

WORLD = b"years of work\n"


@pytest.fixture
def plan(bench, make_plan):
    def made(files, **fields):
        template = bench.cache.template("t", files)
        return make_plan(templates=(template,), static=True, **fields)

    return made


async def test_a_static_directory_is_seeded_once(bench, plan, tree):
    first = plan({"a": b"1", "config/b": b"1"})
    made = await bench.make(first)
    assert made == bench.data / "static" / "one"
    (made / "a").write_bytes(b"the workload's own")
    (made / "world").write_bytes(WORLD)
    bench.cache.asked.clear()
    again = await bench.make(first, incarnation=2048)
    assert tree(again) == {"a": b"the workload's own", "config/b": b"1", "world": WORLD}
    assert bench.cache.asked == [], "nothing has changed: nothing has to be fetched"
    assert bench.staged() == []


async def test_a_changed_template_replaces_its_files_and_deletes_nothing(bench, plan, tree):
    made = await bench.make(plan({"a": b"1", "gone": b"1", "keep/me": b"1"}, protected_paths=("keep/",)))
    (made / "world").write_bytes(WORLD)
    (made / "keep/me").write_bytes(b"mine")
    changed = plan(
        {"a": b"2", "new/file": b"2", "keep/me": b"2", "keep/new": b"2"}, protected_paths=("keep/",)
    )
    await bench.make(changed, incarnation=2048)
    assert tree(made) == {
        "a": b"2",
        "gone": b"1",
        "keep/me": b"mine",
        "keep/new": b"2",
        "new/file": b"2",
        "world": WORLD,
    }


async def test_files_with_variables_follow_their_values(bench, plan):
    one = plan({"server.properties": b"port=%PORT%\n", "other": b"x"}, substitute=("*.properties",))
    made = await bench.make(one, PORT="1")
    (made / "other").write_bytes(b"changed")
    (made / "server.properties").write_bytes(b"port=1\nmotd=mine\n")
    await bench.make(one, incarnation=2048, PORT="1")
    assert (made / "server.properties").read_bytes() == b"port=1\nmotd=mine\n"
    await bench.make(one, incarnation=3072, PORT="2")
    assert (made / "server.properties").read_bytes() == b"port=1\nmotd=mine\n"
    assert bench.progress.kept_files == {
        "server.properties": "it was changed since it was laid; it was filled with PORT=1, which is 2 now: "
        "a patch sets it at every start"
    }
    (made / "server.properties").write_bytes(b"port=1\n")
    await bench.make(one, incarnation=4096, PORT="2")
    assert (made / "server.properties").read_bytes() == b"port=2\n", "it is as it was laid again"
    assert bench.progress.kept_files == {}
    assert (made / "other").read_bytes() == b"changed"


async def test_patches_hold_at_every_start_and_change_nothing_else(bench, plan):
    patch = PatchSpec(file="server.properties", path="port", value="%PORT%")
    one = plan({"server.properties": b"port=0\n"}, patches=(patch,))
    made = await bench.make(one, PORT="1")
    with (made / "server.properties").open("ab") as file:
        file.write(b"motd=mine\n")
    (made / "server.properties").chmod(0o600)
    await bench.make(one, incarnation=2048, PORT="2")
    assert (made / "server.properties").read_bytes() == b"port=2\nmotd=mine\n"
    assert (made / "server.properties").stat().st_mode & 0o777 == 0o600
    inode = (made / "server.properties").stat().st_ino
    await bench.make(one, incarnation=3072, PORT="2")
    assert (made / "server.properties").stat().st_ino == inode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_everything_in_a_static_directory_is_its_workloads(bench, plan):
    bench.user = msgspec.structs.replace(bench.user, uid=43_210, gid=43_211)
    patches = [PatchSpec(file=f"config/{name}.properties", path="x", value="1") for name in ("a", "b")]
    files = {"config/a.properties": b"x=0\n", "other/c": b"c"}
    made = await bench.make(plan(files, patches=tuple(patches[:1])))
    await bench.make(plan(files, patches=tuple(patches)), incarnation=2048)
    await bench.make(plan({**files, "new/d": b"d"}, patches=tuple(patches)), incarnation=3072)
    found = {str(path.relative_to(made)): path.stat() for path in (made, *made.rglob("*"))}
    assert {"config/b.properties", "new/d"} <= found.keys()
    assert {(stat.st_uid, stat.st_gid) for stat in found.values()} == {(43_210, 43_211)}, found
    bench.user = msgspec.structs.replace(bench.user, uid=43_220, gid=43_220)
    await bench.make(plan(files, patches=tuple(patches)), incarnation=4096)
    assert {path.stat().st_uid for path in (made, *made.rglob("*"))} == {43_220}, "its group has another user"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_a_world_with_hard_links_goes_to_no_other_user_and_is_not_brought_up_to_date(bench, plan, tree):
    bench.user = msgspec.structs.replace(bench.user, uid=43_210, gid=43_210)
    made = await bench.make(plan({"a": b"1"}))
    (made / "world").write_bytes(WORLD)
    os.chown(made / "world", 43_210, 43_210)
    (bench.data / "backup").hardlink_to(made / "world")
    bench.user = msgspec.structs.replace(bench.user, uid=43_220, gid=43_220)
    with pytest.raises(StageFailed) as failed:
        await bench.make(plan({"a": b"2"}), incarnation=2048)
    assert failed.value.error.code is Code.RUN_AS_REFUSED
    assert "'world' has more than one name" in str(failed.value.error)
    assert tree(made) == {"a": b"1", "world": WORLD}
    assert {path.stat().st_uid for path in (made, *made.rglob("*"))} == {43_210}
    (bench.data / "backup").unlink()
    await bench.make(plan({"a": b"2"}), incarnation=3072)
    assert {path.stat().st_uid for path in (made, *made.rglob("*"))} == {43_220}


async def test_protected_files_are_not_patched(bench, plan):
    patch = PatchSpec(file="a.properties", path="x", value="1")
    one = plan({"a.properties": b"x=0\n"}, patches=(patch,), protected_paths=("a.properties",))
    made = await bench.make(one)
    (made / "a.properties").write_bytes(b"x=mine\n")
    await bench.make(one, incarnation=2048)
    assert (made / "a.properties").read_bytes() == b"x=mine\n"


@pytest.mark.trap("T26")
async def test_a_link_that_the_workload_made_leads_nowhere(bench, plan, scratch):
    outside = scratch / "outside"
    outside.mkdir()
    (outside / "b").write_bytes(b"precious")
    made = await bench.make(plan({"config/b": b"1", "a": b"1"}))
    (made / "config" / "b").unlink()
    (made / "config").rmdir()
    (made / "config").symlink_to(outside)
    (made / "a").unlink()
    (made / "a").symlink_to(outside / "b")
    changed = plan({"a": b"2", "config/b": b"2", "config/c": b"2"})
    await bench.make(changed, incarnation=2048)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"b": b"precious"}
    assert (made / "a").is_symlink(), "what the workload put there is its operator's"
    assert bench.progress.kept_files.keys() == {"a", "config/b", "config/c"}
    (made / "config").unlink()
    (made / "a").unlink()
    await bench.make(changed, incarnation=3072)
    assert (outside / "b").read_bytes() == b"precious"
    assert not (made / "a").exists(), "it was laid once, and is gone"
    assert (made / "config" / "c").read_bytes() == b"2", "it was never laid"


async def test_a_failed_update_is_done_by_the_next_start(bench, plan, tree):
    made = await bench.make(plan({"a": b"1", "b": b"1"}))
    bad = PatchSpec(file="b", path="(", op="regex", value="x")
    with pytest.raises(StageFailed):
        await bench.make(plan({"a": b"2", "b": b"2"}, patches=(bad,)), incarnation=2048)
    assert tree(made) == {"a": b"1", "b": b"1"}
    await bench.make(plan({"a": b"2", "b": b"2"}), incarnation=3072)
    assert tree(made) == {"a": b"2", "b": b"2"}


async def test_a_static_directory_of_an_earlier_version_is_found_and_kept(bench, plan, tree):
    former = bench.data / "running" / "one"
    former.mkdir()
    (former / "world").write_bytes(WORLD)
    before = bench.data / "runs" / "one" / "1024"
    before.mkdir(parents=True)
    intent = {"format": "corral-run-intent", "version": 1, "value": {"order": {"static": True}}}
    (before / "intent.json").write_text(json.dumps(intent))
    made = await bench.make(plan({"a": b"1"}), incarnation=2048)
    assert tree(made) == {"world": WORLD}, "nobody knows what was laid, so nothing is"
    assert not former.exists()


async def test_what_a_run_without_a_static_directory_left_is_no_world(bench, plan, tree):
    former = bench.data / "running" / "one"
    former.mkdir()
    (former / "rubbish").write_bytes(b"x")
    before = bench.data / "runs" / "one" / "1024"
    before.mkdir(parents=True)
    intent = {"format": "corral-run-intent", "version": 1, "value": {"order": {"static": False}}}
    (before / "intent.json").write_text(json.dumps(intent))
    made = await bench.make(plan({"a": b"1"}), incarnation=2048)
    assert tree(made) == {"a": b"1"}
    assert not former.exists(), "nobody would ever come to put it away"


async def test_a_world_of_which_no_run_is_left_is_kept_all_the_same(bench, plan, tree):
    former = bench.data / "running" / "one"
    former.mkdir()
    (former / "world").write_bytes(WORLD)
    made = await bench.make(plan({"a": b"1"}), incarnation=2048)
    assert tree(made) == {"world": WORLD}


@pytest.mark.system
@pytest.mark.trap("T14")
def test_killed_at_any_point_of_a_static_start_the_world_is_never_lost(scratch):
    arena = pathlib.Path(__file__).with_name("static_kill_arena.py")
    done = subprocess.run(
        [sys.executable, str(arena), str(scratch / "data"), "150"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    interrupted, mixed = map(int, done.stderr.split()[-2:])
    assert interrupted >= 30, "too few rounds were interrupted to prove anything"
    assert mixed >= 1, "no round was killed between two renames"


async def test_a_secret_that_was_changed_reaches_its_file(bench, plan):
    one = plan({"a.conf": b"pw=%PW% port=%PORT%", "b.conf": b"port=%PORT%"}, substitute=("*.conf",))
    made = await bench.make(one, secret=("PW",), PW="old", PORT="1")
    (made / "b.conf").write_bytes(b"mine")
    seed = (bench.data / "static" / ".seeds" / "one.json").read_text()
    assert "old" not in seed
    await bench.make(one, incarnation=2048, secret=("PW",), PW="new", PORT="1")
    assert (made / "a.conf").read_bytes() == b"pw=new port=1"
    assert (made / "b.conf").read_bytes() == b"mine"
    await bench.make(one, incarnation=3072, secret=("PW",), PW="newest", PORT="1")
    assert (made / "a.conf").read_bytes() == b"pw=newest port=1"


async def test_a_variable_that_is_defined_later_reaches_its_file(bench, plan):
    one = plan({"a.conf": b"%LATER%", "b": b"x"}, substitute=("*.conf",))
    made = await bench.make(one)
    assert (made / "a.conf").read_bytes() == b"%LATER%"
    (made / "b").write_bytes(b"mine")
    await bench.make(one, incarnation=2048, LATER="now")
    assert (made / "a.conf").read_bytes() == b"now"
    assert (made / "b").read_bytes() == b"mine"


async def test_other_files_to_fill_in_are_filled_in(bench, plan):
    files = {"a.conf": b"%PORT%", "b.conf": b"%PORT%"}
    made = await bench.make(plan(files, substitute=("a.conf",)), PORT="1")
    assert (made / "b.conf").read_bytes() == b"%PORT%"
    await bench.make(plan(files, substitute=("*.conf",)), incarnation=2048, PORT="1")
    assert (made / "b.conf").read_bytes() == b"1"


@pytest.mark.trap("T26")
async def test_a_refused_update_has_changed_nothing(bench, plan, scratch, tree):
    made = await bench.make(plan({"a": b"1", "z/b": b"1"}))
    (made / "z" / "b").unlink()
    (made / "z").rmdir()
    (made / "z").symlink_to(scratch)
    patch = PatchSpec(file="z/b.properties", path="x", value="1")
    with pytest.raises(StageFailed) as failed:
        await bench.make(plan({"a": b"2", "z/b": b"2"}, patches=(patch,)), incarnation=2048)
    assert failed.value.error.code is Code.PATH_REFUSED
    assert (made / "a").read_bytes() == b"1"


@pytest.mark.trap("T26")
async def test_patches_never_follow_a_link_that_the_workload_made(bench, plan, scratch):
    outside = scratch / "outside"
    outside.mkdir()
    (outside / "c.properties").write_bytes(b"x=precious\n")
    patch = PatchSpec(file="config/c.properties", path="x", value="1")
    one = plan({"a": b"1"}, patches=(patch,))
    made = await bench.make(one)
    (made / "config" / "c.properties").unlink()
    for turn, hostile in enumerate(("file", "directory"), start=2):
        if hostile == "file":
            (made / "config" / "c.properties").symlink_to(outside / "c.properties")
        else:
            (made / "config" / "c.properties").unlink()
            (made / "config").rmdir()
            (made / "config").symlink_to(outside)
        with pytest.raises(StageFailed) as failed:
            await bench.make(one, incarnation=1024 * turn)
        assert failed.value.error.code is Code.PATH_REFUSED
        assert (outside / "c.properties").read_bytes() == b"x=precious\n"
        assert bench.staged() == []
