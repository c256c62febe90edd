"""`corral doctor` on this machine, as people and programs see it."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable

from stand_in_controller import NODE, StandIn, refused

from corral.cli.doctor.node_checks import WHY
from corral.runtimes.cgroups.move_delay import Moves, move_delay

Corral = Callable[..., subprocess.CompletedProcess[str]]
FIELDS = ["id", "subject", "severity", "found", "why", "command"]
GROUP = "name: lobby\ncommand: [sh]\nmemory_mb: 64\ntemplates: [lobby]\n"


def test_a_node_is_checked_and_nothing_on_it_is_changed(corral: Corral, tmp_path: pathlib.Path) -> None:
    data = tmp_path / "data"
    done = corral("doctor", "node", "--data", str(data), "-o", "json")
    items = json.loads(done.stdout)["items"]
    assert {each["id"] for each in items} == set(WHY)
    assert all(list(each) == FIELDS for each in items)
    assert {each["subject"].partition(":")[0] for each in items} == {"node"}
    worst = [["error", "advice", "ok"].index(each["severity"]) for each in items]
    assert worst == sorted(worst)
    assert done.returncode == (0 if worst[0] else 1)
    assert all(bool(each["why"]) == (each["severity"] != "ok") for each in items)
    assert not data.exists()
    delay = move_delay()
    (moves,) = [each for each in items if each["id"] == "cgroup-moves"]
    assert moves["severity"] == ("advice" if delay.moves is Moves.SLOW else "ok")
    assert moves["command"] == delay.remount


def test_doctor_alone_checks_the_node_with_reasons_and_commands_below_what_was_found(
    corral: Corral, tmp_path: pathlib.Path
) -> None:
    done = corral("doctor", CORRAL_DATA=str(tmp_path / "data"), CORRAL_DISK_RESERVE_MB="1000000000")
    assert done.returncode == 1, done.stderr
    first, *others = done.stdout.splitlines()
    assert first.startswith("error   ")
    assert any(line.startswith("        $ du -xh ") for line in others)
    assert any(line.startswith("ok      ") for line in others)
    assert others[-1].startswith(f"{len(WHY)} checks: ")
    assert "disk-space" in others[-1]


def test_a_controller_that_is_not_there_is_an_error_and_is_not_made(
    corral: Corral, tmp_path: pathlib.Path
) -> None:
    done = corral("doctor", "controller", "--data", str(tmp_path), "-o", "json")
    assert done.returncode == 1
    items = {each["id"]: each for each in json.loads(done.stdout)["items"]}
    assert items["store"]["found"] == f"there is no cluster in {tmp_path}"
    assert items["store"]["severity"] == "error"
    assert items["administrator"]["found"] == "not checked: the store cannot be read"
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_refused_are_told_as_a_role_tells_them(
    corral: Corral, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "daemon.yaml"
    file.write_text("format: corral-daemon\nversion: 1\ndisc: {}\n")
    done = corral("doctor", "node", "--config", str(file))
    assert (done.returncode, "did you mean 'disk'" in done.stderr) == (78, True), done.stderr


def test_groups_are_compared_with_the_cluster(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    for path in ("templates", "catalog"):
        server.answers["GET", f"/api/v1/{path}"] = (200, {"items": [], "next": None})
    server.answers["POST", "/api/v1/apply"] = (200, {})
    file = tmp_path / "g.yaml"
    file.write_text(GROUP)
    done = corral("doctor", "group", str(file), "-o", "json")
    items = {each["id"]: each for each in json.loads(done.stdout)["items"]}
    assert done.returncode == 1
    assert {each["subject"] for each in items.values()} == {"group:lobby"}
    assert items["templates"]["found"] == "there is no template lobby"
    assert items["nodes"]["found"] == f"1 node: {NODE['id']}"
    assert [each.body["dry_run"] for each in server.requests if each.method == "POST"] == [True]


def test_groups_are_checked_without_a_cluster_as_far_as_that_goes(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "g.yaml"
    file.write_text(GROUP)
    server.answers["GET", "/api/v1/nodes"] = refused(403, "FORBIDDEN", "this token may not read nodes")
    for environment, reason in (
        ({"CORRAL_URL": None, "CORRAL_TOKEN": None}, "no controller was chosen"),
        ({}, "this token may not read nodes"),
    ):
        done = corral("doctor", "group", str(file), **environment)
        assert done.returncode == 0, done.stdout
        assert "not checked: whether there are lobby" in done.stdout
        assert reason in " ".join(done.stdout.split())
        assert "9 checks: 0 errors" in done.stdout
