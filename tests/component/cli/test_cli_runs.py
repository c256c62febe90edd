"""Runs of an instance on the command line, and what it wrote by time, over all of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stand_in_console import RUN
from stand_in_controller import Answer, Request, StandIn, frame

Corral = Callable[..., subprocess.CompletedProcess[str]]
PATH = "/api/v1/instances/lobby-1"
EXIT = {"summary": "exited with code 3", "code": 3, "signal": None, "crashed": True}


def run_of(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "incarnation": RUN + number,
        "node": "web-1",
        "state": "CRASHED",
        "started_at": f"2026-01-01T1{number}:00:00Z",
        "ended_at": f"2026-01-01T1{number}:30:00Z",
        "exit": EXIT,
        "first_offset": 0,
        "end_offset": 2048,
        "plan_hash": "p",
        "crash": f"lobby-1.{RUN + number}",
        **fields,
    }


RUNS = [run_of(3, state="RUNNING", ended_at=None, exit=None, crash=None), run_of(2), run_of(1), run_of(0)]


@pytest.fixture
def asked(server: StandIn) -> list[dict[str, Any]]:
    """What was asked of consoles; each run has two lines, one at its beginning and one in its middle."""
    questions: list[dict[str, Any]] = []

    def runs(request: Request) -> Answer:
        before = int(str(request.query.get("before") or 2**63))
        found = [run for run in RUNS if run["incarnation"] < before][:2]
        following = found[-1]["incarnation"] if found and found[-1]["incarnation"] > RUN else None
        return 200, {"items": found, "next": following, "notes": ["node 'web-9' cannot be asked"]}

    def page(request: Request) -> Answer:
        questions.append(dict(request.query))
        number = int(str(request.query.get("incarnation") or RUN + 3)) - RUN
        if number == 1:
            return 410, {"error": {"code": "CONSOLE_GONE", "message": "it is gone", "status": 410}}
        items = [
            {"offset": at, "time": f"2026-01-01T1{number}:{at:02}:00.5Z", "line": f"run {number} at {at}"}
            for at in (0, 15)
        ]
        end = {"next_offset": 30, "end_offset": 30, "first_offset": 0}
        return 200, {
            "incarnation": RUN + number,
            "items": items,
            "gap": False,
            "gaps": [],
            "tail": None,
            **end,
        }

    server.answers["GET", f"{PATH}/runs"] = runs
    server.answers["GET", f"{PATH}/console"] = page
    return questions


def test_runs_are_listed_the_newest_first_and_fit_a_terminal(
    corral: Corral, asked: list[dict[str, Any]]
) -> None:
    done = corral("instance", "runs", "lobby-1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("node 'web-9' cannot be asked") == 1
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["RUN", "STATE", "STARTED", "RAN", "NODE", "CONSOLE", "CRASH", "EXIT"]
    assert [row.split()[:2] for row in rows] == [
        [str(RUN + 3), "RUNNING"],
        [str(RUN + 2), "CRASHED"],
        [str(RUN + 1), "CRASHED"],
        [str(RUN), "CRASHED"],
    ]
    assert "30m" in rows[1]
    assert "exited with code 3" in rows[1]
    shown = json.loads(corral("instance", "runs", "lobby-1", "-n", "1", "-o", "json").stdout)
    assert [run["incarnation"] for run in shown["items"]] == [RUN + 3]


def test_a_time_is_asked_of_every_run_in_it_and_what_is_missing_is_told(
    corral: Corral, asked: list[dict[str, Any]]
) -> None:
    times = ("--since", "2026-01-01T11:15Z", "--until", "2026-01-01T12:40Z")
    done = corral("instance", "logs", "lobby-1", *times, "-t", TZ="UTC")
    assert done.returncode == 1, "a run in this time could not be read"
    assert done.stdout.splitlines() == [
        "2026-01-01T12:00:00.500+00:00 run 2 at 0",
        "2026-01-01T12:15:00.500+00:00 run 2 at 15",
    ]
    assert f"run {RUN + 1} cannot be read: it is gone" in done.stderr
    assert [question["incarnation"] for question in asked] == [str(RUN + 1), str(RUN + 2)]
    assert {question["since"] for question in asked} == {"2026-01-01T11:15:00.000Z"}
    done = corral("instance", "logs", "lobby-1", "--since", "2026-01-01T12:15Z", "-n", "3")
    assert done.stdout.splitlines() == ["run 2 at 15", "run 3 at 0", "run 3 at 15"]
    assert done.stderr.count("-- run ") == 2
    done = corral("instance", "logs", "lobby-1", "--since", "2026-01-01T12:15Z", "-n", "1")
    assert done.stdout.splitlines() == ["run 3 at 15"]
    assert done.stderr.splitlines()[-1] == f"-- run {RUN + 3} on node web-1 --"
    assert f"run {RUN + 2}" not in done.stderr, "nothing of it is shown"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("flags", "run"), [(("--previous",), 2), (("--run", str(RUN)), 0), (("--incarnation", str(RUN)), 0)]
)
def test_one_run_is_chosen(
    corral: Corral, asked: list[dict[str, Any]], flags: tuple[str, ...], run: int
) -> None:
    done = corral("instance", "logs", "lobby-1", *flags, "--since", "2026-01-01")
    assert done.stdout.splitlines() == [f"run {run} at 0", f"run {run} at 15"]


@pytest.mark.parametrize(
    "flags",
    [
        ("-f", "--until", "1h"),
        ("--since", "1h", "--after", "7"),
        ("--since", "1h", "--until", "2h"),
        ("--previous", "--run", "7"),
        ("-n", "0"),
    ],
)
def test_what_contradicts_itself_is_refused_before_anything_is_asked(
    corral: Corral, asked: list[dict[str, Any]], server: StandIn, flags: tuple[str, ...]
) -> None:
    done: subprocess.CompletedProcess[str] = corral("instance", "logs", "lobby-1", *flags)
    assert done.returncode == 2, done.stderr
    assert not server.requests


@pytest.mark.trap("T74")
def test_a_follower_begins_in_the_run_it_has_shown_and_tells_what_is_late_as_such(
    corral: Corral, asked: list[dict[str, Any]], server: StandIn
) -> None:
    def stream(request: Request) -> Answer:
        def told() -> Iterator[bytes]:
            gap = {"from_offset": 30, "to_offset": 30, "reason": "it lies on node 'web-1'", "late": True}
            yield frame(f"{RUN + 3}-30", "gap", {"incarnation": RUN + 3, "items": [], "gaps": [gap]})
            yield frame(f"{RUN + 4}-0", "run", {"incarnation": RUN + 4, "node": "web-2"})
            items = [{"offset": 30, "time": None, "line": "came late"}]
            yield frame(f"{RUN + 4}-0", "late", {"incarnation": RUN + 3, "items": items, "gaps": []})
            yield frame(f"{RUN + 4}-0", "end", {"incarnation": RUN + 4, "state": "STOPPED", "exit": None})

        return told()

    server.answers["GET", f"{PATH}/console/stream"] = stream
    done = corral("instance", "logs", "lobby-1", "-f")
    assert done.stdout.splitlines() == ["run 3 at 0", "run 3 at 15", "came late"]
    assert server.requests[-1].headers["Last-Event-ID"] == f"{RUN + 3}-30"
    assert "after" not in server.requests[-1].query
    notes = done.stderr.splitlines()
    assert "it lies on node 'web-1' (late: it is shown when it arrives)" in notes[0]
    assert notes[1] == f"-- run {RUN + 4} on node web-2 --"
    assert notes[2] == f"-- late, from run {RUN + 3}: --"


def test_a_run_that_ends_before_what_is_late_of_it_came_says_how_to_read_it(
    corral: Corral, asked: list[dict[str, Any]], server: StandIn
) -> None:
    def stream(request: Request) -> Answer:
        def told() -> Iterator[bytes]:
            gap = {"from_offset": 30, "to_offset": 99, "reason": "it lies on node 'web-1'", "late": True}
            yield frame(f"{RUN + 3}-99", "gap", {"incarnation": RUN + 3, "items": [], "gaps": [gap]})
            yield frame(f"{RUN + 3}-99", "end", {"incarnation": RUN + 3, "state": "CRASHED", "exit": EXIT})

        return told()

    server.answers["GET", f"{PATH}/console/stream"] = stream
    done = corral("instance", "logs", "lobby-1", "-f")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(f"corral instance logs lobby-1 --run {RUN + 3} --after 30")
