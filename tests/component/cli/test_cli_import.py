"""`corral import universe` against a real controller and a real daemon, with a folder that uses every field."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from universe_sample import CONFIG, DATABASE, LOBBY, PASSWORD, WORLD, write_folder

from corral.testing.api_calls import wait_for_instance, wait_for_line
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.testing.ports import free_range

Corral = Callable[..., subprocess.CompletedProcess[str]]
Run = Callable[..., Awaitable[subprocess.CompletedProcess[str]]]


@pytest.fixture
async def cluster(tmp_path: pathlib.Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
async def controller(cluster: LocalCluster) -> LocalController:
    return await cluster.controller()


@pytest.fixture
def run(controller: LocalController, corral: Corral) -> Run:
    async def call(*arguments: str, token: str = "", **more: object) -> subprocess.CompletedProcess[str]:
        environment = {"CORRAL_URL": controller.url, "CORRAL_TOKEN": token or controller.admin_token}
        return await asyncio.to_thread(corral, *arguments, **environment, **more)

    return call


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return write_folder(tmp_path / "universe", first_port=free_range(20)[0])


async def stored(controller: LocalController) -> dict[str, list[Any]]:
    """Everything that an import could change: groups, templates and tokens with their revisions, and the audit."""
    found: dict[str, list[Any]] = {}
    for place, name in (("groups", "name"), ("templates", "name"), ("tokens", "id")):
        items = (await controller.call("GET", f"/api/v1/{place}"))["items"]
        found[place] = [(each[name], each["revision"]) for each in items]
    found["audit"] = (await controller.call("GET", "/api/v1/audit?limit=500"))["items"]
    return found


async def imported(run: Run, folder: pathlib.Path, *more: str) -> dict[str, Any]:
    done = await run("import", "universe", str(folder), "-o", "json", *more)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


async def test_a_dry_run_changes_nothing_and_shows_what_would_follow(
    run: Run, controller: LocalController, folder: pathlib.Path
) -> None:
    before = await stored(controller)
    result = await imported(run, folder, "--dry-run")
    assert result.keys() == {
        *("dry_run", "summary", "fields", "templates", "apply", "static", "settings", "commands", "tokens")
    }
    assert (result["dry_run"], result["apply"]["dry_run"]) == (True, True)
    assert {each["name"]: each["action"] for each in result["apply"]["groups"]} == {
        "lobby": "created",
        "world": "created",
    }
    assert {each["group"] for each in result["apply"]["decisions"]} == {"lobby", "world"}
    assert {each["action"] for each in (*result["templates"], *result["tokens"])} == {"created"}
    assert [each["token"] for each in result["tokens"]] == ["", ""]
    shown = await run("import", "universe", str(folder), "--dry-run")
    assert shown.stdout.splitlines()[-1] == (
        "2 groups, 2 created; 5 templates, 5 created; 2 tokens, 2 created (dry run: nothing was written)"
    )
    assert await stored(controller) == before


async def test_each_field_of_each_file_has_a_line_and_no_secret_is_in_one(
    run: Run, controller: LocalController, folder: pathlib.Path
) -> None:
    del controller
    result = await imported(run, folder, "--dry-run")
    reported = {
        (each["file"], each["field"].partition("[")[0].partition(".")[0]) for each in result["fields"]
    }
    files = {
        "config.json": CONFIG,
        "database.json": DATABASE,
        "configuration/Lobby.json": LOBBY,
        "configuration/World.json": WORLD,
    }
    assert {(file, field) for file, fields in files.items() for field in fields} <= reported
    assert {each["action"] for each in result["fields"]} == {"taken", "mapped", "dropped"}
    shown = await run("import", "universe", str(folder), "--dry-run")
    for file, fields in files.items():
        assert file in shown.stdout.splitlines()
        for field in fields:
            assert any(
                line.split()[:1] and line.split()[0].startswith(field) for line in shown.stdout.splitlines()
            )
    assert PASSWORD not in json.dumps(result) + shown.stdout + shown.stderr


@pytest.mark.system
async def test_an_imported_folder_runs_and_the_second_import_changes_nothing(
    run: Run, cluster: LocalCluster, controller: LocalController, folder: pathlib.Path
) -> None:
    daemon = await cluster.daemon("n1", controller)
    await copy_static(daemon, (await imported(run, folder, "--dry-run"))["static"])
    first = await imported(run, folder)
    assert first["summary"] == "2 groups, 2 created; 5 templates, 5 created; 2 tokens, 2 created"
    await wait_for_line(controller, "lobby-1", "groups=hub,fallback size=512 port=")
    await wait_for_line(controller, "lobby-1", "at 127.0.0.1 level 3")
    await wait_for_line(controller, "world-1", "the old world")
    for instance in ("lobby-1", "world-1"):
        await wait_for_instance(controller, instance, lambda found: bool(found["ready"]))
    files = {each.name for each in (daemon.config.data / "running" / "lobby-1").iterdir()}
    assert files == {"server", "server.properties", "pack.txt", "pack2.txt", "map.txt", "season.txt"}
    groups = (await controller.call("GET", "/api/v1/groups"))["items"]
    assert {each["name"]: each["status"]["owner"] for each in groups} == {
        "lobby": "universe",
        "world": "universe",
    }
    for made, role in zip(first["tokens"], ("ADMIN", "VIEWER"), strict=True):
        me = await run("token", "list", "-o", "name", token=made["token"])
        assert (me.returncode, made["role"]) == (0 if role == "ADMIN" else 1, role)

    before = await stored(controller)
    second = await imported(run, folder)
    assert second["summary"] == (
        "2 groups, nothing changed; 5 templates, nothing changed; 2 tokens, nothing changed"
    )
    assert [each["token"] for each in second["tokens"]] == ["", ""]
    assert await stored(controller) == before


async def copy_static(daemon: LocalDaemon, copies: list[dict[str, Any]]) -> None:
    """Run the commands that the import prints, as an operator does."""
    (copy,) = copies
    assert (copy["source"], copy["group"], copy["instance"]) == ("static/World", "world", "world-1")
    environment = {"DATA": str(daemon.config.data), "PATH": "/usr/bin:/bin"}
    done = await asyncio.to_thread(
        subprocess.run, ["sh", "-c", copy["command"]], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


async def test_the_printed_commands_copy_directories_of_a_group_that_runs_already(
    run: Run, cluster: LocalCluster, controller: LocalController, folder: pathlib.Path
) -> None:
    daemon = await cluster.daemon("n1", controller)
    command = "ls; exec head -n 1"
    world = {**WORLD, "command": command, "minimumServiceCount": 2, "templateInstallationConfig": {}}
    (folder / "configuration/World.json").write_text(json.dumps(world))
    (folder / "static/World-2").mkdir()
    (folder / "static/World-2/second.dat").write_text("the second world")
    printed = (await run("import", "universe", str(folder))).stdout.splitlines()
    begin = next(at for at, line in enumerate(printed) if "DATA=" in line)
    block = [line for line in printed[begin + 1 :] if line.startswith("  ")]
    script = block[: block.index("  corral group release world") + 1]
    assert [line.split()[0] for line in script] == ["corral", "cp", "cp", "corral"], "held once, and awaited"
    for id in ("world-1", "world-2"):
        await wait_for_instance(controller, id, lambda found: found["state"] == "RUNNING")
    environment = {
        "CORRAL_URL": controller.url,
        "CORRAL_TOKEN": controller.admin_token,
        "DATA": str(daemon.config.data),
        "PATH": f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(folder),
    }
    done = await asyncio.to_thread(
        subprocess.run, ["sh", "-ec", "\n".join(script)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    await wait_for_line(controller, "world-1", "level.dat")
    await wait_for_line(controller, "world-2", "second.dat")


async def world_files(folder: pathlib.Path) -> pathlib.Path:
    place = folder / "static/World"
    (place / "region").mkdir()
    (place / "region/r.0.mca").write_bytes(b"r" * 300_000)
    (place / "start.sh").write_text("#!/bin/sh")
    (place / "start.sh").chmod(0o755)
    return place


@pytest.mark.system
async def test_a_static_world_is_copied_to_a_node_and_its_first_start_finds_it(
    run: Run, cluster: LocalCluster, controller: LocalController, folder: pathlib.Path
) -> None:
    await cluster.daemon("n1", controller)
    second = await cluster.daemon("n2", controller)
    place = await world_files(folder)
    before = await stored(controller)
    planned = await imported(run, folder, "--dry-run", "--node", "n2")
    assert (planned["static"][0]["copied"]["node"], await stored(controller)) == ("n2", before)
    done = await run("import", "universe", str(folder), "--node", "world-1=n2")
    assert done.returncode == 0, done.stderr
    assert "+ world world-1 on n2  (static/World: 3 files sent, 0 as before)" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("1 world copied")
    assert "cp -aT" not in done.stdout
    assert "copied to node n2" in done.stdout
    assert "by the command below" not in done.stdout
    await wait_for_line(controller, "world-1", "the old world")
    found = await wait_for_instance(controller, "world-1", lambda found: bool(found["ready"]))
    assert (found["node"], found["static"]) == ("n2", True)
    there = second.config.data / "static/world-1"
    for name in ("level.dat", "region/r.0.mca", "start.sh"):
        assert (there / name).read_bytes() == (place / name).read_bytes()
    assert os.access(there / "start.sh", os.X_OK)
    assert (await controller.call("GET", "/api/v1/groups/world"))["min"] == 1
    types = [each["type"] for each in await events_of(controller, "world-1")]
    assert types.index("INSTANCE_RESERVED") < types.index("INSTANCE_FILE_CHANGED")
    assert types.index("INSTANCE_FILE_CHANGED") < types.index("INSTANCE_SCHEDULED")

    again = await run("import", "universe", str(folder), "--node", "n2")
    assert (again.returncode, again.stderr) == (
        0,
        "static/World: world-1 runs on n2: passed over\n",
    )
    assert "world world-1" not in again.stdout
    assert again.stdout.splitlines()[-1].endswith("0 worlds copied")
    (place / "level.dat").write_text("another world")
    (there / "start.sh").unlink()  # by the game
    again = await run("import", "universe", str(folder), "--node", "n2", "-o", "json")
    assert (again.returncode, again.stderr) == (
        0,
        "static/World: world-1 runs on n2: passed over\n"
        "world-1: other files there, and kept: 'level.dat'\n"
        "world-1: not there: 'start.sh'\n",
    )
    passed = json.loads(again.stdout)["static"][0]["copied"]
    assert (passed["runs"], passed["sent"], passed["same"]) == (True, 0, 1)
    assert (passed["kept"], passed["missing"]) == (["level.dat"], ["start.sh"])
    for arguments in (("--node", "n2", "--replace"), ("--node", "n1")):
        refused = await run("import", "universe", str(folder), *arguments)
        assert (refused.returncode, "instance 'world-1' is RUNNING" in refused.stderr) == (1, True)
    assert (there / "level.dat").read_bytes() != b"another world"


async def events_of(controller: LocalController, subject: str) -> list[dict[str, Any]]:
    page = await controller.call("GET", f"/api/v1/events?subject={subject}&limit=500")
    found: list[dict[str, Any]] = page["items"]
    return found


@pytest.mark.system
async def test_a_copy_that_was_cut_off_goes_on_and_writes_over_nothing_without_being_asked(
    run: Run, cluster: LocalCluster, controller: LocalController, folder: pathlib.Path
) -> None:
    daemon = await cluster.daemon("n1", controller)
    place = await world_files(folder)
    await imported(run, folder, "--dry-run", "--node", "n1")
    (folder / "static/World/unreadable").symlink_to("/nowhere")
    world = {**WORLD, "minimumServiceCount": 0}
    (folder / "configuration/World.json").write_text(json.dumps(world))
    await imported(run, folder, "--node", "n1")
    there = daemon.config.data / "static/world-1"
    assert not (there / "unreadable").exists()
    (there / "level.dat").write_text("played\n")
    (there / "start.sh").unlink()
    (folder / "configuration/World.json").write_text(json.dumps(WORLD))
    done = await run("import", "universe", str(folder), "--node", "n1")
    assert "1 file sent, 1 as before, 1 kept there" in done.stdout, done.stderr
    assert "world-1: 'level.dat' is another file there, and kept; --replace writes over it" in done.stderr
    assert (there / "level.dat").read_text() == "played\n"
    await wait_for_line(controller, "world-1", "played")
    await controller.call("POST", "/api/v1/instances/world-1/kill?wait=stopped", {})
    replaced = await imported(run, folder, "--node", "n1", "--replace")
    copy = replaced["static"][0]["copied"]
    assert (copy["sent"], copy["kept"], copy["started"]) == (1, [], False), "an operator stopped it"
    assert (there / "level.dat").read_bytes() == (place / "level.dat").read_bytes()


async def test_a_copy_that_is_not_possible_is_refused_before_anything_is_written(
    run: Run, cluster: LocalCluster, controller: LocalController, folder: pathlib.Path
) -> None:
    await cluster.daemon("n1", controller)
    before = await stored(controller)
    for node, code, text in (
        ("nowhere", 1, "nowhere"),
        ("lobby-1=n1", 2, "no static directory of the folder is that of 'lobby-1'"),
    ):
        done = await run("import", "universe", str(folder), "--node", node)
        assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    (folder / "configuration/World.json").write_text(json.dumps({**WORLD, "nodes": ["n9"]}))
    done = await run("import", "universe", str(folder), "--node", "n1")
    assert (done.returncode, "may only use n9" in done.stderr) == (2, True)
    assert await stored(controller) == before


@pytest.mark.system
async def test_a_copy_names_its_node_and_warns_where_several_could_take_the_instance(
    run: Run, cluster: LocalCluster, controller: LocalController, folder: pathlib.Path
) -> None:
    await cluster.daemon("n1", controller)
    alone = (await run("import", "universe", str(folder), "--dry-run")).stdout
    assert '"$DATA/static/world-1"  # on n1, where it would start  # before the import\n' in alone
    assert "several nodes" not in alone
    await cluster.daemon("n2", controller)
    both = (await run("import", "universe", str(folder), "--dry-run")).stdout
    assert "world-1: several nodes could take it; write the node of the copy into 'nodes'" in both
    await run("import", "universe", str(folder))
    found = await wait_for_instance(controller, "world-1", lambda found: bool(found["node"]))
    again = (await run("import", "universe", str(folder))).stdout
    assert f'"$DATA/static/world-1"  # on {found["node"]}, where it is\n' in again


@pytest.mark.system
async def test_what_was_changed_in_the_folder_is_imported_and_edits_are_not_undone(
    run: Run, controller: LocalController, folder: pathlib.Path
) -> None:
    await imported(run, folder)
    (folder / "templates/maps/Arena/map.txt").write_text("new arena")
    (folder / "templates/packs/one/empty").mkdir()
    (folder / "configuration/World.json").write_text(json.dumps({**WORLD, "ramMB": 128}))
    planned = await imported(run, folder, "--dry-run")
    assert actions(planned) == {"maps/arena": "changed"}
    changed = await imported(run, folder)
    assert actions(changed) == {"maps/arena": "changed", "packs/one": "changed"}
    assert changed["apply"]["summary"] == "2 groups, 1 changed"
    assert actions(await imported(run, folder)) == {}

    await controller.call("PATCH", "/api/v1/groups/lobby", {"min": 0})
    refused = await run("import", "universe", str(folder))
    assert refused.returncode == 1
    assert "minimumServiceCount" in refused.stderr
    assert "--force" in refused.stderr
    forced = await run("import", "universe", str(folder), "--force")
    assert forced.returncode == 0, forced.stderr
    assert (await controller.call("GET", "/api/v1/groups/lobby"))["min"] == 1


def actions(result: dict[str, Any]) -> dict[str, str]:
    """Of the templates that are not as they were."""
    return {each["name"]: each["action"] for each in result["templates"] if each["action"] != "unchanged"}


async def test_one_bad_file_refuses_the_whole_folder_with_every_error(
    run: Run, controller: LocalController, folder: pathlib.Path
) -> None:
    bad = {
        "types": {**LOBBY, "name": "types", "ramMB": "much", "cpu": []},
        "refused": {**LOBBY, "name": "refused", "environmentVariables": {"LD_PRELOAD": "x"}},
        "lost": {
            "name": "lost",
            "command": "./server",
            "templateInstallationConfig": {"allOf": [{"name": "nothing", "group": "maps"}]},
        },
        "twin": {"name": "LOBBY", "command": "./server"},
    }
    for name, fields in bad.items():
        (folder / f"configuration/{name}.json").write_text(json.dumps(fields))
    (folder / "configuration/broken.json").write_text('{"name": "a", "name": "b"}')
    (folder / "templates/packs/one/link").symlink_to("/etc/passwd")
    before = await stored(controller)
    for more in ((), ("--dry-run",)):
        done = await run("import", "universe", str(folder), *more)
        assert done.returncode == 1
        lines = done.stderr.splitlines()
        for begin in (
            "configuration/types.json: ramMB: ",
            "configuration/types.json: cpu: ",
            "configuration/refused.json: environmentVariables.LD_PRELOAD: ",
            "configuration/lost.json: templateInstallationConfig.allOf[0]: template 'maps/nothing' does not exist",
            "configuration/Lobby.json: group 'lobby' would be made of",
            "configuration/broken.json:1: the key 'name' stands twice",
            "templates/packs/one/link: it is a link",
        ):
            assert sum(line.startswith(begin) for line in lines) == 1, (begin, done.stderr)
        assert "error: 7 errors" in lines
        assert "hint: nothing was changed; correct what is listed and import again" in lines
        assert await stored(controller) == before


async def test_an_operator_imports_all_but_tokens(
    run: Run, controller: LocalController, folder: pathlib.Path
) -> None:
    made = await controller.call("POST", "/api/v1/tokens", {"name": "op", "role": "OPERATOR"})
    done = await run("import", "universe", str(folder), token=made["token"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 groups, 2 created; 5 templates, 5 created; 2 tokens, 2 skipped"
    assert "corral token create universe-all --role ADMIN" in done.stdout
    tokens = (await controller.call("GET", "/api/v1/tokens"))["items"]
    assert "universe-all" not in {each["name"] for each in tokens}


async def test_a_template_that_the_controller_refuses_leaves_the_groups_as_they_are(
    cluster: LocalCluster, corral: Corral, folder: pathlib.Path
) -> None:
    controller = await cluster.controller("small", templates__max_files=1)
    (folder / "templates/Global/Alone").mkdir()
    (folder / "templates/Global/Alone/x").write_text("x")
    environment = {"CORRAL_URL": controller.url, "CORRAL_TOKEN": controller.admin_token}
    done = await asyncio.to_thread(corral, "import", "universe", str(folder), **environment)
    assert done.returncode == 1
    assert "uploaded before: global/alone; the next import does not upload them again" in done.stderr
    assert (await controller.call("GET", "/api/v1/groups"))["items"] == []


async def test_a_folder_with_templates_alone_makes_no_group(
    run: Run, controller: LocalController, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "some/templates/a/b").mkdir(parents=True)
    (tmp_path / "some/templates/a/b/x").write_text("x")
    result = await imported(run, tmp_path / "some")
    assert (result["summary"], result["apply"]) == ("0 groups; 1 template, 1 created", None)
    assert (await controller.call("GET", "/api/v1/groups"))["items"] == []


async def test_what_is_no_folder_is_wrong_usage(run: Run, tmp_path: pathlib.Path) -> None:
    for place in (tmp_path / "nothing", tmp_path):
        done = await run("import", "universe", str(place))
        assert (done.returncode, "hint: give the folder in which Universe runs" in done.stderr) == (2, True)
