"""Groups as files: `apply`, `diff`, `export` and `delete`, against a real controller."""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import yaml

from corral.testing.cluster import LocalCluster, LocalController

Corral = Callable[..., subprocess.CompletedProcess[str]]
Run = Callable[..., Awaitable[subprocess.CompletedProcess[str]]]

GOOD = "name: {name}\ncommand: [python3, server.py]\n"
WRONG = {
    "unknown-field": "nmae: x\n",
    "unknown-nested": "restart: {attmpts: 1}\n",
    "negative": "memory_mb: -1\n",
    "too-large": "min: 100001\n",
    "no-number": "min: many\n",
    "no-text": "run_as: 17\n",
    "no-list": "templates: lobby\n",
    "no-object": "ports: 30000\n",
    "runtime": "runtime: doker\n",
    "max-below-min": "min: 5\nmax: 1\n",
    "empty-program": "command: ['']\n",
    "blocked-variable": "env: {LD_PRELOAD: x}\n",
    "reserved-variable": "env: {CORRAL_X: x}\n",
    "port-reversed": "ports: {primary: {range: [2, 1]}}\n",
    "port-nothing": "ports: {primary: {}}\n",
    "port-of-nothing": "ports: {query: {of: primry, offset: 1}}\n",
    "signal": "stop: [{signal: SIGNOPE}]\n",
    "two-in-a-rung": "stop: [{signal: SIGTERM, command: stop}]\n",
    "template-name": "templates: ['No Template']\n",
    "no-template": "templates: [nowhere]\n",
    "glob": "merge: ['/etc/*']\n",
    "patch-format": "patches: [{file: x.bin, path: a, value: b}]\n",
    "patch-path": "patches: [{file: x.yml, path: 'a..b', value: b}]\n",
    "url-without-digest": "artifact: {url: 'https://example.org/a.jar'}\n",
    "artifact-of-nothing": "artifact: {}\n",
    "jvm-and-command": "jvm: {jar: a.jar}\n",
    "node-id": "nodes: ['No Node']\n",
    "capability": "node_capabilities: [fly]\n",
    "affinity-of-nothing": "affinity: [{weight: 5}]\n",
    "affinity-label": "affinity: [{label: ssd}]\n",
    "spread-twice": "spread: [{by: node}, {by: node}]\n",
    "depends-on-nobody": "depends_on: [{group: nobody}]\n",
    "depends-on-itself": "depends_on: [{group: depends-on-itself}]\n",
    "falls-back-to-nobody": "fallback_group: nobody\n",
    "parent-missing": "parent: nobody\n",
    "parent-itself": "parent: parent-itself\n",
    "warm-static": "warm: 1\nstatic: true\n",
    "isolate": "isolate: uid\nrun_as: games\n",
    "variable": "variables: {PORT: '1'}\n",
    "variable-type": "variable_types: {A: {type: int}}\nvariables: {A: x}\n",
    "probe": "probes: [{kind: nope}]\n",
    "twice": "min: 1\nmin: 2\n",
    "no-yaml": "min: [1\n",
}


@pytest.fixture
async def controller(tmp_path: pathlib.Path) -> AsyncIterator[LocalController]:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        yield await cluster.controller()


@pytest.fixture
def run(controller: LocalController, corral: Corral) -> Run:
    async def call(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
        environment = {"CORRAL_URL": controller.url, "CORRAL_TOKEN": controller.admin_token}
        return await asyncio.to_thread(corral, *arguments, **environment, **more)

    return call


def write(folder: pathlib.Path, name: str, text: str = "") -> None:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / f"{name}.yaml").write_text(GOOD.format(name=name) + text)


async def names(controller: LocalController) -> set[str]:
    return {each["name"] for each in (await controller.call("GET", "/api/v1/groups"))["items"]}


async def test_each_of_forty_wrong_documents_is_named_and_nothing_changes(
    tmp_path: pathlib.Path, run: Run, controller: LocalController
) -> None:
    folder = tmp_path / "groups"
    for name, text in WRONG.items():
        without = name in ("empty-program",)
        write(folder, name, "" if without else text)
        if without:
            (folder / f"{name}.yaml").write_text(f"name: {name}\n{text}")
    write(folder / "sub", "fine")
    assert len(WRONG) >= 40
    done = await run("apply", "-f", str(folder))
    assert done.returncode == 1, done.stderr
    for name in WRONG:
        (line, *_) = [each for each in done.stderr.splitlines() if f"/{name}.yaml" in each] or [""]
        place, _, message = line.partition(": ")
        assert place.startswith(str(folder / f"{name}.yaml:")), (name, line)
        assert message, name
    assert "fine.yaml" not in done.stderr
    assert "nothing was changed" in done.stderr
    assert await names(controller) == set()


@pytest.mark.system
async def test_a_folder_is_applied_shown_exported_and_deleted(
    tmp_path: pathlib.Path, run: Run, controller: LocalController
) -> None:
    folder = tmp_path / "groups"
    write(folder, "base", "abstract: true\nmemory_mb: 64\nrestart: {on: failure}\n")
    write(folder, "lobby", "parent: base\n---\nname: game\nparent: base\ncommand: [a]\n")
    assert (await run("diff", "-f", str(folder), "--exit-code")).returncode == 5
    first = await run("apply", "-f", str(folder))
    assert first.stdout.splitlines()[-1] == "3 groups, 3 created"
    second = await run("apply", "-f", str(folder))
    assert (second.returncode, second.stdout) == (0, "3 groups, nothing changed\n")
    assert (await run("diff", "-f", str(folder), "--exit-code")).returncode == 0

    exported = await run("export")
    documents = list(yaml.safe_load_all(exported.stdout))
    assert [each["name"] for each in documents] == ["base", "game", "lobby"]
    assert exported.stdout.startswith("---\nname: base\nabstract: true\n")
    assert documents[1] == {"name": "game", "parent": "base", "command": ["a"]}
    again = await run("apply", "-f", "-", input=exported.stdout)
    assert again.stdout == "3 groups, nothing changed\n"
    as_json = await run("export", "lobby", "--resolved", "-o", "json")
    assert json.loads(as_json.stdout)[0]["memory_mb"] == 64

    write(folder, "base", "abstract: true\nmemory_mb: 128\n")
    shown = await run("diff", "-f", str(folder))
    assert "memory_mb (with a restart): 64 -> 128" in shown.stdout
    assert "~ game  (inherits)" not in shown.stdout
    planned = await run("apply", "-f", str(folder), "--dry-run", "-o", "json")
    assert json.loads(planned.stdout)["changed"] == 3
    refused = await run("delete", "-f", str(folder))
    assert refused.returncode == 2
    gone = await run("delete", "-f", str(folder), "--yes")
    assert gone.returncode == 0, gone.stderr
    assert await names(controller) == set()


async def test_prune_needs_an_owner_and_a_yes(
    tmp_path: pathlib.Path, run: Run, controller: LocalController
) -> None:
    folder = tmp_path / "groups"
    write(folder, "one")
    write(folder, "two")
    assert (await run("apply", "-f", str(folder), "--owner", "me")).returncode == 0
    (folder / "two.yaml").unlink()
    alone = await run("apply", "-f", str(folder), "--prune")
    assert (alone.returncode, "--owner" in alone.stderr) == (1, True)
    asked = await run("apply", "-f", str(folder), "--owner", "me", "--prune")
    assert (asked.returncode, "delete two" in asked.stderr) == (2, True)
    assert await names(controller) == {"one", "two"}
    done = await run("apply", "-f", str(folder), "--owner", "me", "--prune", "--yes")
    assert done.stdout.splitlines()[-1] == "2 groups, 1 deleted"
    assert await names(controller) == {"one"}


NOT_JSON = [
    ("a: &a [1]\nb: &b [*a,*a]\n" + "c: [*b]\nname: x\n", "unknown field 'a'"),
    ("name: x\nmin: 2026-01-01\n", "min"),
    ("name: x\n1: 2\n", "a key is no text"),
    ("name: x\nmin: .inf\n", "a value that JSON does not have"),
    ("\x00", "not YAML"),
]


async def test_what_yaml_has_and_json_has_not_is_refused_with_its_place(
    tmp_path: pathlib.Path, run: Run
) -> None:
    for text, message in NOT_JSON:
        file = tmp_path / "x.yaml"
        file.write_text(text)
        done = await run("apply", "-f", str(file))
        assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (1, True, False), (
            done.stderr
        )


async def test_references_that_grow_without_end_are_refused(tmp_path: pathlib.Path, run: Run) -> None:
    lines = ["a0: &a0 [1, 1]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    file = tmp_path / "x.yaml"
    file.write_text("\n".join(lines))
    done = await run("apply", "-f", str(file))
    assert (done.returncode, "references included" in done.stderr) == (1, True)


async def test_an_empty_folder_and_a_missing_one_are_wrong_usage(tmp_path: pathlib.Path, run: Run) -> None:
    assert (await run("apply", "-f", str(tmp_path / "nowhere"))).returncode == 2
    (tmp_path / "empty").mkdir()
    assert (await run("apply", "-f", str(tmp_path / "empty"))).returncode == 2


async def test_fields_may_have_the_spellings_of_other_systems(
    tmp_path: pathlib.Path, run: Run, controller: LocalController
) -> None:
    folder = tmp_path / "groups"
    write(folder, "lobby", "maxPlayers: 20\nramMB: 64\nenv: {maxPlayers: kept}\n")
    done = await run("apply", "-f", str(folder))
    assert done.returncode == 0, done.stderr
    shown = await controller.call("GET", "/api/v1/groups/lobby")
    assert (shown["max_players"], shown["memory_mb"], shown["env"]) == (20, 64, {"maxPlayers": "kept"})
    assert (await run("apply", "-f", str(folder))).stdout == "1 group, nothing changed\n"
    write(folder, "lobby", "maxPlayers: 20\nmax_players: 30\n")
    twice = await run("apply", "-f", str(folder))
    assert (twice.returncode, "written twice" in twice.stderr) == (1, True), twice.stderr


async def test_a_diff_says_what_apply_would_refuse(
    run: Run, controller: LocalController, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("name: a\ncommand: [sleep, '9']\nenv: {A: '1', B: '2'}\n")
    await run("apply", "-f", str(file), "--owner", "me")
    await controller.call("PATCH", "/api/v1/groups/a", {"env": {"B": "3"}})
    shown = await run("diff", "-f", str(file))
    assert "env.B (with a restart): " in shown.stdout, "only the entry that differs"
    assert "env.A" not in shown.stdout
    assert "'apply' refuses it" in shown.stderr
    assert "was edited since it was applied" in shown.stderr
    dry = await run("apply", "-f", str(file), "--force", "--dry-run")
    assert "env.B (with a restart): " in dry.stdout


@pytest.mark.system
async def test_a_prune_says_what_it_stops_and_not_that_nothing_was_done(
    corral: Corral, tmp_path: pathlib.Path
) -> None:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        controller = await cluster.controller()
        await cluster.daemon("n1", controller)

        async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            environment = {"CORRAL_URL": controller.url, "CORRAL_TOKEN": controller.admin_token}
            return await asyncio.to_thread(
                corral, *arguments, "-f", str(file), "--owner", "me", **environment
            )

        file = tmp_path / "groups.yaml"
        kept = "name: a\ncommand: [sleep, '900']\n"
        file.write_text(f"{kept}---\nname: b\ncommand: [sleep, '900']\nmin: 1\nstop: [{{signal: SIGKILL}}]\n")
        assert (await run("apply", "--wait")).returncode == 0
        await controller.call("POST", "/api/v1/groups/a/hold", {"reason": "x"})
        file.write_text(kept.replace("900", "901"))
        shown = await run("diff", "--prune")
        assert "it is held: nothing starts until 'corral group release a'" in shown.stdout
        assert "1 instance (b-1) is stopped" in shown.stdout
        asked = await run("apply", "--prune")
        assert "a yes is needed to delete b, and stop b-1" in asked.stderr
        done = await run("apply", "--prune", "--yes")
        assert done.returncode == 0, done.stderr
        assert "'b-1' (RUNNING) would be stopped" in done.stderr
        assert "nothing was done" not in done.stderr
