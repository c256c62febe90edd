"""`corral group`, `instance`, `crash` and `why`: what they send and what people read."""

from __future__ import annotations

import itertools
import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from stand_in_console import INSTANCE, RUN
from stand_in_controller import Request, StandIn, refused

Corral = Callable[..., subprocess.CompletedProcess[str]]

GROUP: dict[str, Any] = {
    "name": "lobby",
    "runtime": "process",
    "command": ["python3", "server.py"],
    "args": [],
    "min": 2,
    "max": 5,
    "ports": {"primary": {"range": [30000, 30100], "port": None, "protocol": "both"}},
    "memory_mb": 256,
    "status": {
        "wanted": 2,
        "target": 0,
        "instances": 2,
        "ready": 1,
        "reason": "",
        "paused": None,
        "deleting": False,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
    },
    "revision": 3,
}


def with_status(**changed: Any) -> dict[str, Any]:
    return {**GROUP, "status": {**GROUP["status"], **changed}}


def growing(*answers: dict[str, Any]) -> Callable[[Request], tuple[int, Any]]:
    """One answer after the other, the last one for ever."""
    following = itertools.chain(answers[:-1], itertools.repeat(answers[-1]))
    return lambda _: (200, next(following))


def test_groups_are_listed_with_how_they_fare(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/groups"] = (200, {"items": [GROUP], "next": None})
    for noun in ("group", "config"):
        done = corral(noun, "list")
        assert done.stdout.splitlines()[1].split()[:4] == ["lobby", "SHORT", "1/2", "2"], done.stderr
    assert corral("group", "list", "-o", "name").stdout == "lobby\n"


def test_a_resolved_group_lists_where_its_values_were_written(corral: Corral, server: StandIn) -> None:
    found = {
        "name": "lobby",
        "ancestors": ["base"],
        "document": {"memory_mb": 256, "env": {"A": "1"}},
        "origins": {"env/A": "lobby", "memory_mb": "base"},
        "revision": 3,
    }
    server.answers["GET", "/api/v1/groups/lobby/resolved"] = (200, found)
    lines = [line.split() for line in corral("group", "resolved", "lobby").stdout.splitlines()]
    assert lines == [
        ["FIELD", "VALUE", "WRITTEN", "IN"],
        ["env/A", "1", "lobby"],
        ["memory_mb", "256", "base"],
    ]
    assert json.loads(corral("group", "resolved", "lobby", "-o", "json").stdout) == found


def test_a_group_is_shown_and_its_document_can_be_written_back(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    server.answers["GET", "/api/v1/groups/lobby"] = (200, GROUP)
    server.answers["PATCH", "/api/v1/groups/lobby"] = (200, GROUP)
    assert "primary=30000-30100" in corral("group", "get", "lobby").stdout
    file = tmp_path / "lobby.yaml"
    file.write_text(corral("group", "get", "lobby", "-o", "yaml").stdout)
    done = corral("group", "update", "-f", str(file))
    assert done.stdout == "group 'lobby': nothing changed\n", done.stderr
    sent = server.requests[-1]
    assert sent.body == {key: value for key, value in GROUP.items() if key not in ("status", "revision")}
    assert "Idempotency-Key" in sent.headers


def test_a_file_of_a_group_that_was_changed_since_overwrites_nothing(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    first, later = with_status(document_sha256="a"), with_status(document_sha256="b") | {"priority": 90}
    server.answers["GET", "/api/v1/groups/lobby"] = growing(first, later)
    file = tmp_path / "lobby.yaml"
    file.write_text(corral("group", "get", "lobby", "-o", "yaml").stdout)
    done = corral("group", "update", "-f", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert "was changed at" in done.stderr
    assert "differs in priority" in done.stderr
    assert "PATCH" not in [each.method for each in server.requests]


def test_a_record_that_changed_beside_its_document_is_read_again(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    first = with_status(document_sha256="a")
    server.answers["GET", "/api/v1/groups/lobby"] = growing(first, first, first | {"revision": 4})
    answers = iter([refused(412, "REVISION_MISMATCH", "another revision"), (200, first)])
    server.answers["PATCH", "/api/v1/groups/lobby"] = lambda _: next(answers)
    file = tmp_path / "lobby.yaml"
    file.write_text(corral("group", "get", "lobby", "-o", "yaml").stdout)
    done = corral("group", "update", "-f", str(file))
    assert done.returncode == 0, done.stderr
    sent = [each.headers["If-Match"] for each in server.requests if each.method == "PATCH"]
    assert sent == ['"3"', '"4"']


def test_a_group_shows_what_it_is_made_of_and_an_abstract_one_that_it_is(
    corral: Corral, server: StandIn
) -> None:
    group = with_status(owner="shop", warm=1) | {
        "parent": "base",
        "warm": 2,
        "priority": 70,
        "depends_on": [{"group": "db", "ready": 2}],
        "affinity": [{"label": "zone=a", "group": "", "weight": 50, "required": True}],
        "spread": [{"by": "node", "weight": 30, "max_skew": 1}],
        "scaling": {"mode": "STATIC"},
    }
    server.answers["GET", "/api/v1/groups/lobby"] = (200, group)
    shown = {
        " ".join(line.replace(":", " ", 1).split())
        for line in corral("group", "get", "lobby").stdout.splitlines()
    }
    assert {
        "Owner shop",
        "Parent base",
        "Warm 1 of 2",
        "Scaling STATIC",
        "Depends on db (2 ready)",
        "Affinity only zone=a",
        "Spread by node (max_skew 1)",
    } <= shown
    server.answers["GET", "/api/v1/groups"] = (200, {"items": [group | {"abstract": True}], "next": None})
    assert "ABSTRACT" in corral("group", "list").stdout


def test_a_warm_instance_is_shown_as_one(corral: Corral, server: StandIn) -> None:
    warm = {**INSTANCE, "warm": True, "ready": True}
    server.answers["GET", "/api/v1/instances"] = (200, {"items": [warm], "next": None})
    assert "yes (warm)" in corral("instance", "list").stdout


def test_a_group_that_stays_with_a_revision_says_so_and_what_ends_it(corral: Corral, server: StandIn) -> None:
    drift = {"outdated_count": 0, "placement_count": 0, "pinned_revision": 3, "document_pending": True}
    pinned = {**GROUP, "status": {**GROUP["status"], "drift": drift}}
    server.answers["GET", "/api/v1/groups/lobby"] = (200, pinned)
    shown = corral("group", "get", "lobby").stdout
    differs = (
        "the document, or what it names, differs: change what was wrong with it, then 'corral deploy lobby'"
    )
    assert f"pinned to revision 3; {differs}" in shown
    drift["document_pending"] = False
    assert "pinned to revision 3\n" in corral("group", "get", "lobby").stdout


def test_instances_that_differ_from_a_pin_are_not_called_older(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    drift = {
        "outdated_count": 1,
        "outdated": ["lobby-4"],
        "pinned_revision": 3,
        "command": "corral deploy lobby",
    }
    pinned = {**GROUP, "status": {**GROUP["status"], "drift": drift}}
    server.answers["GET", "/api/v1/groups/lobby"] = (200, pinned)
    server.answers["PATCH", "/api/v1/groups/lobby"] = (200, {**pinned, "revision": 99, "min": 9})
    shown = corral("group", "get", "lobby").stdout
    assert "pinned to revision 3; 1 of another revision (lobby-4): corral deploy lobby" in shown
    (tmp_path / "lobby.yaml").write_text("min: 2\n")
    updated = corral("group", "update", "lobby", "-f", str(tmp_path / "lobby.yaml"))
    told = (
        "1 instance runs another revision than 3, to which the group is pinned (lobby-4): corral deploy lobby"
    )
    assert told in updated.stderr, updated.stderr


def test_a_changed_group_says_what_still_runs_as_it_was_before(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    changed = {**GROUP, "memory_mb": 512}
    drift = {
        "outdated": ["lobby-1"],
        "outdated_count": 1,
        "placement": ["lobby-2", "lobby-3"],
        "placement_count": 2,
        "unknown_count": 0,
        "command": "corral group restart lobby",
    }
    after = {**changed, "status": {**GROUP["status"], "drift": drift}}
    server.answers["GET", "/api/v1/groups/lobby"] = growing(GROUP, after)
    server.answers["PATCH", "/api/v1/groups/lobby"] = (200, changed)
    file = tmp_path / "lobby.yaml"
    file.write_text("name: lobby\nmemory_mb: 512\n")
    done = corral("group", "update", "-f", str(file))
    assert done.stdout == "group 'lobby' is changed\n", done.stderr
    assert done.stderr == (
        "1 instance runs as the group was before (lobby-1): corral group restart lobby\n"
        "2 instances run on nodes that the group would not choose now (lobby-2, lobby-3): "
        "corral group restart lobby\n"
    )
    shown = corral("group", "get", "lobby").stdout
    assert "1 outdated (lobby-1), 2 placement (lobby-2, lobby-3): corral group restart lobby" in shown
    reason = "label 'zone' is missing, 'a' is wanted"
    drift |= {
        "nodes": {"n1": reason},
        "command": "",
        "refused": f"no node could take 'lobby-2' again (n1: {reason})",
    }
    shown = corral("group", "get", "lobby").stdout
    assert f"(lobby-2, lobby-3); n1: {reason}; a restart is refused now: no node could take" in shown
    assert "corral group restart" not in shown


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("g.json", '{"name": "lobby", "command": ["x"], "min": 1}'),
        ("g.yaml", "name: lobby\ncommand: [x]\nmin: 1\n"),
    ],
)
def test_a_group_is_created_from_json_or_yaml(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path, name: str, text: str
) -> None:
    server.answers["POST", "/api/v1/groups"] = (201, GROUP)
    (tmp_path / name).write_text(text)
    done = corral("group", "create", "-f", str(tmp_path / name))
    assert done.stdout == "group 'lobby' is created\n", done.stderr
    assert server.requests[0].body == {"name": "lobby", "command": ["x"], "min": 1}


@pytest.mark.parametrize("text", ["", "just a word", "- 1\n- 2", "a: [", "{1: 2}"])
def test_a_file_that_is_no_document_is_wrong_usage(corral: Corral, tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "bad").write_text(text)
    done = corral("group", "create", "-f", str(tmp_path / "bad"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert corral("group", "create", "-f", str(tmp_path / "none")).returncode == 2


def test_scaling_waits_until_as_many_are_ready(corral: Corral, server: StandIn) -> None:
    server.answers["POST", "/api/v1/groups/lobby/scale"] = (200, GROUP)
    server.answers["GET", "/api/v1/groups/lobby"] = growing(
        with_status(wanted=3), with_status(wanted=3, instances=3, ready=3)
    )
    done = corral("group", "scale", "lobby", "3", "--wait", "-o", "json")
    assert json.loads(done.stdout)["status"]["ready"] == 3, done.stderr
    assert server.requests[0].body == {"count": 3}


def test_scaling_does_not_wait_for_the_players_of_those_that_go(corral: Corral, server: StandIn) -> None:
    server.answers["POST", "/api/v1/groups/lobby/scale"] = (200, GROUP)
    server.answers["GET", "/api/v1/groups/lobby"] = growing(
        with_status(wanted=4, instances=6, ready=3, draining=2),
        with_status(wanted=4, instances=6, ready=4, draining=2),
    )
    done = corral("group", "scale", "lobby", "4", "--wait", "--timeout", "5s")
    assert (done.returncode, done.stdout) == (0, "group 'lobby' shall have 4 instances\n"), done.stderr
    assert done.stderr.splitlines() == [
        "3/4 ready, 2 instances wait for the last players to leave",
        "group 'lobby': 4/4 ready, 2 instances wait for the last players to leave",
    ]


def test_a_paused_group_can_have_fewer_and_not_more(corral: Corral, server: StandIn) -> None:
    paused = {"reason": "3 failures within 300 s", "until": "2026-01-01T00:05:00Z"}
    server.answers["POST", "/api/v1/groups/lobby/scale"] = (200, GROUP)
    states = ({"instances": 3, "draining": 1}, {"instances": 2})
    answers = [with_status(paused=paused, wanted=2, ready=2, **each) for each in states]
    server.answers["GET", "/api/v1/groups/lobby"] = growing(*answers)
    fewer = corral("group", "scale", "lobby", "2", "--wait")
    assert (fewer.returncode, fewer.stdout) == (0, "group 'lobby' shall have 2 instances\n"), fewer.stderr
    server.answers["GET", "/api/v1/groups/lobby"] = (200, with_status(paused=paused, wanted=3, ready=2))
    more = corral("group", "scale", "lobby", "3", "--wait")
    assert (more.returncode, "is paused as crash-looping: 3 failures" in more.stderr) == (1, True)


def test_a_wait_that_runs_out_exits_with_4_and_says_what_was_seen(corral: Corral, server: StandIn) -> None:
    server.answers["POST", "/api/v1/groups/lobby/scale"] = (200, GROUP)
    server.answers["GET", "/api/v1/groups/lobby"] = (200, with_status(reason="no node has room"))
    done = corral("group", "scale", "lobby", "2", "--wait", "--timeout", "1s")
    assert done.returncode == 4
    assert done.stderr == (
        "1/2 ready, no node has room\n"
        "error: group 'lobby' did not have its instances within 1 second: "
        "1/2 ready, no node has room\nhint: corral why lobby\n"
    )


def test_a_wait_that_runs_out_tells_why_instances_did_not_start(corral: Corral, server: StandIn) -> None:
    failure = {"stage": "TEMPLATE_APPLY", "code": "DISK_FULL", "message": "no room for 'base'"}
    failed = [{"id": f"lobby-{number}", "started_at": None, "start_failure": failure} for number in (1, 2)]
    fine = {"id": "lobby-3", "started_at": "2026-01-01T00:00:00Z", "start_failure": failure}
    server.answers["POST", "/api/v1/groups/lobby/scale"] = (200, GROUP)
    server.answers["GET", "/api/v1/groups/lobby"] = (200, with_status())
    server.answers["GET", "/api/v1/instances"] = (200, {"items": [fine, *failed], "next": None})
    done = corral("group", "scale", "lobby", "2", "--wait", "--timeout", "1s")
    assert done.returncode == 4
    assert done.stderr.splitlines()[2:] == [
        "  lobby-1: DISK_FULL at TEMPLATE_APPLY: no room for 'base'",
        "hint: corral why lobby",
    ]
    assert server.requests[-1].query["group"] == "lobby"


def test_a_group_is_deleted_in_cascade_and_waited_for(corral: Corral, server: StandIn) -> None:
    server.answers["DELETE", "/api/v1/groups/lobby"] = (204, None)
    answers = iter([(200, GROUP), refused(404, "NOT_FOUND", "gone")])
    server.answers["GET", "/api/v1/groups/lobby"] = lambda _: next(answers)
    assert corral("group", "delete", "lobby").returncode == 2, "there is nobody to ask"
    done = corral("group", "delete", "lobby", "--cascade", "--yes", "--wait")
    assert done.stdout == "group 'lobby' is deleted\n", done.stderr
    assert server.requests[0].query == {"cascade": "true"}


@pytest.mark.trap("T90")
def test_a_change_that_leaves_worlds_behind_needs_a_yes(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "lobby.yaml"
    file.write_text("static: false")
    asked = refused(409, "CONFIRMATION_REQUIRED", "group 'lobby' has worlds: 'lobby-1' on node 'n1'")
    server.answers["GET", "/api/v1/groups/lobby"] = (200, {**GROUP, "static": True})
    server.answers["GET", "/api/v1/instances"] = (200, {"items": [], "next": None})
    server.answers["PATCH", "/api/v1/groups/lobby"] = lambda request: (
        (200, GROUP) if request.query.get("confirm") == "lobby" else asked
    )
    done = corral("group", "update", "lobby", "-f", str(file))
    assert (done.returncode, "has worlds" in done.stderr, "add --yes" in done.stderr) == (1, True, True)
    done = corral("group", "update", "lobby", "-f", str(file), "--yes")
    assert (done.returncode, done.stdout) == (0, "group 'lobby' is changed\n")
    assert "has worlds" in done.stderr, "what is left behind is told all the same"


def test_a_group_whose_instances_are_still_being_stopped_is_not_called_deleted(
    corral: Corral, server: StandIn
) -> None:
    server.answers["DELETE", "/api/v1/groups/lobby"] = (204, None)
    server.answers["GET", "/api/v1/groups/lobby"] = (200, with_status(instances=2))
    done = corral("group", "delete", "lobby", "--cascade", "--yes")
    assert done.stdout == "group 'lobby' is being deleted: it goes when its 2 instances have ended\n"


@pytest.mark.parametrize("verb", ["unpause", "restart"])
def test_the_other_verbs_of_a_group(corral: Corral, server: StandIn, verb: str) -> None:
    server.answers["POST", f"/api/v1/groups/lobby/{verb}"] = (200, GROUP)
    server.answers["GET", "/api/v1/groups/lobby"] = (200, GROUP)
    more = ["--at-once", "--yes"] if verb == "restart" else []
    assert corral("group", verb, "lobby", *more).returncode == 0


def test_instances_are_listed_with_filters(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/instances"] = (200, {"items": [INSTANCE], "next": None})
    done = corral(
        "instance", "list", "--group", "lobby", "--node", "web-1", "--state", "running", "--wanted", "run"
    )
    assert done.stdout.splitlines()[1].split()[:8] == [
        "lobby-1", "lobby", "RUNNING", "yes", "web-1", "30000", "0", "4711",
    ]  # fmt: skip
    sent = server.requests[0].query
    assert (sent["group"], sent["node"], sent["state"], sent["wanted"]) == (
        "lobby",
        "web-1",
        "RUNNING",
        "run",
    )


@pytest.mark.parametrize("noun", ["group", "node"])
def test_a_list_by_what_does_not_exist_is_refused(corral: Corral, server: StandIn, noun: str) -> None:
    server.answers["GET", "/api/v1/instances"] = (200, {"items": [], "next": None})
    missing = refused(404, "NOT_FOUND", f"{noun} 'nosuch' does not exist")
    server.answers["GET", f"/api/v1/{noun}s/nosuch"] = missing
    for more in ([], ["-o", "json"], ["--watch"]):
        done = corral("instance", "list", f"--{noun}", "nosuch", *more)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{noun} 'nosuch' does not exist" in done.stderr
        assert f"'corral {noun} list'" in done.stderr
    server.answers["GET", f"/api/v1/{noun}s/nosuch"] = (200, {})
    assert corral("instance", "list", f"--{noun}", "nosuch").returncode == 0


def test_an_instance_is_shown(corral: Corral, server: StandIn) -> None:
    exit = {"code": None, "signal": 9, "crashed": True, "summary": "killed by SIGKILL"}
    server.answers["GET", "/api/v1/instances/lobby-1"] = (
        200,
        {**INSTANCE, "state": "CRASHED", "exit": exit},
    )
    shown = corral("instance", "get", "lobby-1").stdout
    assert "killed by SIGKILL" in shown
    assert "primary=30000" in shown


def test_a_start_is_waited_for_until_it_is_ready(corral: Corral, server: StandIn) -> None:
    waits = {**INSTANCE, "ready": False}
    server.answers["POST", "/api/v1/instances"] = (201, {**waits, "state": "SCHEDULED"})
    server.answers["GET", "/api/v1/instances/lobby-1"] = growing(
        {**waits, "state": "PREPARING"}, {**waits, "state": "STARTING"}, waits, INSTANCE
    )
    done = corral("instance", "start", "lobby", "--node", "web-1", "--wait")
    assert done.stdout == "instance 'lobby-1' is RUNNING on node 'web-1'\n", done.stderr
    assert server.requests[0].body == {"group": "lobby", "node": "web-1"}


def test_a_start_that_fails_is_told_with_its_reason(corral: Corral, server: StandIn) -> None:
    failure = {"stage": "PROCESS_START", "code": "COMMAND_NOT_FOUND", "message": "there is no 'x'"}
    server.answers["POST", "/api/v1/instances"] = (201, {**INSTANCE, "state": "SCHEDULED"})
    server.answers["GET", "/api/v1/instances/lobby-1"] = (
        200,
        {**INSTANCE, "state": "CRASHED", "started_at": None, "start_failure": failure},
    )
    done = corral("instance", "start", "lobby", "--wait")
    assert done.returncode == 1
    assert "COMMAND_NOT_FOUND at PROCESS_START: there is no 'x'" in done.stderr
    assert "hint: corral why lobby-1" in done.stderr


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_that_another_one_is_started_for_one_that_is_stopped_is_told(
    corral: Corral, server: StandIn, verb: str
) -> None:
    server.answers["POST", f"/api/v1/instances/lobby-1/{verb}"] = (200, {**INSTANCE, "wanted": "stop"})
    server.answers["GET", "/api/v1/groups/lobby"] = growing(GROUP, with_status(instances=3))
    more = ["--yes"] if verb == "kill" else []
    done = corral("instance", verb, "lobby-1", *more)
    assert done.returncode == 0, done.stderr
    assert "group 'lobby' is to have 2 instances, so that another one is started" in done.stderr
    assert "corral group hold lobby --reason TEXT" in done.stderr
    held = {"by": "'admin'", "reason": "a new map", "since": "2026-01-01T00:00:00Z"}
    quiet = (with_status(wanted=1), with_status(hold=held), {**GROUP, "static": True}, None)
    for after in quiet if verb == "stop" else ():
        draining = (with_status(instances=3, draining=1), with_status(instances=3, draining=0))
        server.answers["GET", "/api/v1/groups/lobby"] = growing(*((GROUP, after) if after else draining))
        done = corral("instance", verb, "lobby-1", *more)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_an_instance_is_ended_and_how_it_ended_is_told(corral: Corral, server: StandIn, verb: str) -> None:
    exit = {"code": 0, "signal": None, "crashed": False, "summary": "exit code 0 after 'stop'"}
    server.answers["POST", f"/api/v1/instances/lobby-1/{verb}"] = (200, INSTANCE)
    server.answers["GET", "/api/v1/instances/lobby-1"] = growing(
        {**INSTANCE, "state": "STOPPING"}, {**INSTANCE, "state": "STOPPED", "exit": exit}
    )
    more = ["--yes"] if verb == "kill" else []
    done = corral("instance", verb, "lobby-1", "--reason", "tidy", "--wait", *more)
    assert done.stdout == "instance 'lobby-1' is STOPPED: exit code 0 after 'stop'\n", done.stderr
    (order,) = [each for each in server.requests if each.method == "POST"]
    assert order.body == {"reason": "tidy"}


def test_a_restart_is_waited_for_beyond_the_old_run(corral: Corral, server: StandIn) -> None:
    server.answers["POST", "/api/v1/instances/lobby-1/restart"] = (200, {**INSTANCE, "wanted": "stop"})
    server.answers["GET", "/api/v1/instances/lobby-1"] = growing(
        {**INSTANCE, "wanted": "stop"},
        {**INSTANCE, "state": "STOPPED", "wanted": "stop"},
        {**INSTANCE, "state": "SCHEDULED", "incarnation": 2 * RUN, "restarts": 0, "ready": False},
        {**INSTANCE, "incarnation": 2 * RUN, "restarts": 0},
    )
    done = corral("instance", "restart", "lobby-1", "--wait", "-o", "json")
    assert json.loads(done.stdout)["incarnation"] == 2 * RUN, done.stderr


def test_a_restart_that_is_not_waited_for_is_told_as_asked_for(corral: Corral, server: StandIn) -> None:
    server.answers["POST", "/api/v1/instances/lobby-1/restart"] = (200, {**INSTANCE, "wanted": "stop"})
    assert corral("instance", "restart", "lobby-1").stdout == "instance 'lobby-1' is to restart\n"
    begun = {**INSTANCE, "state": "SCHEDULED", "wanted": "run"}  # it had ended
    server.answers["POST", "/api/v1/instances/lobby-1/restart"] = (200, begun)
    assert corral("instance", "restart", "lobby-1").stdout == "instance 'lobby-1' is SCHEDULED\n"


def test_a_command_is_one_line_of_all_words(corral: Corral, server: StandIn) -> None:
    taken = {"id": "lobby-1", "command": "say hello there"}
    server.answers["POST", "/api/v1/instances/lobby-1/command"] = (200, taken)
    assert corral("instance", "command", "lobby-1", "say", "hello", "there").returncode == 0
    assert server.requests[0].body == {"command": "say hello there"}


def test_crashes_are_listed_and_shown_with_their_last_lines(corral: Corral, server: StandIn) -> None:
    crash = {
        "id": "lobby-1.1024",
        "instance": "lobby-1",
        "incarnation": 1024,
        "group": "lobby",
        "node": "web-1",
        "at": "2026-01-01T00:00:00Z",
        "crash_class": "oom",
        "signature": "s",
        "uptime_ms": 1500,
        "restarted_as": 0,
        "exit": {"code": None, "signal": 9, "crashed": True, "summary": "killed: out of memory"},
    }
    server.answers["GET", "/api/v1/crashes"] = (200, {"items": [crash], "next": None})
    server.answers["GET", "/api/v1/crashes/lobby-1.1024"] = (
        200,
        {**crash, "tail": ["last \x1b[2J words"], "tail_offset": 9},
    )
    assert "killed: out of memory" in corral("crash", "list", "--class", "oom").stdout
    assert server.requests[-1].query["crash_class"] == "oom"
    assert corral("crash", "get", "lobby-1.1024").stdout.endswith("Last lines:\n  last \\x1b[2J words\n")


def test_why_finds_instances_first_and_groups_then(corral: Corral, server: StandIn) -> None:
    told = {
        "subject": "group/lobby",
        "state": "SHORT",
        "summary": "group 'lobby' wants 2 instances and has 1",
        "files_kept": ["ops.json: it was changed since it was laid"],
        "decisions": [
            {
                "at": "2026-01-01T00:00:00Z",
                "kind": "refuse",
                "subject": "group/lobby",
                "reason": "no node can take it",
                "cause": "event",
                "id": "dec-1",
                "rejected": [{"subject": "web-1", "reason": "memory: 10 MB free, 256 MB needed"}],
            }
        ],
    }
    server.answers["GET", "/api/v1/groups/lobby/why"] = (200, told)
    done = corral("why", "lobby")
    assert done.stdout.splitlines()[0] == told["summary"]
    assert "  kept ops.json: it was changed since it was laid" in done.stdout
    assert "  not web-1: memory: 10 MB free, 256 MB needed" in done.stdout
    assert json.loads(corral("why", "group/lobby", "-o", "json").stdout) == told
    missing = corral("why", "nothing")
    assert (missing.returncode, "neither an instance nor a group" in missing.stderr) == (1, True)


def test_why_of_a_name_that_several_have_lists_the_choices(corral: Corral, server: StandIn) -> None:
    answer = {"subject": "x/lobby", "state": "MET", "summary": "it is so", "decisions": []}
    for place in ("groups", "nodes"):
        server.answers["GET", f"/api/v1/{place}/lobby/why"] = (200, answer)
    done = corral("why", "lobby")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: 'lobby' is a group and a node",
        "hint: choose: corral why group/lobby, corral why node/lobby",
    ]
    assert corral("why", "node/lobby").stdout == "it is so\n"
    server.answers["GET", "/api/v1/nodes/lobby/why"] = (200, {**answer, "state": "GONE"})
    assert corral("why", "lobby").returncode == 0, "what is gone is no choice beside what is there"


def test_why_of_an_unknown_name_names_the_nearest(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/nodes"] = (200, {"items": [{"id": "web-1"}], "next": None})
    assert corral("why", "web-11").stderr.splitlines()[-1] == "hint: did you mean node/web-1?"
    assert "there is no group 'web-11'" in corral("why", "group/web-11").stderr


def test_why_draws_nodes_conditions_and_the_chain(corral: Corral, server: StandIn) -> None:
    at = "2026-01-01T00:00:00Z"
    rejected = [
        {"subject": "node/n1", "reason": "lacks 128 MB"},
        {"subject": "node/web-2", "reason": "it is draining: kernel update"},
    ]
    server.answers["GET", "/api/v1/groups/lobby/why"] = (
        200,
        {
            "subject": "group/lobby",
            "state": "SHORT",
            "summary": "group 'lobby' wants 4 instances and has 3",
            "now": [
                {"topic": "need", "subject": "group/lobby", "reason": "4 are wanted"},
                {"topic": "refuse", "rejected": rejected, "rejected_counts": {"MEMORY": 5, "ADMISSION": 1}},
            ],
            "would_change": [
                {"condition": "128 MB on n1", "at": None, "missing": 2},
                {"condition": "undrain web-2"},
            ],
            "chain": [
                {"kind": "event", "reason": "'lobby-2' crashed: oom", "at": at},
                {"kind": "decision", "rule": "crash.replace", "subject": "lobby"},
            ],
        },
    )
    lines = corral("why", "lobby").stdout.splitlines()
    assert lines[:5] == [
        "group 'lobby' wants 4 instances and has 3",
        "    n1     lacks 128 MB",
        "    web-2  it is draining: kernel update",
        "    and 4 more nodes",
        "would change for one of 2 missing instances: 128 MB on n1 · undrain web-2",
    ]
    assert lines[5].startswith("caused by: 'lobby-2' crashed: oom ")
    assert lines[5].endswith(" → crash.replace lobby")


@pytest.mark.system
def test_a_group_is_held_and_released(corral: Corral, server: StandIn) -> None:
    hold = {"by": "'admin'", "reason": "a new map", "since": "2026-01-01T00:00:00Z", "when_empty": True}
    server.answers["POST", "/api/v1/groups/lobby/hold"] = (200, GROUP)
    server.answers["POST", "/api/v1/groups/lobby/release"] = (200, GROUP)
    server.answers["GET", "/api/v1/groups/lobby"] = (200, GROUP)
    unheld = corral("group", "release", "lobby").stdout
    assert unheld == "group 'lobby' was not held: nothing changed\n"
    server.answers["POST", "/api/v1/groups/lobby/unpause"] = (200, GROUP)
    assert corral("group", "unpause", "lobby").stdout == "group 'lobby' was not paused: nothing changed\n"
    done = corral("group", "hold", "lobby", "--reason", "a new map", "--when-empty", "--yes")
    assert done.stdout == "group 'lobby' is held: corral group release lobby\n", done.stderr
    assert server.requests[-1].body == {"reason": "a new map", "when_empty": True}
    assert corral("group", "hold", "lobby", "--yes").returncode == 2, "a reason is needed"
    assert done.stderr == ""
    server.answers["GET", "/api/v1/groups/lobby"] = (200, with_status(hold=hold))
    assert corral("group", "release", "lobby").stdout == "group 'lobby' is released\n"
    again = corral("group", "hold", "lobby", "--reason", "an update", "--yes")
    assert "it was held already, by 'admin' since" in again.stderr
    assert "a new map: this hold replaces that one" in again.stderr
    shown = corral("group", "get", "lobby").stdout
    assert "HELD" in shown
    assert "stopped when empty: a new map" in shown
    server.answers["POST", "/api/v1/groups/lobby/scale"] = (200, with_status(hold=hold))
    scaled = corral("group", "scale", "lobby", "3")
    assert (scaled.returncode, "group 'lobby' is held by 'admin' since" in scaled.stderr) == (0, True)
    waited = corral("group", "scale", "lobby", "3", "--wait")
    assert (waited.returncode, "held by 'admin': a new map" in waited.stderr) == (1, True)
