"""`corral node drain`, `undrain` and `shutdown`: what is asked of the controller, and what a person sees meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from stand_in_controller import NODE, Request, StandIn, refused
from test_cli_terminal import on_terminal

from corral.testing.waiting import eventually

Corral = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., subprocess.Popen[str]]
PATH = "/api/v1/nodes/web-1"


def drained(
    moved: int,
    *,
    total: int = 10,
    admission: str = "draining",
    instances: Sequence[dict[str, Any]] = (),
    state: str = "ONLINE",
    shutdown: bool = False,
    **waits: int,
) -> dict[str, Any]:
    """A node whose drain is so far."""
    drain = {
        "id": "drn-1",
        "by": "'admin'",
        "reason": "kernel",
        "started_at": "2020-01-01T12:00:00Z",
        "deadline_at": "2020-01-01T13:05:00Z",
        "shutdown": shutdown,
        "was_cordoned": False,
        "drained_at": None,
        "exit_ordered_at": None,
        "progress": {"total": total, "moved": moved, **waits},
        "instances": list(instances),
        "ack": {"running_instances": total - moved, "estimated_seconds": 40},
    }
    return {**NODE, "admission": admission, "state": state, "drain": drain}


WAITING = [
    {"id": f"lobby-{number}", "players": players, "waits_for": "players"}
    for number, players in ((4, 12), (5, None))
]
STEPS = (
    drained(0),
    drained(4, waiting_players=2, waiting_room=1, waiting_turn=2, stopping=1, instances=WAITING),
    drained(10, admission="drained"),
)
TEXT = (
    "[####......] 4/10 moved · 2 wait for players (lobby-4: 12, lobby-5: ?) · 1 waits for room · "
    "2 wait for their turn · 1 stopping · until 2020-01-01"
)


def showing(server: StandIn, *steps: Any, verb: str = "drain") -> None:
    """The node is as these steps say, one a look; the last stays."""
    left = list(steps)

    def look(_: Request) -> Any:
        found = left.pop(0) if len(left) > 1 else left[0]
        return found if isinstance(found, tuple) else (200, found)

    server.answers["POST", f"{PATH}/{verb}"] = (200, left.pop(0))
    server.answers["GET", PATH] = look


def sent(server: StandIn, verb: str = "drain") -> list[Request]:
    return [each for each in server.requests if each.path == f"{PATH}/{verb}"]


def test_a_wait_prints_a_line_a_change_where_there_is_no_terminal(server: StandIn, corral: Corral) -> None:
    showing(server, STEPS[0], STEPS[0], STEPS[1], STEPS[1], STEPS[2])
    done = corral("node", "drain", "web-1", "--reason", "kernel", "--wait")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["[..........] 0/10 moved · until 2020-01-01", TEXT]
    assert done.stdout == "node 'web-1' is drained; to use it again: corral node undrain web-1\n"
    (order,) = sent(server)
    assert order.body == {"reason": "kernel", "force": False}, "what is not given is not sent"


def test_a_wait_is_drawn_in_place_on_a_terminal(server: StandIn, pointed: dict[str, str]) -> None:
    showing(server, *STEPS)
    pointed = {name: value for name, value in pointed.items() if name != "COLUMNS"}
    code, seen = on_terminal(["node", "drain", "web-1", "--wait"], pointed)
    assert code == 0
    assert f"\r\x1b[K{TEXT}" in seen
    assert seen.endswith("\r\x1b[Knode 'web-1' is drained; to use it again: corral node undrain web-1\n")
    showing(server, *STEPS)
    _, narrow = on_terminal(["node", "drain", "web-1", "--wait"], pointed, columns=40)
    drawn = narrow.partition("node 'web-1'")[0].split("\r\x1b[K")
    assert max(len(part) for part in drawn) < 40
    assert any(part.endswith("… · until 2020-01-01") for part in drawn), "the deadline is not cut"


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (["--deadline", "30m"], {"deadline_seconds": 1800, "force": False}),
        (["--deadline", "none"], {"deadline_seconds": None, "force": False}),
        (["--force", "--yes"], {"force": True}),
        ([], {"force": False}),
    ],
)
def test_the_deadline_of_a_drain(
    server: StandIn, corral: Corral, options: list[str], body: dict[str, Any]
) -> None:
    showing(server, STEPS[0], STEPS[0])
    done = corral("node", "drain", "web-1", *options)
    assert done.returncode == 0, done.stderr
    assert "node 'web-1' is being drained, [..........] 0/10 moved" in done.stdout
    assert sent(server)[0].body == {"reason": "", **body}


@pytest.mark.parametrize(
    ("options", "named"),
    [(["--deadline", "never"], "or none for no deadline"), (["--force", "--deadline", "10m"], "--deadline")],
)
def test_a_wrong_deadline_says_what_to_write(
    server: StandIn, corral: Corral, options: list[str], named: str
) -> None:
    wrong = corral("node", "drain", "web-1", "--yes", *options)
    assert (wrong.returncode, named in wrong.stderr) == (2, True), wrong.stderr
    assert not sent(server)


def test_a_wait_that_runs_out_is_4_and_the_drain_goes_on(server: StandIn, corral: Corral) -> None:
    showing(server, STEPS[1], STEPS[1])
    late = corral("node", "drain", "web-1", "--wait", "--timeout", "1s")
    assert late.returncode == 4
    assert f"error: node 'web-1' was not drained within 1 second: {TEXT}" in late.stderr
    assert "hint: it goes on: corral why node/web-1; to end it: corral node undrain web-1" in late.stderr
    assert corral("node", "drain", "web-1", "--timeout", "1s").returncode == 2


def test_a_node_that_is_undrained_meanwhile_is_a_refusal(server: StandIn, corral: Corral) -> None:
    showing(server, STEPS[0], STEPS[0], {**NODE, "drain": None})
    over = corral("node", "drain", "web-1", "--wait")
    assert over.returncode == 1
    assert "error: node 'web-1' was undrained meanwhile" in over.stderr


def test_a_controller_that_does_not_answer_for_a_while_is_waited_for(server: StandIn, corral: Corral) -> None:
    away = refused(503, "NOT_LEADER", "no leader")
    showing(server, STEPS[0], away, STEPS[1], STEPS[2])
    done = corral("node", "drain", "web-1", "--wait")
    assert done.returncode == 0, done.stderr
    assert "0/10 moved · until 2020-01-01 · the controller does not answer" in done.stderr
    gone = corral("node", "drain", "web-1", "--wait", CORRAL_URL="http://127.0.0.1:1")
    assert gone.returncode == 3


async def test_an_interrupted_wait_leaves_the_drain_going(server: StandIn, begin: Begin) -> None:
    showing(server, STEPS[0], STEPS[0])
    process = begin("node", "drain", "web-1", "--wait")
    await eventually(lambda: len([each for each in server.requests if each.method == "GET"]) > 1)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted: only the wait ends, the drain of node 'web-1' goes on" in printed
    assert "corral node undrain web-1 ends it" in printed
    assert not sent(server, "undrain")


def test_what_has_players_or_worlds_needs_a_yes(
    server: StandIn, corral: Corral, pointed: dict[str, str]
) -> None:
    def asked(request: Request) -> Any:
        if request.query.get("confirm") == "web-1":
            return 200, STEPS[0]
        return refused(
            409, "CONFIRMATION_REQUIRED", "with node 'web-1' players of 'lobby-4' (12 players) would"
        )

    server.answers["POST", f"{PATH}/drain"] = asked
    scripted = corral("node", "drain", "web-1")
    assert scripted.returncode == 1
    assert "hint: nothing was done; add --yes if that is meant" in scripted.stderr
    meant = corral("node", "drain", "web-1", "--yes")
    assert meant.returncode == 0
    assert "'lobby-4' (12 players)" in meant.stderr
    code, seen = on_terminal(["node", "drain", "web-1"], pointed, answer="y\n")
    assert (code, "drain node 'web-1' all the same [y/N]" in seen) == (0, True)


def test_a_shutdown_is_asked_about_and_done_when_the_daemon_has_ended(
    server: StandIn, corral: Corral, pointed: dict[str, str]
) -> None:
    empty = drained(10, admission="drained", shutdown=True)
    ended = drained(10, admission="drained", shutdown=True, state="DISCONNECTED")
    showing(server, drained(3, shutdown=True), empty, ended, verb="shutdown")
    assert corral("node", "shutdown", "web-1").returncode == 2, "a script has to say yes"
    assert not sent(server, "shutdown")
    done = corral("node", "shutdown", "web-1", "--yes", "--wait")
    assert done.returncode == 0, done.stderr
    assert "[##########] 10/10 moved · the daemon ends" in done.stderr
    sentence = (
        "node 'web-1' is drained and its daemon has ended; when it runs again: corral node undrain web-1\n"
    )
    assert done.stdout == sentence


def test_an_undrain_says_what_the_node_is_again(server: StandIn, corral: Corral) -> None:
    showing(server, STEPS[0], STEPS[0])
    server.answers["POST", f"{PATH}/undrain"] = (200, {**NODE, "drain": None})
    assert corral("node", "undrain", "web-1").stdout == "node 'web-1' takes new instances\n"
    server.answers["POST", f"{PATH}/undrain"] = (200, {**NODE, "admission": "cordoned", "drain": None})
    done = corral("node", "undrain", "web-1", "--reason", "done")
    assert done.stdout == "node 'web-1' is cordoned, as it was before: corral node uncordon web-1\n"
    assert sent(server, "undrain")[-1].body == {"reason": "done"}
    server.answers["GET", PATH] = (200, {**NODE, "drain": None})
    server.answers["POST", f"{PATH}/undrain"] = (200, {**NODE, "drain": None})
    assert corral("node", "undrain", "web-1").stdout == "node 'web-1' was not drained: nothing changed\n"


def test_a_dry_run_shows_who_would_leave_and_how(server: StandIn, corral: Corral) -> None:
    touched = [
        {"id": "lobby-4", "group": "lobby", "node": "web-1", "players": 12, "effect": "moved"},
        {"id": "smp-1", "group": "smp", "node": "web-1", "players": 1, "effect": "stopped_when_empty"},
    ]
    shape = {
        "changes": [],
        "instances": touched,
        "players": 13,
        "worlds": [],
        "warnings": ["'smp-1' is the only instance of group 'smp'"],
        "decisions": [],
    }
    server.answers["POST", f"{PATH}/drain"] = (200, shape)
    shown = corral("node", "drain", "web-1", "--dry-run")
    assert shown.stdout.splitlines() == [
        "  would move lobby-4 away from node 'web-1' (12 players)",
        "  would stop smp-1 on node 'web-1' when it is empty (1 player)",
        "  'smp-1' is the only instance of group 'smp'",
        "node 'web-1' would be drained (dry run: nothing was written)",
    ]
    assert sent(server)[0].query == {"dry_run": "true"}
    assert corral("node", "drain", "web-1", "--dry-run", "--wait").returncode == 2


def test_a_wait_for_unknown_players_says_until_when(server: StandIn, corral: Corral) -> None:
    waits = {"id": "lobby-4", "players": None, "waits_for": "players", "empty_at": "2020-01-01T12:05:00Z"}
    server.answers["GET", PATH] = (200, drained(4, waiting_players=1, instances=[waits]))
    page = corral("node", "info", "web-1").stdout
    assert "1 waits for players (lobby-4: unknown, counts as empty at 2020-01-01)" in page


def test_a_node_and_the_list_show_the_drain(server: StandIn, corral: Corral) -> None:
    server.answers["GET", PATH] = (200, STEPS[1])
    server.answers["GET", "/api/v1/nodes"] = (200, {"items": [STEPS[1]], "next": None})
    page = corral("node", "info", "web-1").stdout
    assert "by 'admin'" in page
    assert TEXT in page
    assert "stops take up to 40 s; 6 instances ran when it was asked" in page
    assert "draining 4/10" in corral("node", "list").stdout
    assert json.loads(corral("node", "info", "web-1", "-o", "json").stdout)["drain"]["id"] == "drn-1"


@pytest.mark.parametrize(
    ("command", "path", "name"),
    [
        (["node", "drain", "web-1", "--force"], f"{PATH}/drain", "web-1"),
        (["group", "restart", "lobby", "--at-once"], "/api/v1/groups/lobby/restart", "lobby"),
    ],
)
def test_what_stops_everything_is_asked_about_once_with_all_that_it_ends(
    server: StandIn, pointed: dict[str, str], command: list[str], path: str, name: str
) -> None:
    touched = {"id": "lobby-4", "group": "lobby", "node": "web-1", "players": 12, "effect": "stopped"}
    dry = {"changes": [], "instances": [touched], "worlds": [], "warnings": ["a world"], "decisions": []}

    def answer(request: Request) -> Any:
        if request.query.get("dry_run"):
            return 200, dry
        if request.query.get("confirm") == name:
            return 200, {**STEPS[0], "name": "lobby"}
        return refused(409, "CONFIRMATION_REQUIRED", "a second question")

    server.answers["POST", path] = answer
    code, seen = on_terminal(command, pointed, answer="y\n")
    assert code == 0, seen
    assert "would stop lobby-4 on node 'web-1' at once (12 players)" in seen
    assert "a world" in seen
    assert (seen.count("[y/N]"), "second question" in seen) == (1, False)


def test_a_daemon_that_is_back_after_a_shutdown_is_not_about_to_end(server: StandIn, corral: Corral) -> None:
    node = drained(10, admission="drained", shutdown=True)
    server.answers["GET", PATH] = (200, node)
    assert "then its daemon ends" in corral("node", "info", "web-1").stdout
    node["drain"]["exit_ordered_at"] = "2020-01-01T12:30:00Z"
    shown = corral("node", "info", "web-1").stdout
    assert "daemon ends" not in shown
    assert "its daemon was ended 2020-01-01" in shown
    assert "stops take up to 40 s; 0 instances ran when it was asked" in shown
