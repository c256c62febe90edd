"""`corral simulate`: without a controller, as people run it; and recordings of a real one."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import subprocess
from collections.abc import AsyncIterator, Callable

import pytest
import yaml
from stand_in_controller import PROGRAM

from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.waiting import eventually

Corral = Callable[..., subprocess.CompletedProcess[str]]

SCENARIO = """\
run: {seed: 7, start: 2026-03-28T00:00:00Z, for: 1h}
nodes: [{id: n, count: 3, memory_mb: 8192, cpus: 8}]
groups: [./lobby.yaml]
boot: {lobby: {seconds: 5}}
load: {lobby: {points: [[0s, 0], [60s, 0], [60s, 17], [300s, 17], [300s, 33], [600s, 33], [600s, 10]]}}
expect: {flaps: 0, short_minutes: {lobby: 2}}
"""
LOBBY = """\
name: lobby
command: [serve]
memory_mb: 512
min: 1
max: 10
max_players: 20
scaling: {mode: DYNAMIC}
"""
NOISY = """\
run: {seed: 3, for: 6h}
nodes: [{id: n, count: 3, memory_mb: 4096, cpus: 8}]
groups:
  - &g {name: lobby, command: [serve], min: 1, max: 9, max_players: 20, memory_mb: 512, scaling: {mode: DYNAMIC}}
  - {<<: *g, name: hub}
  - {<<: *g, name: arena}
boot: {lobby: {seconds: [1, 40], crash: 0.3}, hub: {seconds: [1, 9]}}
load:
  lobby: {points: [[0h, 10], [3h, 120], [6h, 0]], noise: 0.3}
  hub: {points: [[0h, 60]], noise: 0.5, players: spread}
  arena: {points: [[0h, 60], [6h, 0]], noise: 0.5}
faults: [{at: 1h, cut: n-1, for: 10m}, {at: 2h, kill: n-2}, {at: 3h, leader: change}]
"""


@pytest.fixture
def offline(corral: Corral) -> Corral:
    """Without a controller."""

    def run(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
        return corral(*arguments, CORRAL_URL=None, CORRAL_TOKEN=None, **more)

    return run


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    (tmp_path / "lobby.yaml").write_text(LOBBY)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return str(tmp_path / "scenario.yaml")


def test_a_run_is_shown_as_timeline_chart_and_figures(offline, path):
    done = offline("simulate", path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1] == "        1m  lobby scale: 17 players need 2, 1 is there [load.up]"
    assert [line.split()[0] for line in lines if " stop: " in line] == ["15m", "16m"]
    chart = [line.split()[0] for line in lines if line.startswith("  ") and " max " in line]
    assert chart == ["players", "wanted", "ready"]
    assert done.stdout.isascii(), "no signs of a terminal in a pipe"
    assert lines[-3].split() == [
        "lobby",
        "3",
        "2",
        "0",
        "0",
        "0.25",
        "min",
        "0",
        "min",
        "16.04",
        "0",
        "0",
        "3",
    ]
    assert lines[-1] == "as expected: short_minutes of 'lobby': at most 2 expected, 0.25 found"


def test_json_has_the_figures_of_each_group(offline, path):
    done = offline("simulate", "run", path, "-o", "json")
    found = json.loads(done.stdout)
    assert list(found) == [
        "scenario", "seed", "start", "seconds", "groups", "expect", "chart", "timeline", "timeline_left_out",
    ]  # fmt: skip
    assert list(found["groups"]["lobby"]) == [
        "starts", "stops", "crashes", "flaps", "short_minutes", "full_minutes", "unused_slots",
        "refused_players", "cut_players", "most_instances",
    ]  # fmt: skip
    assert found["expect"][0] == {"figure": "flaps", "group": "", "most": 0.0, "found": 0, "met": True}
    assert max(found["chart"]["groups"]["lobby"]["wanted"]) == 3
    entry = found["timeline"][1]
    assert (entry["at"], entry["kind"], entry["rule"]) == ("2026-03-28T00:01:00Z", "scale", "load.up")


def test_a_group_without_places_is_recorded_with_those_that_its_workload_reports(corral, server):
    group = {
        "name": "arena",
        "min": 0,
        "max_players": 0,
        "scaling": {"mode": "MANUAL"},
        "status": {"wanted": 2},
    }
    instance = {"id": "arena-1", "group": "arena", "players": 4, "max_players": 16}
    node = {"id": "web-1", "state": "ONLINE", "memory_mb": 1024, "cpus": 2}
    for path, items in (("groups", [group]), ("nodes", [node]), ("instances", [instance])):
        server.answers["GET", f"/api/v1/{path}"] = (200, {"items": items, "next": None})
    people = {"enabled": True, "message": "back soon", "bypass": ["ada"]}
    night = {"name": "night", "cron": "0 3 * * *", "duration_seconds": 600, "maintenance": people}
    document = {"name": "arena", "env": {"A": "secret"}, "maintenance": people, "schedules": [night]}
    server.answers["GET", "/api/v1/groups/arena/document"] = (200, document)
    done = corral("simulate", "record", "--for", "1s", "--every", "1s")
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout)
    [recorded] = found["groups"]
    assert recorded.pop("schedules")[0]["maintenance"] == recorded.pop("maintenance") == {"enabled": True}
    assert recorded == {"name": "arena", "command": ["recorded"], "min": 2, "max_players": 16}
    assert found["load"] == {"arena": {"points": [["0s", 4]], "players": "pack"}}
    assert "group 'arena': 2 are wanted by 'scale'; the scenario has them as 'min'" in done.stderr


@pytest.mark.system
def test_a_quiet_run_has_figures_only(offline, path):
    done = offline("simulate", "-q", path)
    assert done.stdout.splitlines()[0].startswith("GROUP")
    assert "timeline" not in json.loads(offline("simulate", "-q", path, "-o", "json").stdout)


def test_what_is_not_as_expected_ends_with_1_and_is_named(offline, path):
    wrong = SCENARIO.replace("flaps: 0, short_minutes: {lobby: 2}", "starts: 2, stops: {lobby: 1}")
    pathlib.Path(path).write_text(wrong)
    done = offline("simulate", path, "--quiet")
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].startswith("lobby")
    assert done.stderr.splitlines() == [
        "starts: at most 2 expected, 3 found",
        "stops of 'lobby': at most 1 expected, 2 found",
        "error: 2 expectations of the scenario are not met",
        "hint: the timeline has the reasons; change the groups, or what is expected",
    ]
    assert offline("simulate", path, "--until", "2m").returncode == 0, "less has happened by then"


@pytest.mark.system
def test_the_same_seed_gives_the_same_bytes_in_any_process(offline):
    runs = [
        offline("simulate", "-", "-o", "json", input=NOISY, PYTHONHASHSEED=hashes) for hashes in ("1", "2")
    ]
    assert [run.returncode for run in runs] == [0, 0]
    assert len({run.stdout for run in runs}) == 1
    other = offline("simulate", "-", "-o", "json", "--seed", "4", input=NOISY)
    assert other.stdout != runs[0].stdout


@pytest.mark.system
def test_only_chosen_groups_and_lines_are_shown(offline):
    done = offline("simulate", "-", "--group", "hub", "-n", "3", input=NOISY)
    lines = done.stdout.splitlines()
    assert lines[3].startswith("… ")
    assert "lobby" not in done.stdout
    assert lines[-1].startswith("hub")
    unknown = offline("simulate", "-", "--group", "hob", input=NOISY)
    assert (unknown.returncode, unknown.stderr.splitlines()[1]) == (2, "hint: did you mean 'hub'?")


def test_a_wrong_file_is_refused_with_every_fault(offline, path):
    pathlib.Path(path).write_text(SCENARIO.replace("flaps", "flips").replace("[./", "[./no-"))
    done = offline("simulate", path)
    assert done.returncode == 1
    *faults, error, hint = done.stderr.splitlines()
    assert [fault.removeprefix(path).split(": ")[:2] for fault in faults] == [
        [":3", "groups[0]"],
        [":6", "expect.flips"],
    ]
    assert error == f"error: 2 errors in {path}"
    assert hint.startswith("hint: correct what is listed")


def test_wrong_groups_are_refused_with_their_file(offline, path):
    lobby = pathlib.Path(path).with_name("lobby.yaml")
    lobby.write_text(LOBBY + "memry_mb: 3\n")
    done = offline("simulate", path)
    assert done.returncode == 1
    line = len((LOBBY + "memry_mb: 3").splitlines())
    told = f"{lobby}:{line}: unknown field 'memry_mb'; did you mean 'memory_mb'?"
    assert done.stderr.splitlines()[0] == told


REPORTER = """\
import json, os, pathlib, time, urllib.request
said = None
while True:
    count = int(pathlib.Path({file!r}).read_text() or 0)
    if count != said:
        request = urllib.request.Request(
            os.environ["CORRAL_API_URL"] + "/api/v1/workload/players",
            data=json.dumps({{"count": count}}).encode(),
            headers={{"Authorization": "Bearer " + os.environ["CORRAL_INSTANCE_TOKEN"], "Content-Type": "application/json"}},
        )
        urllib.request.urlopen(request)
        said = count
    time.sleep(0.05)
"""
SECRET = "nobody-may-see-this"


@pytest.fixture
async def cluster(tmp_path: pathlib.Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        yield cluster


async def players_of(controller: LocalController, count: int) -> bool:
    items = (await controller.call("GET", "/api/v1/instances"))["items"]
    return any(each["players"] == count for each in items)


async def test_a_recording_of_a_real_cluster_can_be_replayed(cluster, tmp_path, offline):
    controller = await cluster.controller()
    await cluster.daemon("n1", controller)
    said = tmp_path / "players"
    said.write_text("2")
    await controller.call(
        "POST",
        "/api/v1/groups",
        {
            "name": "lobby",
            "command": ["python3", "-u", "-c", REPORTER.format(file=str(said))],
            "env": {"PASSWORD": SECRET},
            "max_players": 20,
            "min": 1,
            "max": 4,
            "scaling": {"mode": "DYNAMIC"},
            "stop": [{"command": f"save {SECRET}", "wait_seconds": 1}],
            "disconnect": {"stop_after_seconds": 20, "replace_after_seconds": 40},
        },
    )
    await eventually(lambda: players_of(controller, 2))
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        "simulate",
        "record",
        "--for",
        "1h",
        "--every",
        "1s",
        env={**os.environ, "CORRAL_URL": controller.url, "CORRAL_TOKEN": controller.admin_token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    begun = (await process.stderr.readline()).decode()
    assert begun == "recording the players of 1 group; Ctrl-C ends it and prints what there is\n"
    said.write_text("7")
    await eventually(lambda: players_of(controller, 7))
    process.send_signal(signal.SIGINT)
    out, errors = await process.communicate()
    assert process.returncode == 0, errors
    assert b"interrupted: the scenario has what was recorded until now" in errors
    text = out.decode()
    assert SECRET not in text
    found = yaml.safe_load(text)
    assert [each["id"] for each in found["nodes"]] == ["n1"]
    assert found["groups"][0]["scaling"] == {"mode": "DYNAMIC"}
    assert [number for _, number in found["load"]["lobby"]["points"]][-1] == 7
    again = await asyncio.to_thread(offline, "simulate", "-", "-o", "json", input=text)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["groups"]["lobby"]["starts"] == 1
