"""`corral deploy` and `corral deployment`: what they send, the progress that they show, and how they end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stand_in_controller import PROGRAM, Request, StandIn, refused

Corral = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., subprocess.Popen[str]]

_DEPLOY = ("POST", "/api/v1/groups/lobby/deploy")
_ONE = "/api/v1/deployments/dep-1"


def deployment(**fields: Any) -> dict[str, Any]:
    at = "2026-01-01T00:00:00Z"
    shown: dict[str, Any] = {
        "id": "dep-1",
        "group": "lobby",
        "state": "ROLLING",
        "resumes": None,
        "phase_since": at,
        "created_at": at,
        "ended_at": None,
        "target": 4,
        "stable": 3,
        "options": {"strategy": "rolling", "max_surge": 1, "gate": {}},
        "trigger": "manual",
        "by": "'admin'",
        "reason": "",
        "last_progress_at": at,
        "best_healthy": 0,
        "failed": 0,
        "failures": [],
        "waiting": "",
        "outcome": "",
        "undone": "",
        "progress": progress(),
        "revision": 1,
    }
    return {**shown, **fields}


def progress(**fields: Any) -> dict[str, Any]:
    return {"wanted": 6, "updated": 0, "starting": 0, "unhealthy": 0, "waiting_players": [], **fields}


_STEPS = (
    deployment(progress=progress(starting=1)),
    deployment(
        progress=progress(
            updated=3,
            starting=1,
            waiting_players=[{"id": "lobby-5", "players": None}, {"id": "lobby-4", "players": 12}],
        )
    ),
    deployment(state="COMPLETED", progress=None, ended_at="2026-01-01T00:01:00Z"),
)
_LINES = (
    "[..........] 0/6 updated · 1 starting",
    "[#####.....] 3/6 updated · 1 starting · 2 wait for players (lobby-4: 12, lobby-5: unknown)",
)


@pytest.fixture
def told(server: StandIn) -> Callable[..., None]:
    """Sets what the deployment is at each look; the last one stays."""

    def tell(*steps: dict[str, Any]) -> None:
        left: Iterator[dict[str, Any]] = iter(steps[1:-1])
        server.answers[_DEPLOY] = (200, steps[0])
        server.answers["GET", _ONE] = lambda _: (200, next(left, steps[-1]))

    return tell


def test_options_override_fields_of_update_for_one_deployment(
    server: StandIn, corral: Corral, told: Callable[..., None]
) -> None:
    told(deployment())
    plain = corral("deploy", "lobby")
    assert (plain.returncode, server.requests[-1].body) == (0, {})
    assert plain.stdout == (
        "deployment 'dep-1' of group 'lobby' to revision 4: [..........] 0/6 updated; corral deployment get dep-1\n"
    )
    done = corral(
        "deploy", "lobby", "--reason", "a new map", "--strategy", "canary", "--max-surge", "25%", "--max-unavailable",
        "2", "--canary", "1", "--no-auto-rollback", "--drain-seconds", "60", "--promote", "manual",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    options = {
        "strategy": "canary",
        "max_surge": "25%",
        "max_unavailable": 2,
        "canary": 1,
        "promote": "manual",
        "auto_rollback": False,
        "drain_seconds": 60,
    }
    assert server.requests[-1].body == {"reason": "a new map", "options": options}
    wrong = corral("deploy", "lobby", "--max-surge", "many")
    assert (wrong.returncode, "'many' is neither a number" in wrong.stderr) == (2, True)


def test_a_wait_prints_one_line_a_change_where_there_is_no_terminal(
    corral: Corral, told: Callable[..., None]
) -> None:
    told(_STEPS[0], _STEPS[0], _STEPS[1], _STEPS[1], _STEPS[2])
    done = corral("deploy", "lobby", "--wait")
    assert (done.returncode, done.stderr.splitlines()) == (0, list(_LINES))
    assert done.stdout == "group 'lobby' runs by revision 4 (deployment 'dep-1', 60s)\n"


def test_a_wait_draws_its_line_in_place_on_a_terminal(
    pointed: dict[str, str], told: Callable[..., None]
) -> None:
    told(_STEPS[0], _STEPS[1], _STEPS[2])
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [*PROGRAM, "deploy", "lobby", "--wait"],
            env={**pointed, "COLUMNS": "120"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=60,
        )
        drawn = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    assert drawn == "".join(f"\r\x1b[K{line}" for line in _LINES) + "\r\x1b[K"


def test_a_failure_names_the_instance_its_last_lines_and_what_was_undone(
    corral: Corral, told: Callable[..., None]
) -> None:
    failure = {
        "at": "2026-01-01T00:00:30Z",
        "instance": "lobby-7",
        "incarnation": 7,
        "node": "n1",
        "code": "clean_exit",
        "reason": "exited with code 3 after 120 ms",
        "phase": "CANARY",
        "crash": "crash-1",
        "lines": ["loading", "no such map: winter"],
    }
    ended = deployment(
        state="ROLLED_BACK",
        progress=None,
        failures=[failure],
        outcome="1 of its instances failed",
        undone="lobby-7 was stopped; the group is pinned to revision 3",
    )
    back = deployment(state="ROLLING_BACK", progress=progress(updated=5, starting=1))
    told(deployment(), back, ended)
    failed = corral("deploy", "lobby", "--wait")
    assert failed.returncode == 1
    assert failed.stderr.splitlines() == [
        "[..........] 0/6 updated",
        "[########..] 5/6 back at revision 3 · 1 starting",
        "error: deployment 'dep-1' of group 'lobby' was rolled back: 1 of its instances failed",
        "  lobby-7 on node 'n1': exited with code 3 after 120 ms",
        "  its console ends with:",
        "  | loading",
        "  | no such map: winter",
        "undone: lobby-7 was stopped; the group is pinned to revision 3",
        "hint: corral why deployment/dep-1",
    ]
    shown = corral("deployment", "get", "dep-1").stdout
    assert "\nFailures:\n  lobby-7 on node 'n1': exited with code 3" in shown
    assert "Undone:        lobby-7 was stopped" in shown


def test_a_wait_that_runs_out_or_is_interrupted_leaves_the_deployment_going(
    corral: Corral, begin: Begin, told: Callable[..., None]
) -> None:
    told(_STEPS[1])
    late = corral("deploy", "lobby", "--wait", "--timeout", "1s")
    assert late.returncode == 4
    assert f"deployment 'dep-1' was not done within 1 second: {_LINES[1]}" in late.stderr
    assert "hint: it goes on: corral deployment get dep-1" in late.stderr
    waiting = begin("deploy", "lobby", "--wait")
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == f"{_LINES[1]}\n"
    waiting.send_signal(signal.SIGINT)
    _, left = waiting.communicate(timeout=20)
    assert waiting.returncode == 130
    assert left.startswith("interrupted: only the wait ends, deployment 'dep-1' goes on; ")


@pytest.mark.system
def test_a_controller_that_is_away_for_a_while_is_waited_for(
    server: StandIn, corral: Corral, told: Callable[..., None]
) -> None:
    """A leader that ends in the middle is followed by another one."""
    told(_STEPS[0])
    looks: list[Request] = []

    def look(request: Request) -> Any:
        looks.append(request)
        if len(looks) <= 10:
            return refused(503, "NOT_LEADER", "this controller does not lead at present")
        return 200, _STEPS[2]

    server.answers["GET", _ONE] = look
    done = corral("deploy", "lobby", "--wait")
    assert done.returncode == 0, done.stderr
    assert "the controller does not answer" in done.stderr


@pytest.mark.system
def test_an_order_goes_to_a_deployment_by_its_id_or_to_the_last_one_of_a_group(
    server: StandIn, corral: Corral
) -> None:
    server.answers["GET", _ONE] = (200, deployment())
    server.answers["GET", "/api/v1/deployments"] = (200, {"items": [deployment()], "next": None})
    for verb, more in (
        ("pause", ()),
        ("resume", ()),
        ("promote", ()),
        ("rollback", ("--reason", "it lags", "--yes")),
        ("cancel", ("--yes",)),
    ):
        server.answers["POST", f"{_ONE}/{verb}"] = (
            200,
            deployment(state="PAUSED", waiting="it is paused"),
        )
        for name in ("dep-1", "lobby"):
            done = corral("deployment", verb, name, *more)
            assert done.returncode == 0, done.stderr
            sent = server.requests[-1]
            assert (sent.method, sent.path) == ("POST", f"{_ONE}/{verb}")
        assert sent.body == ({"reason": "it lags"} if "--reason" in more else None)
        assert done.stdout == (
            "deployment 'dep-1' of group 'lobby' is PAUSED: [..........] 0/6 updated · it is paused\n"
        )
    unasked = corral("deployment", "cancel", "lobby")
    assert (unasked.returncode, "end deployment 'dep-1' of group 'lobby' where it is" in unasked.stderr) == (
        2,
        True,
    )


def test_a_list_has_filters_and_progress(server: StandIn, corral: Corral) -> None:
    items = [
        deployment(progress=progress(updated=2)),
        deployment(id="dep-0", state="COMPLETED", progress=None),
    ]
    server.answers["GET", "/api/v1/deployments"] = (200, {"items": items, "next": None})
    shown = corral("deployment", "list", "--group", "lobby", "--state", "ROLLING", "--state", "PAUSED")
    assert server.requests[-1].query == {"group": "lobby", "state": ["ROLLING", "PAUSED"], "limit": "50"}
    rows = [line.split()[:5] for line in shown.stdout.splitlines()[1:]]
    assert rows == [["dep-1", "lobby", "ROLLING", "4", "2/6"], ["dep-0", "lobby", "COMPLETED", "4", "-"]]
    assert json.loads(corral("deployment", "list", "-o", "json").stdout)["items"] == items


def test_a_restart_is_a_deployment_unless_it_is_to_be_at_once(server: StandIn, corral: Corral) -> None:
    group = {"name": "lobby", "status": {"deployment": "dep-1"}}
    server.answers["POST", "/api/v1/groups/lobby/restart"] = (200, group)
    server.answers["GET", _ONE] = (200, deployment(state="COMPLETED", trigger="restart", progress=None))
    done = corral("group", "restart", "lobby", "--max-surge", "2", "--reason", "it leaks", "--wait")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("group 'lobby' runs by revision 4 (deployment 'dep-1', ")
    orders = [each.body for each in server.requests if each.method == "POST"]
    assert orders == [{"options": {"max_surge": 2}, "reason": "it leaks"}]
    unasked = corral("group", "restart", "lobby", "--at-once")
    assert (unasked.returncode, "restart every instance of group 'lobby' at once" in unasked.stderr) == (
        2,
        True,
    )
    assert corral("group", "restart", "lobby", "--at-once", "--yes").returncode == 0
    assert server.requests[-1].body == {"at_once": True}
    both = corral("group", "restart", "lobby", "--at-once", "--yes", "--wait")
    assert (both.returncode, "--at-once takes no option but" in both.stderr) == (2, True)


def test_revisions_are_listed_and_one_is_shown(server: StandIn, corral: Corral) -> None:
    at = "2026-01-01T00:00:00Z"
    one = {
        "group": "lobby",
        "number": 3,
        "created_at": at,
        "by": "'admin'",
        "trigger": "manual",
        "restart": 0,
    }
    one |= {
        "basis": "a",
        "stable": True,
        "pinned": False,
        "instances": 2,
        "changed": ["env", "template maps"],
    }
    server.answers["GET", "/api/v1/groups/lobby/revisions"] = (200, {"items": [one], "next": None})
    listed = corral("group", "revisions", "lobby").stdout.splitlines()[1].split()
    assert (listed[0], listed[2], listed[4:6]) == ("3", "manual", ["2", "stable"])
    template = {"name": "maps", "version": 7, "hash": "x", "override": True}
    more = {"document": {"name": "lobby"}, "templates": [template], "artifact": None, "extensions": []}
    server.answers["GET", "/api/v1/groups/lobby/revisions/3"] = (200, {**one, **more})
    shown = corral("group", "revisions", "lobby", "3").stdout
    assert "Templates:  maps version 7" in shown


def test_an_order_that_was_carried_out_before_says_so(server: StandIn, corral: Corral) -> None:
    server.answers["GET", _ONE] = (200, deployment())
    server.answers["POST", f"{_ONE}/promote"] = (200, deployment())
    done = corral("deployment", "promote", "dep-1")
    assert (done.returncode, done.stderr) == (0, "'promote' changed nothing: it is ROLLING already\n")


def test_options_that_are_left_out_are_shown_as_what_they_are(server: StandIn, corral: Corral) -> None:
    options = {"strategy": "rolling", "max_surge": None, "max_unavailable": None}
    server.answers["GET", _ONE] = (200, deployment(options=options))
    for static, expected in (
        (True, "max_surge=0 max_unavailable=1"),
        (False, "max_surge=1 max_unavailable=0"),
    ):
        server.answers["GET", "/api/v1/groups/lobby"] = (200, {"name": "lobby", "static": static})
        assert f"Options:       strategy=rolling {expected}\n" in corral("deployment", "get", "dep-1").stdout


def test_the_name_of_a_group_stands_for_its_last_deployment_also_in_why(
    server: StandIn, corral: Corral
) -> None:
    server.answers["GET", "/api/v1/deployments"] = (200, {"items": [deployment()], "next": None})
    answer = {"subject": "deployment/dep-1", "state": "ROLLING", "summary": "3 of 6 are updated"}
    server.answers["GET", f"{_ONE}/why"] = (200, answer)
    for command in (("why", "deployment/lobby"), ("deployment", "why", "lobby")):
        assert corral(*command).stdout == "3 of 6 are updated\n"


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (("deploy", "lobby"), "/api/v1/groups/lobby/deploy"),
        (("group", "restart", "lobby"), "/api/v1/groups/lobby/restart"),
        (("deployment", "rollback", "dep-1"), f"{_ONE}/rollback"),
    ],
)
def test_players_that_would_be_cut_off_need_a_yes(
    server: StandIn, corral: Corral, told: Callable[..., None], command: tuple[str, ...], path: str
) -> None:
    told(deployment())

    def asked(request: Request) -> Any:
        if request.query.get("confirm") == "lobby":
            found = deployment()
            return 200, {**found, "status": {"deployment": "dep-1"}}
        return refused(
            409, "CONFIRMATION_REQUIRED", "players would be cut off: 'lobby-4' (12 players) after 1 s"
        )

    server.answers["POST", path] = asked
    if command[0] != "deployment":  # that asks anyway
        scripted = corral(*command)
        assert (scripted.returncode, "add --yes if that is meant" in scripted.stderr) == (1, True)
    meant = corral(*command, "--yes")
    assert meant.returncode == 0, meant.stderr
    assert "'lobby-4' (12 players) after 1 s" in meant.stderr


def test_a_dry_run_says_when_players_are_cut_off(server: StandIn, corral: Corral) -> None:
    base = {"group": "lobby", "node": "web-1"}
    found = {
        "changes": [{"group": "lobby", "change": "deployed", "fields": []}],
        "instances": [
            {**base, "id": "lobby-1", "players": 5, "effect": "stopped_when_empty", "stop_after_seconds": 0},
            {**base, "id": "lobby-2", "players": 3, "effect": "replaced", "stop_after_seconds": 30},
            {**base, "id": "lobby-3", "players": 0, "effect": "replaced", "stop_after_seconds": 30},
            {**base, "id": "lobby-4", "players": 1, "effect": "replaced", "stop_after_seconds": None},
        ],
        "players": 9,
        "worlds": [],
        "warnings": [],
        "decisions": [],
    }
    server.answers[_DEPLOY] = (200, found)
    assert corral("deploy", "lobby", "--dry-run").stdout.splitlines() == [
        "  would stop lobby-1 on node 'web-1' when it is empty (5 players, cut off at once)",
        "  would replace lobby-2 on node 'web-1' (3 players, cut off after 30 s)",
        "  would replace lobby-3 on node 'web-1' (0 players)",
        "  would replace lobby-4 on node 'web-1' (1 player)",
        "group 'lobby' would be deployed (dry run: nothing was written)",
    ]


def test_a_failed_wait_still_prints_the_deployment_for_scripts(
    server: StandIn, corral: Corral, told: Callable[..., None]
) -> None:
    told(deployment(), deployment(state="FAILED", outcome="no progress", progress=None))
    done = corral("deploy", "lobby", "--wait", "-o", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["state"] == "FAILED"
