"""Exit codes, errors and output forms, over a real connection."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable

import pytest
import yaml
from stand_in_controller import NODE, StandIn, refused

from corral.cli.api.client import Client
from corral.cli.failure import Unreachable

Corral = Callable[..., subprocess.CompletedProcess[str]]


def test_a_list_is_a_table_by_default(corral: Corral, server: StandIn) -> None:
    done = corral("node", "list")
    assert done.returncode == 0
    title, row = done.stdout.splitlines()
    assert title.split()[:3] == ["ID", "STATE", "ADMISSION"]
    assert row.split()[:3] == ["web-1", "ONLINE", "open"]
    assert "512/4096 MB" in row
    assert "zone=a" in row
    assert "\x1b" not in done.stdout
    assert server.requests[0].headers["Authorization"] == "Bearer corral_test_0123456789abcdef"


def test_json_yaml_and_names_are_for_programs(corral: Corral) -> None:
    assert json.loads(corral("node", "list", "-o", "json").stdout) == {"items": [NODE], "next": None}
    assert yaml.safe_load(corral("node", "list", "-o", "yaml").stdout) == {"items": [NODE], "next": None}
    assert corral("node", "list", "-o", "name").stdout == "web-1\n"
    assert json.loads(corral("node", "info", "web-1", "-o", "json").stdout) == NODE
    assert yaml.safe_load(corral("node", "info", "web-1", "-o", "yaml").stdout) == NODE


def test_a_list_comes_page_by_page(corral: Corral, server: StandIn) -> None:
    pages = {None: ([{"id": "a"}], "c1"), "c1": ([{"id": "b"}], "c2"), "c2": ([{"id": "c"}], None)}
    server.answers["GET", "/api/v1/nodes"] = lambda request: (
        200,
        dict(zip(("items", "next"), pages[request.query.get("cursor")], strict=True)),
    )
    assert corral("node", "list", "-o", "name").stdout == "a\nb\nc\n"


def far_client(server: StandIn) -> Client:
    """Under an address that is not known to be this machine's, and is."""
    return Client(url=server.url.replace("127.0.0.1", "[::ffff:127.0.0.1]"), token="corral_test")


def zipped(body: bytes, **more: str) -> bytes:
    heads = {
        "Connection": "close",
        "Content-Encoding": "gzip",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **more,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in heads.items())
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode() + body


def test_answers_are_asked_for_compressed_where_they_travel_and_not_on_this_machine(
    corral: Corral, server: StandIn
) -> None:
    answer = json.dumps({"items": [NODE], "next": None}).encode()
    server.answers["GET", "/api/v1/nodes"] = lambda request: zipped(gzip.compress(answer))
    server.answers["POST", "/api/v1/nodes/web-1/cordon"] = (200, NODE)
    client = far_client(server)
    assert client.get("/api/v1/nodes") == {"items": [NODE], "next": None}
    client.post("/api/v1/nodes/web-1/cordon")
    client.close()
    corral("node", "cordon", "web-1")
    asked = [request.headers.get("Accept-Encoding") for request in server.requests]
    assert asked[0] == "gzip"
    assert "gzip" not in asked[1:]
    assert corral("node", "list", "-o", "name").stdout == "web-1\n"
    assert server.requests[-1].headers.get("Accept-Encoding") == "identity"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (gzip.compress(b"{}")[:-4], "cut, or too large"),
        (gzip.compress(b" " * (64 * 1024 * 1024 + 1)), "cut, or too large"),
        (b"{}", "no gzip"),
    ],
    ids=["cut", "bomb", "plain"],
)
def test_a_compressed_body_that_is_none_is_not_taken(server: StandIn, body: bytes, told: str) -> None:
    server.answers["GET", "/api/v1/nodes"] = lambda request: zipped(body)
    client = far_client(server)
    with pytest.raises(Unreachable, match=told):
        client.get("/api/v1/nodes")
    client.close()


def test_filters_reach_the_controller(corral: Corral, server: StandIn) -> None:
    corral("node", "list", "--state", "online", "--label", "zone=a", "--label", "ssd=yes")
    assert server.requests[0].query["state"] == "ONLINE"
    assert server.requests[0].query["label"] == ["zone=a", "ssd=yes"]


def test_a_refusal_is_one_line_a_hint_and_code_1(corral: Corral, server: StandIn) -> None:
    server.answers["POST", "/api/v1/nodes/web-1/cordon"] = refused(
        409, "ILLEGAL_TRANSITION", "node 'web-1' is draining", hint="undrain it first"
    )
    done = corral("node", "cordon", "web-1")
    assert done.returncode == 1
    assert done.stderr == "error: node 'web-1' is draining\nhint: undrain it first\n"
    assert done.stdout == ""


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_refusal_names_its_request(corral: Corral, server: StandIn, form: str) -> None:
    server.request_id = "req-4f2c"
    server.answers["GET", "/api/v1/nodes/web-1"] = refused(404, "NOT_FOUND", "there is no node 'web-1'")
    done = corral("node", "info", "web-1", "-o", form)
    assert done.returncode == 1
    assert done.stderr == "error: there is no node 'web-1'\nrequest: req-4f2c\n"
    server.answers["GET", "/api/v1/events/stream"] = refused(403, "FORBIDDEN", "no")
    assert "\nrequest: req-4f2c\n" in corral("event", "follow").stderr


def test_a_refusal_cannot_steer_the_terminal(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/nodes"] = refused(403, "FORBIDDEN", "no\x1b[2J")
    assert "\x1b" not in corral("node", "list").stderr


WRONG_USAGE = [
    ("nod", "list"),
    ("node", "lst"),
    ("node", "list", "--stat", "x"),
    ("node", "list", "--state", "LOUD"),
    ("node", "list", "-o", "xml"),
    ("node", "info"),
    ("node", "join-token", "--ttl", "soon"),
    ("node", "list", "--url", "ftp://x"),
    ("node", "list", "--url", "http://me@x"),
    ("node", "list", "--token", "two words"),
    ("node", "list", "--context", "unknown"),
    ("node",),
    ("frobnicate",),
]


def test_wrong_usage_is_code_2_and_touches_nobody(corral: Corral, server: StandIn) -> None:
    for arguments in WRONG_USAGE:
        done = corral(*arguments)
        assert done.returncode == 2, arguments
        assert done.stdout == "", arguments
        assert "Traceback" not in done.stderr, arguments
        assert server.requests == [], arguments


@pytest.mark.parametrize(
    ("arguments", "meant"), [(("nod", "list"), "node"), (("node", "lst"), "list"), (("evnt",), "event")]
)
def test_an_unknown_command_names_the_nearest_one(
    corral: Corral, arguments: tuple[str, ...], meant: str
) -> None:
    assert f"Did you mean '{meant}'" in corral(*arguments).stderr


def test_nobody_there_is_code_3(corral: Corral) -> None:
    done = corral("node", "list", "--url", "http://127.0.0.1:1")
    assert done.returncode == 3
    assert done.stderr.startswith("error: cannot reach http://127.0.0.1:1: Connection refused\nhint: ")


GARBAGE = [
    b"this is not http\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe",
    b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"items":5}',
    b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nnil",
    b'HTTP/1.1 400 Bad\r\nContent-Length: 12\r\n\r\n{"error":"x"}',
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    None,
]


def test_garbage_is_code_3_and_never_a_traceback(corral: Corral, server: StandIn) -> None:
    for answer in GARBAGE:
        server.answers["GET", "/api/v1/nodes"] = lambda _, answer=answer: answer
        done = corral("node", "list")
        assert done.returncode == 3, (answer, done.stderr)
        assert done.stderr.startswith("error: "), answer
        assert "Traceback" not in done.stderr, answer


def test_a_get_is_tried_again_and_a_change_is_not(corral: Corral, server: StandIn) -> None:
    def failing_once(request: object) -> tuple[int, object] | None:
        return (200, {"items": [NODE], "next": None}) if len(server.requests) > 1 else None

    server.answers["GET", "/api/v1/nodes"] = failing_once
    assert corral("node", "list", "-o", "name").stdout == "web-1\n"
    server.requests.clear()
    server.answers["POST", "/api/v1/nodes/web-1/cordon"] = lambda _: None
    done = corral("node", "cordon", "web-1")
    assert done.returncode == 3
    assert "it may have been done" in done.stderr
    assert len(server.requests) == 1


def test_every_change_carries_its_own_idempotency_key(corral: Corral, server: StandIn) -> None:
    server.answers["POST", "/api/v1/nodes/web-1/cordon"] = (200, NODE)
    assert (
        corral("node", "cordon", "web-1", "--reason", "disk").stdout
        == "node 'web-1' takes no new instances\n"
    )
    corral("node", "cordon", "web-1")
    keys = {request.headers["Idempotency-Key"] for request in server.requests}
    assert len(keys) == 2
    assert server.requests[0].body == {"reason": "disk"}


def test_a_node_says_why_it_is_cordoned(corral: Corral, server: StandIn) -> None:
    cordoned = {**NODE, "admission": "cordoned", "admission_reason": "new disk"}
    server.answers["GET", "/api/v1/nodes/web-1"] = (200, cordoned)
    assert "cordoned: new disk\n" in corral("node", "info", "web-1").stdout


def test_an_option_that_is_missing_is_named_in_one_line_with_its_choices(corral: Corral) -> None:
    done = corral("token", "create", "ci")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: Missing option '--role'. Choose from: admin, operator, viewer",
        "hint: see 'corral token create --help'",
    ]


def test_labels_and_limits_of_a_node_are_one_change(corral: Corral, server: StandIn) -> None:
    server.answers["PATCH", "/api/v1/nodes/web-1"] = (200, {**NODE, "labels": {"zone": "eu"}})
    done = corral("node", "label", "web-1", "zone=eu", "disk-", "--as-claimed", "team")
    assert done.stdout == "labels of node 'web-1': zone=eu\n"
    assert server.requests[0].body == {"labels": {"zone": "eu", "disk": None}, "as_claimed": ["team"]}
    assert corral("node", "cap", "web-1", "--memory-mb", "0", "--cpus", "4", "--runtimes", "").returncode == 0
    assert server.requests[1].body == {"memory_mb": None, "cpus": 4, "runtimes": None}
    for incomplete in (["label", "web-1"], ["label", "web-1", "zone"], ["cap", "web-1"]):
        assert corral("node", *incomplete).returncode == 2
    assert "neither KEY=VALUE, which sets a label, nor KEY-" in corral("node", "label", "web-1", "bad").stderr
    corral("node", "label", "web-1", "range=5-")
    assert server.requests[-1].body["labels"] == {"range": "5-"}


def test_what_is_promised_on_a_node_is_shown_against_its_limit_and_the_host_apart(
    corral: Corral, server: StandIn
) -> None:
    limits = {
        "labels": {"trusted.team": "x"},
        "withheld": ["zone"],
        "memory_mb": 256,
        "runtimes": ["process", "tmux"],
    }
    seen = {"memory_mb": 256, "reserved_memory_mb": 48, "used_memory_mb": 1923, "settings": limits}
    node = {**NODE, **seen, "claims": {"memory_mb": 4096}}
    server.answers["GET", "/api/v1/nodes/web-1"] = (200, node)
    server.answers["GET", "/api/v1/nodes"] = (200, {"items": [node], "next_cursor": None})
    rows = [" ".join(line.split()) for line in corral("node", "info", "web-1").stdout.splitlines()]
    assert "Memory: 48 MB reserved, 208 of 256 MB free (at most 256 MB by operators)" in rows
    assert "Host memory: 1923/4096 MB" in rows
    said = "labels trusted.team=x zone-; at most 256 MB; only runtimes process, tmux"
    assert f"Set by operators: {said}" in rows
    listed = corral("node", "list").stdout
    assert "48/256 MB" in listed
    assert "1923/4096 MB" in listed


def test_an_id_is_one_part_of_the_path_whatever_is_in_it(corral: Corral, server: StandIn) -> None:
    corral("node", "info", "../tokens?x")
    assert server.requests[0].path == "/api/v1/nodes/..%2Ftokens%3Fx"


def test_waiting_ends_when_the_state_is_there(corral: Corral, server: StandIn) -> None:
    def appearing(request: object) -> tuple[int, object]:
        if len(server.requests) < 2:
            return refused(404, "NOT_FOUND", "no such node")
        return 200, {**NODE, "state": "ONLINE" if len(server.requests) > 2 else "ENROLLED"}

    server.answers["GET", "/api/v1/nodes/web-1"] = appearing
    done = corral("node", "info", "web-1", "--wait", "online", "-o", "name")
    assert (done.returncode, done.stdout) == (0, "web-1\n")


def test_a_wait_that_runs_out_is_code_4(corral: Corral) -> None:
    done = corral("node", "info", "web-1", "--wait", "REVOKED", "--timeout", "1s")
    assert done.returncode == 4
    assert done.stderr == "error: node 'web-1' was not REVOKED within 1 second: it is ONLINE\n"


NEEDS_A_YES = [
    ("node", "revoke", "web-1"),
    ("node", "remove", "web-1"),
    ("node", "join-token-revoke", "j"),
    ("token", "revoke", "t"),
    ("cluster", "raise-epoch"),
    ("cluster", "repair-sequence"),
    ("cluster", "shutdown"),
]


def test_what_cannot_be_taken_back_needs_a_yes(corral: Corral, server: StandIn) -> None:
    for arguments in NEEDS_A_YES:
        done = corral(*arguments)
        assert done.returncode == 2, arguments
        assert "add --yes" in done.stderr, arguments
        assert server.requests == [], arguments


def test_with_a_yes_it_is_done(corral: Corral, server: StandIn) -> None:
    server.answers["DELETE", "/api/v1/nodes/web-1"] = (204, None)
    done = corral("node", "remove", "web-1", "--yes")
    assert (done.returncode, done.stdout) == (0, "node 'web-1' is removed\n")


def test_a_global_option_may_stand_before_the_noun_or_behind_the_verb(
    corral: Corral, server: StandIn
) -> None:
    for arguments in (("--url", server.url, "node", "list"), ("node", "list", "--url", server.url)):
        assert corral(*arguments, CORRAL_URL="http://127.0.0.1:1").returncode == 0
