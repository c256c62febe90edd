"""`corral logs --request ID`: what the controller and every node logged for one request, in one list."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from stand_in_controller import NODE, Request, StandIn

Corral = Callable[..., subprocess.CompletedProcess[str]]
NODES = [NODE, {**NODE, "id": "web-2"}]


def record(second: int, message: str) -> dict[str, object]:
    return {
        "number": second,
        "at": f"2026-01-01T00:00:0{second}Z",
        "level": "INFO",
        "logger": "corral.x",
        "message": message,
        "fields": {"request": "req-1"},
    }


KEPT = {
    "controller": [record(1, "instance_order.sent"), record(4, "http_request.ended")],
    "node:web-1": [record(2, "instance_state.changed"), record(3, "instance_state.changed")],
    "node:web-2": [],
}


@pytest.fixture
def asked(server: StandIn) -> list[dict[str, object]]:
    """What was asked of the logs; only `req-1` is known, and pages have one record each."""
    queries: list[dict[str, object]] = []

    def answer(request: Request) -> tuple[int, object]:
        if "request" not in request.query:
            return 200, {"items": [], "next": None}
        queries.append(request.query)
        found = KEPT[str(request.query["source"])] if request.query["request"] == "req-1" else []
        later = [each for each in found if int(str(each["number"])) > int(str(request.query["after"]))]
        return 200, {"items": later[:1], "next": str(later[0]["number"]) if later[1:] else None}

    server.answers["GET", "/api/v1/nodes"] = (200, {"items": NODES, "next": None})
    server.answers["GET", "/api/v1/logs"] = answer
    return queries


@pytest.mark.parametrize(
    "words",
    [
        ("logs", "--request", "req-1"),
        ("logs", "--request=req-1"),
        ("logs", "request", "req-1"),
        ("logs", "--level", "info", "--request", "req-1"),
        ("logs", "--request", "req-1", "--level", "info"),
    ],
)
def test_the_records_of_all_logs_are_shown_in_the_order_of_time(
    corral: Corral, asked: list[dict[str, object]], words: tuple[str, ...]
) -> None:
    done = corral(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "controller  2026-01-01T00:00:01Z INFO  corral.x: instance_order.sent request=req-1",
        "node:web-1  2026-01-01T00:00:02Z INFO  corral.x: instance_state.changed request=req-1",
        "node:web-1  2026-01-01T00:00:03Z INFO  corral.x: instance_state.changed request=req-1",
        "controller  2026-01-01T00:00:04Z INFO  corral.x: http_request.ended request=req-1",
    ]
    assert {str(query["source"]) for query in asked} == set(KEPT)
    assert {str(query.get("level", "")) for query in asked} == {"INFO" if "--level" in words else ""}


def test_records_as_json_say_which_log_they_are_of(corral: Corral, asked: list[dict[str, object]]) -> None:
    done = corral("logs", "--request", "req-1", "-o", "json")
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["source"] for each in shown] == ["controller", "node:web-1", "node:web-1", "controller"]
    assert shown[0] == {"source": "controller", **KEPT["controller"][0]}


def test_a_request_without_records_is_refused_with_a_hint(
    corral: Corral, asked: list[dict[str, object]]
) -> None:
    for form in ((), ("-o", "json")):
        done = corral("logs", "--request", "req-9", *form)
        assert (done.returncode, done.stdout) == (1, "")
        assert "no log record of request 'req-9' is kept" in done.stderr
        assert "DATA/logs" in done.stderr


def test_a_missing_id_is_wrong_usage(corral: Corral, asked: list[dict[str, object]]) -> None:
    assert corral("logs", "--request").returncode == 2
    assert asked == []


ODD = {
    "": "it is empty",
    "-x": "it begins with '-'",
    "--level": "it begins with '-'",
    "a b": "it has other characters",
    "a\x1b[2Jb": "it has other characters",
    "é": "it has other characters",
    "x" * 129: "it has more than 128 characters",
}


@pytest.mark.parametrize(("id", "why"), ODD.items())
def test_what_cannot_be_an_id_is_refused_before_anything_is_asked(
    corral: Corral, asked: list[dict[str, object]], id: str, why: str
) -> None:
    for words in (("--request", id), (f"--request={id}",), ("request", "--", id)):
        done = corral("logs", *words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "cannot be the id of a request" in done.stderr
        assert why in done.stderr
        assert "hint: use the X-Request-Id of an answer" in done.stderr
        assert done.stderr.replace("\n", "").isprintable()
    assert asked == []


@pytest.mark.parametrize(
    ("own", "kept", "gone"),
    [
        (True, "2026-01-01T00:00:00Z", False),
        (True, "2026-01-01T00:00:02Z", True),
        (False, "2026-01-01T00:00:09Z", True),
        (True, None, False),
    ],
)
def test_a_part_of_the_controller_that_may_be_gone_is_told(
    corral: Corral, server: StandIn, own: bool, kept: str | None, gone: bool
) -> None:
    def answer(request: Request) -> tuple[int, object]:
        source = str(request.query["source"])
        items = KEPT[source] if own or source != "controller" else []
        return 200, {"items": items, "next": None, "kept_since": kept}

    server.answers["GET", "/api/v1/nodes"] = (200, {"items": NODES, "next": None})
    server.answers["GET", "/api/v1/logs"] = answer
    done = corral("logs", "--request", "req-1")
    assert done.returncode == 0
    assert ("the controller's log in memory begins at" in done.stderr) == gone
    assert ("DATA/logs" in done.stderr) == gone
    shown = [
        json.loads(line) for line in corral("logs", "--request", "req-1", "-o", "json").stdout.splitlines()
    ]
    assert {each.get("controller_log_since") for each in shown} == {kept if gone else None}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tail", "50"), True),
        (("--tail", "4"), False),
        ((), False),
        (("--since", "2026-01-01T00:00:00Z"), True),
        (("--since", "2026-01-01T00:00:03Z"), False),
        (("--tail", "50", "-o", "json"), False),
    ],
)
def test_older_records_than_there_are_are_told_to_be_in_the_files(
    corral: Corral, server: StandIn, words: tuple[str, ...], told: bool
) -> None:
    page = {"items": KEPT["controller"], "next": None, "kept_since": "2026-01-01T00:00:01Z"}
    server.answers["GET", "/api/v1/logs"] = (200, page)
    done = corral("logs", "controller", *words)
    assert done.returncode == 0, done.stderr
    assert ("older records are in its DATA/logs" in done.stderr) == told
