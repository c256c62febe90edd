"""A static world is its operator's: a later start replaces what nobody touched, adds what is new, keeps the rest."""

from __future__ import annotations

import hashlib
import json
import resource

import pytest

from corral.daemon.prepare.static_directory import StaticBuilder
from corral.daemon.workload.start_stages import StageFailed
from corral.domain.groups.group import PatchSpec

PLAYED = b"six months of playing\n"
SHIPPED = {"world/level.dat": b"seed world", "server.properties": b"motd=hi\n", "plugins/a.jar": b"jar 1"}


@pytest.fixture
def plan(bench, make_plan):
    def made(files, *, directories=(), **fields):
        template = bench.cache.template("t", files, directories=directories)
        return make_plan(templates=(template,), static=True, **fields)

    return made


@pytest.fixture
async def played(bench, plan):
    """A world whose map and settings were changed since it was seeded."""
    made = await bench.make(plan(SHIPPED))
    (made / "world/level.dat").write_bytes(PLAYED)
    (made / "server.properties").write_bytes(b"motd=mine\n")
    return made


def seed_file(bench):
    return bench.data / "static" / ".seeds" / "one.json"


def edit_seed(bench, change):
    document = json.loads(seed_file(bench).read_text())
    change(document["value"])
    seed_file(bench).write_text(json.dumps(document))


@pytest.mark.trap("T75")
async def test_a_template_that_changes_one_file_changes_only_that_one(bench, plan, tree, played):
    await bench.make(plan({**SHIPPED, "plugins/a.jar": b"jar 2"}), incarnation=2048)
    assert tree(played) == {
        "world/level.dat": PLAYED,
        "server.properties": b"motd=mine\n",
        "plugins/a.jar": b"jar 2",
    }
    assert bench.progress.kept_files == {}, "the template gives nothing else for what was edited"


@pytest.mark.trap("T75")
async def test_an_edited_file_stays_though_its_template_changes_and_is_named(bench, plan, played):
    changed = plan({**SHIPPED, "server.properties": b"motd=new\n"})
    for incarnation in (2048, 3072):
        await bench.make(changed, incarnation=incarnation)
        assert (played / "server.properties").read_bytes() == b"motd=mine\n"
        assert bench.progress.kept_files == {"server.properties": "it was changed since it was laid"}
        assert "server.properties" in json.loads(seed_file(bench).read_text())["value"]["kept"]
    (played / "server.properties").write_bytes(b"motd=new\n")
    await bench.make(changed, incarnation=4096)
    assert bench.progress.kept_files == {}, "its operator took the template's"
    await bench.make(plan({**SHIPPED, "server.properties": b"motd=newer\n"}), incarnation=5120)
    assert (played / "server.properties").read_bytes() == b"motd=newer\n"


@pytest.mark.trap("T65")
@pytest.mark.parametrize("plugin", [b"jar 2", b"for %NAME%"])
async def test_files_that_a_workload_made_endless_are_kept_and_not_read(bench, plan, plugin):
    """Four TiB of nothing take no room, and hours to read."""
    rule = {"substitute": ("**",)}
    first = plan({"plugins/a.jar": b"jar 1", "b.conf": b"pw=%PW%"}, **rule)
    made = await bench.make(first, secret=("PW",), PW="1")
    for path in ("plugins/a.jar", "b.conf", "c.conf"):
        with (made / path).open("ab") as file:
            file.truncate(4 << 40)
    later = plan({"plugins/a.jar": plugin, "b.conf": b"password=%PW%", "c.conf": b"new"}, **rule)
    await bench.make(later, incarnation=2048, secret=("PW",), PW="2", NAME="me")
    assert set(bench.progress.kept_files) == {"plugins/a.jar", "b.conf", "c.conf"}
    assert (made / "b.conf").stat().st_size == 4 << 40


@pytest.mark.trap("T65")
async def test_an_endless_file_is_refused_to_a_patch_before_it_is_copied(bench, plan):
    patch = PatchSpec(file="server.properties", path="port", value="1")
    made = await bench.make(plan(SHIPPED, patches=(patch,)))
    with (made / "server.properties").open("ab") as file:
        file.truncate(4 << 40)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, limits[1]))
    try:
        with pytest.raises(StageFailed, match="a configuration file has 16777216 at most"):
            await bench.make(plan(SHIPPED, patches=(patch,)), incarnation=2048)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (made / "server.properties").stat().st_size == 4 << 40


@pytest.mark.trap("T75")
@pytest.mark.parametrize("change", [{"substitute": ("*.properties",)}, {"merge": ("**/*.properties",)}])
async def test_another_rule_for_files_costs_no_world(bench, plan, tree, played, change):
    await bench.make(plan(SHIPPED, **change), incarnation=2048)
    assert (played / "world/level.dat").read_bytes() == PLAYED
    assert (played / "server.properties").read_bytes() == b"motd=mine\n"


@pytest.mark.trap("T75")
@pytest.mark.parametrize("former", ["missing", "damaged", "without digests"])
async def test_without_a_record_of_what_was_laid_nothing_is_replaced_or_added(
    bench, plan, tree, played, former
):
    (played / "plugins/a.jar").chmod(0o600)
    if former == "missing":
        seed_file(bench).unlink()
    elif former == "damaged":
        seed_file(bench).write_bytes(b"{")
    else:
        edit_seed(bench, lambda seed: seed.pop("files"))
    before = tree(played)
    await bench.make(plan({**SHIPPED, "new": b"1"}, directories=("empty",)), incarnation=2048)
    assert tree(played) == before
    assert not (played / "empty").exists()
    assert bench.progress.kept_files.keys() == {"world/level.dat", "server.properties", "new"}
    changed = {"plugins/a.jar": b"jar 2", "new": b"2", "newest": b"2", "server.properties": b"motd=new\n"}
    await bench.make(plan({**SHIPPED, **changed}), incarnation=3072)
    assert tree(played) == {**before, "plugins/a.jar": b"jar 2", "newest": b"2"}


@pytest.mark.trap("T75")
async def test_new_directories_are_made_and_what_was_removed_stays_away(bench, plan):
    made = await bench.make(plan({"a": b"1", "b": b"1"}, directories=("one/deep",)))
    (made / "b").unlink()
    (made / "one/deep").rmdir()
    changed = plan({"a": b"1", "b": b"2"}, directories=("one/deep", "two/deep"))
    await bench.make(changed, incarnation=2048)
    assert not (made / "b").exists()
    assert bench.progress.kept_files == {"b": "it was laid once and removed since"}
    assert not (made / "one/deep").exists()
    assert (made / "two/deep").is_dir()
    assert ((made / "two/deep").stat().st_mode & 0o777) == 0o750


async def test_a_file_that_the_world_had_before_its_template_stays(bench, plan):
    made = await bench.make(plan({"a": b"1"}))
    (made / "b").write_bytes(b"mine")
    for incarnation in (2048, 3072):
        await bench.make(plan({"a": b"1", "b": b"1"}), incarnation=incarnation)
        assert (made / "b").read_bytes() == b"mine"
        assert bench.progress.kept_files == {"b": "it was there before a template had it"}


async def test_a_file_whose_mode_was_changed_counts_as_edited(bench, plan):
    made = await bench.make(plan({"a": b"1"}))
    (made / "a").chmod(0o600)
    await bench.make(plan({"a": b"2"}), incarnation=2048)
    assert (made / "a").read_bytes() == b"1"
    assert "a" in bench.progress.kept_files


async def test_an_edited_file_is_patched_and_stays_edited(bench, plan):
    patch = PatchSpec(file="server.properties", path="port", value="%PORT%")
    files = {"server.properties": b"port=0\nmotd=hi\n"}
    made = await bench.make(plan(files, patches=(patch,)), PORT="1")
    await bench.make(plan(files, patches=(patch,)), incarnation=2048, PORT="2")
    assert (made / "server.properties").read_bytes() == b"port=2\nmotd=hi\n"
    files = {"server.properties": b"port=0\nmotd=new\n"}
    await bench.make(plan(files, patches=(patch,)), incarnation=3072, PORT="3")
    assert (made / "server.properties").read_bytes() == b"port=3\nmotd=new\n", "a patch is no edit"
    (made / "server.properties").write_bytes(b"port=3\nmotd=mine\n")
    await bench.make(plan(files, patches=(patch,)), incarnation=4096, PORT="4")
    assert (made / "server.properties").read_bytes() == b"port=4\nmotd=mine\n"
    files = {"server.properties": b"port=0\nmotd=newest\n"}
    await bench.make(plan(files, patches=(patch,)), incarnation=5120, PORT="5")
    assert (made / "server.properties").read_bytes() == b"port=5\nmotd=mine\n"
    assert "server.properties" in bench.progress.kept_files


async def test_files_with_secrets_follow_the_rule_and_nothing_tells_the_secret(bench, plan):
    one = plan({"a.conf": b"pw=%PW%\n", "b.conf": b"pw=%PW%\n"}, substitute=("*.conf",))
    made = await bench.make(one, secret=("PW",), PW="hunter2")
    (made / "a.conf").write_bytes(b"pw=hunter2\nmine\n")
    first = seed_file(bench).read_text()
    await bench.make(one, incarnation=2048, secret=("PW",), PW="hunter3")
    assert (made / "a.conf").read_bytes() == b"pw=hunter2\nmine\n"
    assert (made / "b.conf").read_bytes() == b"pw=hunter3\n"
    assert bench.progress.kept_files == {
        "a.conf": "it was changed since it was laid; it was filled with another value of the secret PW: "
        "a patch sets it at every start"
    }
    assert bench.progress.secret_files >= {"a.conf", "b.conf"}
    assert "hunter" not in first + seed_file(bench).read_text()
    for guess in (b"hunter2", b"pw=hunter2\n", b"pw=hunter3\n"):
        assert hashlib.sha256(guess).hexdigest() not in first + seed_file(bench).read_text()


async def test_a_lost_key_lets_files_with_secrets_stay(bench, plan):
    one = plan({"a.conf": b"pw=%PW%\n"}, substitute=("*.conf",))
    made = await bench.make(one, secret=("PW",), PW="old")
    assert (bench.data / "static.key").stat().st_mode & 0o777 == 0o600
    (bench.data / "static.key").unlink()
    bench.statics = StaticBuilder(
        bench.maker, cache=bench.cache, directories=bench.directories, warm=bench.warm
    )
    await bench.make(one, incarnation=2048, secret=("PW",), PW="new")
    assert (made / "a.conf").read_bytes() == b"pw=old\n"
    assert "a.conf" in bench.progress.kept_files


async def test_merged_files_follow_the_rule(bench, make_plan):
    def layered(upper):
        templates = (bench.cache.template("low", {"a.json": b'{"x": 1}', "b.json": b'{"x": 1}'}),)
        upper = {"a.json": upper, "b.json": upper}
        return make_plan(
            templates=(*templates, bench.cache.template("up", upper)), merge=("*.json",), static=True
        )

    made = await bench.make(layered(b'{"y": 1}'))
    (made / "b.json").write_bytes(b'{"mine": 1}')
    await bench.make(layered(b'{"y": 2}'), incarnation=2048)
    assert json.loads((made / "a.json").read_bytes()) == {"x": 1, "y": 2}
    assert (made / "b.json").read_bytes() == b'{"mine": 1}'
    assert bench.progress.kept_files.keys() == {"b.json"}


async def test_artifacts_follow_the_rule(bench, make_plan):
    def with_jar(body):
        return make_plan(artifact=bench.cache.artifact("server.jar", body), static=True)

    made = await bench.make(with_jar(b"1"))
    await bench.make(with_jar(b"2"), incarnation=2048)
    assert (made / "server.jar").read_bytes() == b"2"
    (made / "server.jar").write_bytes(b"my own build")
    await bench.make(with_jar(b"3"), incarnation=3072)
    assert (made / "server.jar").read_bytes() == b"my own build"
    assert bench.progress.kept_files.keys() == {"server.jar"}


async def test_templates_that_a_group_gets_later_are_laid_into_its_empty_worlds(bench, plan, tree):
    run_directory = bench.data / "runs" / "one" / "1024"
    run_directory.mkdir(parents=True)
    made = bench.directories.make_static("one", bench.user, run_directory)
    (made / "world").write_bytes(PLAYED)
    await bench.make(plan({"a": b"1", "world": b"seed world"}), incarnation=2048)
    assert tree(made) == {"a": b"1", "world": PLAYED}


async def test_what_a_killed_start_had_laid_is_known_from_an_edit(bench, plan, tree):
    """A start that was about to lay three files had laid one of them when it was killed."""
    made = await bench.make(plan({"a": b"1", "b": b"1", "c": b"1"}))
    earlier = seed_file(bench).read_text()
    await bench.make(plan({"a": b"2", "b": b"2", "c": b"2", "d": b"2"}), incarnation=2048)
    done = json.loads(seed_file(bench).read_text())["value"]["files"]
    seed_file(bench).write_text(earlier)

    def announce(seed):
        for path, known in done.items():
            seed["files"].setdefault(path, {})["coming"] = known["laid"]

    edit_seed(bench, announce)
    (made / "b").write_bytes(b"1")
    (made / "c").write_bytes(b"mine")
    (made / "d").unlink()
    await bench.make(plan({"a": b"3", "b": b"3", "c": b"3", "d": b"3"}), incarnation=3072)
    assert tree(made) == {"a": b"3", "b": b"3", "c": b"mine", "d": b"3"}
    assert "coming" not in seed_file(bench).read_text()
