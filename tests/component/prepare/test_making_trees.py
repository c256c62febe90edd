"""Working directories out of layers, artifacts, variables and patches."""

from __future__ import annotations

import asyncio
import os
import pathlib
import stat
import subprocess
import sys
import threading

import msgspec
import pytest
from prepare_bench import Bench

from corral.daemon.prepare.abort import Abort, in_thread
from corral.daemon.prepare.ingredients import bootstrap_key
from corral.daemon.workload.start_stages import StageFailed
from corral.daemon.workload.workload_users import WorkloadUser
from corral.domain.groups.group import ConfigFormat, PatchSpec
from corral.domain.groups.plans import PlanExtension
from corral.errors import Code, Rejected, Retryable
from corral.testing.waiting import eventually

OTHER = 12_345
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


async def test_later_layers_win_unless_they_do_not_override(bench, make_plan, tree):
    base = bench.cache.template("base", {"a": b"base", "b": b"base", "deep/er/c": b"base"})
    above = bench.cache.template("above", {"a": b"above", "d": b"above"})
    shy = bench.cache.template("shy", {"b": b"shy", "e": b"shy"}, override=False)
    made = await bench.make(make_plan(templates=(base, above, shy)))
    assert made == bench.data / "running" / "one"
    assert tree(made) == {"a": b"above", "b": b"base", "d": b"above", "deep/er/c": b"base", "e": b"shy"}
    assert bench.staged() == []


async def test_files_that_the_group_merges_hold_the_keys_of_all_layers(bench, make_plan):
    low = bench.cache.template("low", {"server.properties": b"a=1\nb=1\n", "x.json": b'{"k": {"a": 1}}'})
    high = bench.cache.template("high", {"server.properties": b"b=2\nc=2\n", "x.json": b'{"k": {"b": 2}}'})
    made = await bench.make(make_plan(templates=(low, high), merge=("server.properties",)))
    assert (made / "server.properties").read_bytes().split() == [b"a=1", b"b=2", b"c=2"]
    assert (made / "x.json").read_bytes() == b'{"k": {"b": 2}}'


async def test_what_does_not_override_is_the_weaker_part_of_a_merge(bench, make_plan):
    low = bench.cache.template("low", {"s.properties": b"a=1\n"})
    shy = bench.cache.template("shy", {"s.properties": b"a=2\nb=2\n"}, override=False)
    made = await bench.make(make_plan(templates=(low, shy), merge=("*.properties",)))
    assert sorted((made / "s.properties").read_bytes().split()) == [b"a=1", b"b=2"]


async def test_names_as_long_as_they_can_be_are_filled_merged_and_patched(bench, make_plan):
    name = "名" * 81 + "a.properties"
    assert len(name.encode()) == 255
    layers = (
        bench.cache.template("low", {name: b"a=%PORT%\nb=1\n"}),
        bench.cache.template("high", {name: b"b=2\n"}),
    )
    patch = PatchSpec(file=name, path="c", value="3")
    plan = make_plan(templates=layers, merge=(name,), substitute=(name,), patches=(patch,))
    made = await bench.make(plan, PORT="filled")
    assert sorted((made / name).read_bytes().split()) == [b"a=filled", b"b=2", b"c=3"]


async def test_modes_are_kept(bench, make_plan):
    files = {"run.sh": (b"#!/bin/sh\n", 0o755), "eula": (b"x", 0o444), "tool": (b"y", 0o555), "plain": b"z"}
    made = await bench.make(make_plan(templates=(bench.cache.template("t", files),)))
    modes = {path.name: path.stat().st_mode & 0o777 for path in made.iterdir()}
    assert modes == {"run.sh": 0o755, "eula": 0o444, "tool": 0o555, "plain": 0o644}


@only_root
async def test_only_read_only_files_of_another_user_share_their_blocks_by_a_link(bench, make_plan):
    files = {"shared": (b"x" * 100, 0o444), "tool": (b"y", 0o555), "own": b"z"}
    plan = make_plan(templates=(bench.cache.template("t", files),))
    made = await bench.make(plan)
    assert (made / "shared").stat().st_nlink == 1, "a workload of the daemon's own user could write to it"
    bench.user = msgspec.structs.replace(bench.user, uid=OTHER, gid=OTHER)
    made = await bench.make(plan, incarnation=2048)
    owners = {path.name: (path.stat().st_nlink, path.stat().st_uid) for path in made.iterdir()}
    assert owners == {"shared": (2, 0), "tool": (1, OTHER), "own": (1, OTHER)}
    assert (made.stat().st_uid, made.stat().st_mode & 0o777) == (OTHER, 0o750)


@only_root
async def test_a_linked_file_is_replaced_and_never_written_to(bench, make_plan):
    template = bench.cache.template("t", {"shared.properties": (b"port=%PORT%\nb=1\n", 0o444)})
    bench.user = msgspec.structs.replace(bench.user, uid=OTHER, gid=OTHER)
    patch = PatchSpec(file="shared.properties", path="b", value="2")
    plan = make_plan(templates=(template,), substitute=("**",), patches=(patch,))
    made = await bench.make(plan, PORT="7")
    assert (made / "shared.properties").read_bytes() == b"port=7\nb=2\n"
    made = await bench.make(plan, id="two", PORT="8")
    assert (made / "shared.properties").read_bytes() == b"port=8\nb=2\n"


async def test_an_artifact_lies_above_the_templates_and_extensions_in_their_places(bench, make_plan):
    template = bench.cache.template("t", {"server.jar": b"old", "plugins/mine.jar": b"mine"})
    extension = PlanExtension(id="e", artifact=bench.cache.artifact("plugins/theirs.jar", b"theirs"))
    artifact = bench.cache.artifact("server.jar", b"new %PORT%")
    plan = make_plan(templates=(template,), artifact=artifact, extensions=(extension,), substitute=("**",))
    made = await bench.make(plan, PORT="1")
    assert (made / "server.jar").read_bytes() == b"new %PORT%", "programs are no text"
    assert os.access(made / "server.jar", os.X_OK)
    assert (made / "plugins" / "theirs.jar").read_bytes() == b"theirs"
    assert (made / "plugins" / "mine.jar").read_bytes() == b"mine"


async def test_variables_are_replaced_where_the_globs_say_and_bytes_stay_bytes(bench, make_plan):
    raw = b"\xff\xfe%PORT%\x00 100% %% %port% %UNKNOWN%\r\n"
    template = bench.cache.template("t", {"conf/a.bin": raw, "b.txt": b"%PORT%"})
    made = await bench.make(make_plan(templates=(template,), substitute=("conf/**",)), PORT="25565")
    assert (made / "conf/a.bin").read_bytes() == raw.replace(b"%PORT%", b"25565")
    assert (made / "b.txt").read_bytes() == b"%PORT%"


async def test_in_strict_mode_an_unknown_variable_is_named_with_file_and_line(bench, make_plan):
    template = bench.cache.template("t", {"conf/a.txt": b"one\ntwo %NOBODY% %PORT%\n"})
    plan = make_plan(templates=(template,), substitute=("**",), strict_variables=True)
    with pytest.raises(StageFailed) as failed:
        await bench.make(plan, PORT="1")
    assert failed.value.stage == "VARIABLE_SUBSTITUTION"
    assert failed.value.error.code is Code.VARIABLE_UNRESOLVED
    assert "%NOBODY% in conf/a.txt:2" in str(failed.value.error)
    assert not (bench.data / "running" / "one").exists()
    assert bench.staged() == []


async def test_a_patch_that_fails_leaves_what_was_there(bench, make_plan, tree):
    good = make_plan(templates=(bench.cache.template("t", {"a.json": b"{}"}),))
    made = await bench.make(good)
    bad = bench.cache.template("t", {"a.json": b"{nonsense"})
    patch = PatchSpec(file="a.json", path="x", value=1)
    with pytest.raises(StageFailed) as failed:
        await bench.make(make_plan(templates=(bad,), patches=(patch,)), incarnation=2048)
    assert failed.value.stage == "CONFIG_PATCH"
    assert isinstance(failed.value.error, Rejected)
    assert "a.json" in str(failed.value.error)
    assert tree(made) == {"a.json": b"{}"}
    assert bench.staged() == []


@pytest.mark.trap("T22")
@pytest.mark.parametrize("what", ["template", "artifact"])
async def test_what_cannot_be_had_fails_in_its_stage_and_changes_nothing(bench, make_plan, tree, what):
    made = await bench.make(make_plan(templates=(bench.cache.template("t", {"a": b"old"}),)))
    template = bench.cache.template("t", {"a": b"new"})
    artifact = bench.cache.artifact("server.jar", b"x")
    if what == "template":
        template = msgspec.structs.replace(template, hash="0" * 64)
    else:
        artifact = msgspec.structs.replace(artifact, sha256="0" * 64)
    with pytest.raises(StageFailed) as failed:
        await bench.make(make_plan(templates=(template,), artifact=artifact), incarnation=2048)
    stage = {"template": "TEMPLATE_APPLY", "artifact": "RUNTIME_PROVISION"}[what]
    assert (failed.value.stage, isinstance(failed.value.error, Rejected)) == (stage, True)
    assert tree(made) == {"a": b"old"}
    assert (bench.staged(), bench.cache.uses) == ([], 0)


async def test_a_file_where_another_layer_has_a_directory_is_refused(bench, make_plan):
    low = bench.cache.template("low", {"a": b"file"})
    high = bench.cache.template("high", {"a/b": b"beneath"})
    with pytest.raises(StageFailed) as failed:
        await bench.make(make_plan(templates=(low, high)))
    assert failed.value.error.code is Code.PATH_REFUSED


async def test_a_file_of_the_cache_that_cannot_be_read_is_named(bench, make_plan):
    template = bench.cache.template("t", {"a": b"a"})
    digest = bench.cache._manifests[template.hash].files[0].digest
    (bench.data / "cache" / "contents" / digest).unlink()
    with pytest.raises(StageFailed) as failed:
        await bench.make(make_plan(templates=(template,)))
    error = failed.value.error
    assert (error.code, isinstance(error, Retryable)) == (Code.FILE_UNREADABLE, True)
    assert digest in str(error)
    assert bench.staged() == []


async def test_first_run_results_lie_beneath_everything(bench, make_plan, scratch):
    artifact = bench.cache.artifact("server.jar", b"jar", version="1.21")
    kept = scratch / "kept"
    (kept / "libraries" / "a").mkdir(parents=True)
    (kept / "libraries" / "a" / "lib.jar").write_bytes(b"lib")
    (kept / "server.jar").write_bytes(b"never")
    (kept / "evil").symlink_to("/etc/passwd")
    plan = make_plan(artifact=artifact, warm_paths=("libraries/",), config_format=ConfigFormat.PAPER)
    bench.cache.put_bootstrap(bootstrap_key(plan, bench.user), kept)
    made = await bench.make(plan)
    assert (made / "libraries/a/lib.jar").read_bytes() == b"lib"
    assert (made / "server.jar").read_bytes() == b"jar"
    assert not (made / "evil").exists()
    assert "BOOTSTRAP_WARMUP" in bench.progress.took_ms


@pytest.mark.trap("T76")
@pytest.mark.parametrize(
    "other",
    [{"group": "other"}, {"warm_paths": ("libraries/", "planted")}, {"config_format": ConfigFormat.VELOCITY}],
    ids=lambda other: next(iter(other)),
)
async def test_first_run_results_are_laid_for_the_same_group_and_files_alone(
    bench, make_plan, scratch, other
):
    artifact = bench.cache.artifact("server.jar", b"jar", version="1.21")
    kept = scratch / "kept"
    kept.mkdir()
    (kept / "planted").write_bytes(b"by the first group")
    fields = {"artifact": artifact, "warm_paths": ("planted",), "config_format": ConfigFormat.PAPER}
    bench.cache.put_bootstrap(bootstrap_key(make_plan(**fields), bench.user), kept)
    assert (await bench.make(make_plan(**fields)) / "planted").exists()
    made = await bench.make(make_plan(**{**fields, **other}), id="two")
    assert not (made / "planted").exists()


@pytest.mark.trap("T76")
async def test_first_run_results_are_laid_for_the_same_user_alone(bench, make_plan, scratch):
    artifact = bench.cache.artifact("server.jar", b"jar", version="1.21")
    plan = make_plan(artifact=artifact, warm_paths=("planted",))
    (scratch / "planted").write_bytes(b"of an account that the node lends")
    bench.cache.put_bootstrap(bootstrap_key(plan, bench.user), scratch)
    bench.user = msgspec.structs.replace(bench.user, isolated=True)
    assert not (await bench.make(plan) / "planted").exists()


async def test_the_next_start_takes_a_tree_that_was_made_ahead(scratch, make_plan, tree):
    bench = Bench(scratch / "warm", warm=1)
    try:
        template = bench.cache.template("t", {"a.txt": b"port %PORT%", "b": b"b"})
        plan = make_plan(templates=(template,), substitute=("a.txt",))
        await bench.make(plan, PORT="1")
        pool = bench.directories.running / ".warm"
        await eventually(lambda: pool.exists() and [p for p in pool.iterdir() if "making" not in p.name])
        [ahead] = pool.iterdir()
        inode = (ahead / "b").stat().st_ino
        made = await bench.make(plan, id="two", PORT="2")
        assert (made / "b").stat().st_ino == inode
        assert tree(made) == {"a.txt": b"port 2", "b": b"b"}
        bench.directories.open()
        assert not pool.exists(), "a later daemon does not know what they are made of"
    finally:
        await bench.warm.close()


async def test_a_tree_made_ahead_is_not_taken_once_there_are_first_run_results(scratch, make_plan):
    bench = Bench(scratch / "warm", warm=1)
    try:
        artifact = bench.cache.artifact("server.jar", b"jar", version="1.21")
        plan = make_plan(artifact=artifact, warm_paths=("planted",))
        await bench.make(plan)
        pool = bench.directories.running / ".warm"
        await eventually(lambda: pool.exists() and [p for p in pool.iterdir() if "making" not in p.name])
        kept = scratch / "kept"
        kept.mkdir()
        (kept / "planted").write_bytes(b"by the first run")
        bench.cache.put_bootstrap(bootstrap_key(plan, bench.user), kept)
        made = await bench.make(plan, id="two")
        assert (made / "planted").read_bytes() == b"by the first run"
    finally:
        await bench.warm.close()


@only_root
async def test_a_tree_made_ahead_is_given_to_whoever_takes_it(scratch, make_plan):
    """Made for nobody: instances with a user of their own take it as well."""
    bench = Bench(scratch / "warm", warm=1)
    try:
        template = bench.cache.template("t", {"deep/a": b"%PORT%", "b": b"b", "ro": (b"x", 0o444)})
        plan = make_plan(templates=(template,), substitute=("deep/a",), isolate="auto")
        pool = bench.directories.running / ".warm"
        for number, id in enumerate(("one", "two", "three")):
            bench.user = WorkloadUser(run_as="", name="u", uid=OTHER + number, gid=OTHER + number, home="")
            inodes = {(tree / "b").stat().st_ino for tree in (pool.iterdir() if number else ())}
            made = await bench.make(plan, id=id, PORT="1")
            assert not number or (made / "b").stat().st_ino in inodes
            owners = {path.name: path.stat().st_uid for path in (made, *made.rglob("*"))}
            mine = OTHER + number
            assert owners == {id: mine, "deep": mine, "a": mine, "b": mine, "ro": 0}
            await eventually(lambda: pool.exists() and [p for p in pool.iterdir() if "making" not in p.name])
            assert {path.stat().st_uid for tree in pool.iterdir() for path in (tree, *tree.rglob("*"))} == {0}
    finally:
        await bench.warm.close()


async def test_a_tree_of_many_files_is_laid_by_several_threads_and_is_complete(bench, make_plan, tree):
    files = {f"d{n % 7}/f{n}": f"{n}".encode() for n in range(500)}
    files["large"] = os.urandom(9_000_000)
    made = await bench.make(make_plan(templates=(bench.cache.template("t", files),)))
    assert tree(made) == dict(sorted(files.items()))


def writing_end(fifo: pathlib.Path) -> int | None:
    """There is one as soon as somebody reads."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


@pytest.mark.trap("T12")
async def test_a_cancelled_preparation_has_no_thread_left_that_writes(bench, make_plan):
    template = bench.cache.template("t", {"slow": b"never read"})
    digest = bench.cache._manifests[template.hash].files[0].digest
    fifo = bench.data / "cache" / "contents" / digest
    fifo.unlink()
    os.mkfifo(fifo)
    making = asyncio.create_task(bench.make(make_plan(templates=(template,))))
    writer = await eventually(lambda: writing_end(fifo))
    making.cancel()
    await asyncio.sleep(0)
    assert not making.done(), "the thread is still in there"
    os.close(writer)
    with pytest.raises(asyncio.CancelledError):
        await making
    assert bench.staged() == []
    assert not (bench.data / "running" / "one").exists()


async def test_work_in_a_thread_hears_that_nobody_waits_any_more():
    seen: list[Abort] = []

    def work(abort: Abort) -> None:
        seen.append(abort)
        while True:
            abort.check()

    task = asyncio.create_task(in_thread(work))
    await eventually(lambda: seen)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen[0].is_set


async def test_without_room_nothing_is_begun_and_the_numbers_are_said(scratch, make_plan):
    bench = Bench(scratch / "data", reserve_mb=1 << 30)
    plan = make_plan(templates=(bench.cache.template("t", {"a": b"a"}),), disk_mb=7)
    with pytest.raises(StageFailed) as failed:
        await bench.make(plan)
    error = failed.value.error
    assert (error.code, isinstance(error, Retryable), error.retry_after) == (Code.DISK_FULL, True, 30.0)
    assert "7 MB for the instance" in str(error)
    assert bench.staged() == []


async def test_a_restart_of_the_daemon_puts_half_made_directories_away(bench):
    half = bench.directories.staging("one.1024", static=False)
    half.mkdir()
    (half / "x").write_text("x")
    static = bench.directories.staging("two.1024", static=True)
    static.mkdir()
    bench.directories.open()
    assert bench.staged() == []
    await bench.directories.empty_bin()
    assert not list((bench.data / ".discarded").iterdir())


@pytest.mark.trap("T34")
async def test_a_directory_is_put_away_for_the_start_that_made_it_and_no_other(bench, make_plan):
    plan = make_plan(templates=(bench.cache.template("t", {"a": b"a"}),))
    await bench.make(plan, incarnation=1024)
    made = await bench.make(plan, incarnation=2048)
    assert not bench.directories.discard("one", 1024)
    assert not bench.directories.discard("one", 1025)
    assert made.exists()
    assert bench.directories.discard("one", 2049), "a restart of the same start has the same directory"
    assert not made.exists()


async def test_what_an_earlier_start_left_goes_with_the_run_that_came_after_it(bench, make_plan):
    made = await bench.make(make_plan(templates=(bench.cache.template("t", {"a": b"a"}),)))
    assert bench.directories.discard("one", 2048)
    assert not made.exists()


async def test_a_directory_of_the_daemon_that_cannot_be_made_is_a_failure_of_a_stage(bench, make_plan):
    (bench.data / "running" / ".staging").write_text("in the way")
    with pytest.raises(StageFailed) as failed:
        await bench.make(make_plan(templates=(bench.cache.template("t", {"a": b"a"}),)))
    assert failed.value.stage == "TEMPLATE_APPLY"


async def test_a_thread_is_waited_for_however_often_the_waiting_is_cancelled():
    began, go_on = threading.Event(), threading.Event()
    task = asyncio.create_task(in_thread(lambda _: (began.set(), go_on.wait())))
    await eventually(began.is_set)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.01)
    assert not task.done(), "the thread is still in there"
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_variables_are_never_written_into_a_file_of_the_template_beside_them(bench, make_plan, tree):
    """Whatever it is called: it may be linked into the cache."""
    files = {"a.txt": b"%PORT%", ".a.txt.corral": (b"the template's own", 0o444)}
    made = await bench.make(
        make_plan(templates=(bench.cache.template("t", files),), substitute=("a.txt",)), PORT="1"
    )
    assert tree(made) == {"a.txt": b"1", ".a.txt.corral": b"the template's own"}


async def test_trees_made_ahead_go_when_nobody_asks_for_them_any_more(scratch, make_plan):
    bench = Bench(scratch / "warm", warm=1, idle_seconds=0.5)
    try:
        await bench.make(make_plan(templates=(bench.cache.template("t", {"a": b"a"}),)))
        pool = bench.directories.running / ".warm"
        await eventually(lambda: pool.exists() and list(pool.iterdir()))
        await eventually(lambda: not list(pool.iterdir()))
    finally:
        await bench.warm.close()


async def test_whatever_a_workload_left_is_deleted(bench, make_plan):
    made = await bench.make(make_plan(templates=(bench.cache.template("t", {"a": b"a"}),)))
    here = os.open(made, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (made / "closed" / "more").mkdir(parents=True)
    (made / "closed" / "more" / "file").write_text("x")
    (made / "closed").chmod(0)
    (made / "link").symlink_to("/etc")
    assert bench.directories.discard("one", 1024)
    await bench.directories.empty_bin()
    assert not list((bench.data / ".discarded").iterdir())


STRICT = """
import pathlib, sys
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_copy import FileCopier
from corral.daemon.prepare.staged_tree import make_directory
place = pathlib.Path(sys.argv[1])
(place / "source").write_bytes(b"x" * 10)
make_directory(place / "plugins", None)
FileCopier(clone=False, link=False).place(
    str(place / "source"), str(place / "run.sh"), mode=0o755, read_only=False, abort=Abort(), size=10
)
"""


def test_modes_are_those_of_the_template_whatever_the_umask_of_the_daemon(scratch: pathlib.Path) -> None:
    subprocess.run([sys.executable, "-c", STRICT, str(scratch)], check=True, umask=0o077)
    assert stat.S_IMODE((scratch / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((scratch / "plugins").stat().st_mode) == 0o750
    assert (scratch / "run.sh").read_bytes() == b"x" * 10
