"""Following: events and logs as they come, across broken connections."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stand_in_controller import NODE, Request, StandIn, frame, refused

Begin = Callable[..., subprocess.Popen[str]]


class Feed:
    """Frames for one stream, as the test hands them out; None ends the connection."""

    def __init__(self) -> None:
        self.parts: queue.Queue[bytes | None] = queue.Queue()
        self.connections: queue.Queue[Request] = queue.Queue()

    def __call__(self, request: Request) -> Iterator[bytes]:
        self.connections.put(request)
        return iter(lambda: self.parts.get(timeout=30), None)


@pytest.fixture
def feed(server: StandIn) -> Iterator[Feed]:
    made = Feed()
    server.answers["GET", "/api/v1/events/stream"] = made
    server.answers["GET", "/api/v1/logs/stream"] = made
    yield made
    for _ in range(5):
        made.parts.put(None)  # whatever still streams ends, so that the server can


def event(number: int) -> bytes:
    shape = {"id": f"1-{number}", "type": "NODE_ONLINE", "subject": f"n{number}", "at": "t", "data": {}}
    return frame(f"1-{number}", "NODE_ONLINE", shape)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_broken_stream_is_taken_up_behind_the_last_event(begin: Begin, feed: Feed) -> None:
    process = begin("event", "follow", "--types", "node_online", "--after", "1-1", "-o", "name")
    first = feed.connections.get(timeout=30)
    assert first.query == {"types": "NODE_ONLINE", "after": "1-1"}
    assert "Last-Event-ID" not in first.headers
    feed.parts.put(event(2))
    assert line(process) == "1-2\n"
    feed.parts.put(event(3)[:20])  # cut within an event: it counts as not seen
    feed.parts.put(None)
    again = feed.connections.get(timeout=30)
    assert again.headers["Last-Event-ID"] == "1-2"
    assert again.query == {"types": "NODE_ONLINE"}
    feed.parts.put(event(3))
    assert line(process) == "1-3\n"


def test_a_frame_without_data_moves_the_position(begin: Begin, feed: Feed) -> None:
    process = begin("event", "follow", "-o", "name")
    feed.connections.get(timeout=30)
    feed.parts.put(b": still here\nid: 1-9\n\n")
    feed.parts.put(None)
    assert feed.connections.get(timeout=30).headers["Last-Event-ID"] == "1-9"
    process.kill()


def test_lost_events_are_told_and_following_goes_on(begin: Begin, feed: Feed) -> None:
    process = begin("event", "follow", "-o", "json")
    feed.parts.put(frame("1-50", "RESYNC_REQUIRED", {"type": "RESYNC_REQUIRED"}))
    feed.parts.put(event(51))
    assert json.loads(line(process))["id"] == "1-51"
    assert process.stderr is not None
    assert "events were lost" in process.stderr.readline()


def test_garbage_in_a_stream_is_passed_over(begin: Begin, feed: Feed) -> None:
    process = begin("event", "follow", "-o", "name")
    feed.parts.put(b"data: {not json\n\nnonsense\n\n\xff\xfe\n")
    feed.parts.put(event(2))
    assert line(process) == "1-2\n"


def test_a_token_that_is_revoked_meanwhile_ends_it_with_code_1(
    begin: Begin, feed: Feed, server: StandIn
) -> None:
    process = begin("event", "follow", "-o", "name")
    feed.connections.get(timeout=30)
    server.answers["GET", "/api/v1/events/stream"] = refused(401, "UNAUTHENTICATED", "the token was revoked")
    feed.parts.put(None)
    assert process.wait(timeout=30) == 1
    assert process.stderr is not None
    assert "error: the token was revoked" in process.stderr.read()


def test_a_controller_that_restarts_is_waited_for(begin: Begin, feed: Feed, server: StandIn) -> None:
    process = begin("event", "follow", "-o", "name")
    feed.connections.get(timeout=30)
    answers: list[Any] = [
        None,
        refused(503, "NOT_LEADER", "not now"),
        refused(429, "RATE_LIMITED", "too many"),
    ]

    def unwilling(request: Request) -> Any:
        return answers.pop(0) if answers else feed(request)

    server.answers["GET", "/api/v1/events/stream"] = unwilling
    feed.parts.put(None)
    feed.connections.get(timeout=30)
    feed.parts.put(event(4))
    assert line(process) == "1-4\n"


def test_a_first_connection_that_fails_is_told_at_once(begin: Begin) -> None:
    process = begin("event", "follow", "--url", "http://127.0.0.1:1")
    assert process.wait(timeout=30) == 3


def test_an_interrupt_ends_it_quietly(begin: Begin, feed: Feed) -> None:
    process = begin("event", "follow", "-o", "name")
    feed.parts.put(event(2))
    assert line(process) == "1-2\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert process.stderr is not None
    assert process.stderr.read().strip() == ""


def test_an_interrupted_wait_says_that_only_the_wait_ends(begin: Begin, server: StandIn) -> None:
    instance = {
        "id": "a-1",
        "state": "STOPPING",
        "wanted": "stop",
        "incarnation": 1024,
        "group": "a",
        "node": "n",
    }
    seen = threading.Event()

    def stopping(request: Request) -> Any:
        seen.set()
        return (200, instance)

    server.answers["POST", "/api/v1/instances/a-1/stop"] = (200, instance)
    server.answers["GET", "/api/v1/instances/a-1"] = stopping
    process = begin("instance", "stop", "a-1", "--wait")
    assert seen.wait(30)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert process.stderr is not None
    assert "only the wait ends" in process.stderr.read()


def log_record(number: int, level: str, message: str) -> dict[str, Any]:
    return {"number": number, "at": "t", "level": level, "logger": "l", "message": message, "fields": {}}


def test_logs_are_followed_from_the_tail_without_gap_or_double_and_resumed_by_number(
    begin: Begin, feed: Feed, server: StandIn
) -> None:
    old, new = log_record(6, "WARN", "old"), log_record(7, "WARN", "came meanwhile")

    def growing(request: Request) -> tuple[int, Any]:
        return 200, {"items": [old] if request.query["limit"] == "1" else [old, new], "next": None}

    server.answers["GET", "/api/v1/logs"] = growing
    process = begin("logs", "controller", "-f", "--tail", "5", "--level", "warn")
    assert line(process) == "t WARN  l: old\n"
    assert feed.connections.get(timeout=30).query == {"source": "controller", "after": "6"}
    feed.parts.put(frame("7", "log", new))
    feed.parts.put(frame("8", "log", log_record(8, "INFO", "too quiet")))
    feed.parts.put(frame("9", "log", {**log_record(9, "ERROR", "loud"), "dropped_before": 2}))
    assert line(process) == "t WARN  l: came meanwhile\n"
    assert line(process) == "t ERROR l: loud (2 records lost before this one)\n"
    feed.parts.put(None)
    again = feed.connections.get(timeout=30)
    assert again.headers["Last-Event-ID"] == "9"
    assert again.query == {"source": "controller"}


def test_a_watched_list_is_printed_again_when_an_event_says_so(
    begin: Begin, feed: Feed, server: StandIn
) -> None:
    process = begin("node", "list", "--watch", "-o", "json")
    assert [node["state"] for node in json.loads(line(process))["items"]] == ["ONLINE"]
    feed.connections.get(timeout=30)
    server.answers["GET", "/api/v1/nodes"] = (200, {"items": [{**NODE, "state": "REVOKED"}], "next": None})
    feed.parts.put(event(2))
    assert [node["state"] for node in json.loads(line(process))["items"]] == ["REVOKED"]
