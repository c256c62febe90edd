"""Each noun's own promises."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable

import pytest
from cryptography import x509
from stand_in_controller import PROGRAM, Request, StandIn, refused

Corral = Callable[..., subprocess.CompletedProcess[str]]


def test_a_join_token_prints_the_one_command_alone(corral: Corral, server: StandIn) -> None:
    made = {
        "id": "jt-1",
        "node_id": "web-2",
        "expires_at": "2026-01-01T01:00:00Z",
        "replace": True,
        "token": "corral-join-1.x",
        "command": "corral daemon --join corral-join-1.x",
    }
    server.answers["POST", "/api/v1/nodes/join-tokens"] = (201, made)
    done = corral("node", "join-token", "--node-id", "web-2", "--ttl", "1h30m", "--replace")
    assert done.stdout == "corral daemon --join corral-join-1.x\n"
    assert "jt-1" in done.stderr
    assert server.requests[0].body == {"node_id": "web-2", "ttl_seconds": 5400, "replace": True}
    assert json.loads(corral("node", "join-token", "-o", "json").stdout) == made


def test_join_tokens_are_listed_and_revoked(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/nodes/join-tokens"] = (
        200,
        {"items": [{"id": "jt-1", "node_id": None}], "next": None},
    )
    server.answers["DELETE", "/api/v1/nodes/join-tokens/jt-1"] = (204, None)
    assert "jt-1  any" in corral("node", "join-tokens").stdout
    assert corral("node", "join-token-revoke", "jt-1", "--yes").returncode == 0


def test_a_new_token_is_printed_once_and_alone(corral: Corral, server: StandIn) -> None:
    server.answers["POST", "/api/v1/tokens"] = (201, {"id": "tok-1", "name": "ci", "token": "corral_secret"})
    done = corral("token", "create", "ci", "--role", "viewer", "--expires", "30d")
    assert done.stdout == "corral_secret\n"
    assert server.requests[0].body == {"name": "ci", "role": "VIEWER", "expires_in_seconds": 2_592_000}


def test_a_new_token_says_until_when_it_holds(corral: Corral, server: StandIn) -> None:
    made = {"id": "tok-1", "name": "ci", "token": "corral_secret", "expires_at": "2099-01-02T03:04:05Z"}
    server.answers["POST", "/api/v1/tokens"] = (201, made)
    create = ("token", "create", "ci", "--role", "VIEWER")
    assert "(VIEWER) holds until 2099-01-02 " in corral(*create, "--expires", "30d", TZ="UTC").stderr
    server.answers["POST", "/api/v1/tokens"] = (201, {**made, "expires_at": None})
    assert "(VIEWER) holds until it is revoked" in corral(*create).stderr


@pytest.mark.parametrize(
    ("flags", "fragment"),
    [
        (("--expires", "30"), "write 30d for days, 30s for seconds"),
        (("--role", "ADMIN"), "a token has one role"),
        (("-o", "name"), "-o json has both"),
    ],
)
def test_a_token_that_would_not_be_what_was_meant_is_not_made(
    corral: Corral, server: StandIn, flags: tuple[str, ...], fragment: str
) -> None:
    done = corral("token", "create", "ci", "--role", "VIEWER", *flags)
    assert (done.returncode, fragment in done.stderr) == (2, True)
    assert server.requests == []


def test_roles_that_a_provider_gives_are_listed_and_marked(corral: Corral, server: StandIn) -> None:
    anna = {
        "name": "anna",
        "display_name": "Anna Example",
        "provider": "https://id.example",
        "bindings": [],
        "provider_bindings": [{"role": "OPERATOR", "scope": {"groups": ["lobby*"]}}],
    }
    server.answers["GET", "/api/v1/users"] = (200, {"items": [anna], "next": None})
    assert "OPERATOR (groups lobby*) [provider]" in corral("user", "list").stdout
    assert "Anna Example" in corral("user", "list", "-o", "wide").stdout


def test_hints_of_the_api_name_commands(corral: Corral, server: StandIn) -> None:
    for hint, shown in (
        ("log in again", f"hint: log in again: corral login {server.url}\n"),
        ("set one up: POST /api/v1/auth/totp", "hint: set one up: corral user totp enable\n"),
        (
            "remove it first: POST /api/v1/auth/totp/remove",
            "hint: remove it first: corral user totp remove\n",
        ),
    ):
        server.answers["GET", "/api/v1/roles"] = refused(409, "CONFLICT", "no", hint=hint)
        assert shown in corral("role", "list").stderr


def test_tokens_events_and_audit_are_lists(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/tokens"] = (
        200,
        {"items": [{"id": "tok-1", "role": "ADMIN"}], "next": None},
    )
    server.answers["GET", "/api/v1/events"] = (
        200,
        {"items": [{"id": "1-7", "type": "NODE_ONLINE"}], "next": None},
    )
    server.answers["GET", "/api/v1/audit"] = (
        200,
        {"items": [{"actor": "admin", "action": "x"}], "next": None},
    )
    assert "never" in corral("token", "list").stdout
    assert corral("event", "list", "--types", "node_online", "--after", "1-6", "-o", "name").stdout == "1-7\n"
    assert server.requests[-1].query["types"] == "NODE_ONLINE"
    assert server.requests[-1].query["after"] == "1-6"
    assert "admin" in corral("audit", "list").stdout


def test_events_are_narrowed_by_subject_group_and_node(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/events"] = (200, {"items": [], "next": None})
    corral("event", "list", "--subject", "lobby-1", "--group", "lobby", "--node", "web-1")
    expected = {"subject": "lobby-1", "group": "lobby", "node": "web-1"}
    assert expected.items() <= server.requests[-1].query.items()


def test_the_types_of_events_are_listed_and_one_is_shown_with_its_fields(
    corral: Corral, server: StandIn
) -> None:
    field = {"name": "line", "type": "string", "required": True, "class": "sensitive", "example": "say hi"}
    item = {"type": "INSTANCE_COMMAND", "meaning": "A line was accepted.", "resource": "instance"}
    item |= {"permission": "events.read", "fields": [{**field, "meaning": "What was typed."}]}
    server.answers["GET", "/api/v1/events/types"] = (200, {"items": [item], "next": None})
    listed = corral("event", "types").stdout
    assert "INSTANCE_COMMAND" in listed
    assert "A line was accepted." in listed
    shown = corral("event", "types", "instance_command").stdout
    assert "line" in shown
    assert "What was typed." in shown
    refused = corral("event", "types", "INSTANCE_COMAND")
    assert (refused.returncode, refused.stderr.splitlines()) == (
        1,
        [
            "error: unknown event type 'INSTANCE_COMAND'",
            "hint: did you mean 'INSTANCE_COMMAND'? known: INSTANCE_COMMAND",
        ],
    )
    assert json.loads(corral("event", "types", "-o", "json").stdout)["items"] == [item]


def test_the_log_is_shown_with_fields_and_traceback(corral: Corral, server: StandIn) -> None:
    record = {
        "number": 9,
        "at": "2026-01-01T00:00:00Z",
        "level": "ERROR",
        "logger": "corral.x",
        "message": "it.broke",
        "fields": {"node": "web-1"},
        "throwable": "Traceback\n  boom\x1b[2J\n",
    }
    server.answers["GET", "/api/v1/logs"] = (200, {"items": [record], "next": None})
    done = corral("logs", "daemon", "web-1", "--tail", "5", "--level", "warn")
    assert done.stdout == (
        "2026-01-01T00:00:00Z ERROR corral.x: it.broke node=web-1\n    Traceback\n      boom\\u001b[2J\n"
    )
    assert server.requests[-1].query == {"source": "node:web-1", "level": "WARN", "limit": "5"}
    assert json.loads(corral("logs", "controller", "-o", "json").stdout) == record


def test_a_long_tail_is_read_forwards_in_pages(corral: Corral, server: StandIn) -> None:
    def numbered(request: Request) -> tuple[int, object]:
        first = int(str(request.query.get("after", 1999))) + 1
        last = min(first + int(str(request.query["limit"])) - 1, 2000)
        items = [{"number": number, "message": str(number)} for number in range(first, last + 1)]
        return 200, {"items": items, "next": str(last) if last < 2000 else None}

    server.answers["GET", "/api/v1/logs"] = numbered
    shown = corral("logs", "controller", "--tail", "1200", "-o", "name").stdout.split()
    assert shown == [str(number) for number in range(801, 2001)]


def test_the_newest_events_are_listed_also_behind_empty_pages(corral: Corral, server: StandIn) -> None:
    pages = {
        None: ([{"id": "1-1"}], "1-5"),
        "1-5": ([], "1-9"),
        "1-9": ([{"id": "1-10"}, {"id": "1-11"}], None),
    }
    server.answers["GET", "/api/v1/events"] = lambda request: (
        200,
        dict(zip(("items", "next"), pages[request.query.get("after")], strict=True)),
    )
    assert corral("event", "list", "--limit", "501", "-o", "name").stdout == "1-1\n1-10\n1-11\n"


def test_a_page_of_the_newest_events_is_asked_for_as_such(corral: Corral, server: StandIn) -> None:
    asked = []

    def answer(request):
        asked.append((request.query.get("newest"), request.query.get("limit")))
        return 200, {"items": [{"id": "1-10"}, {"id": "1-11"}], "next": None}

    server.answers["GET", "/api/v1/events"] = answer
    assert corral("event", "list", "--limit", "2", "-o", "name").stdout == "1-10\n1-11\n"
    assert asked == [("true", "2")]


@pytest.mark.parametrize(
    ("source", "level", "body"),
    [
        ("controller", "debug", {"source": "controller", "level": "DEBUG"}),
        ("web-1", "default", {"source": "node:web-1", "level": ""}),
        ("node:web-1", "TRACE", {"source": "node:web-1", "level": "TRACE"}),
    ],
)
def test_a_log_level_is_switched(
    corral: Corral, server: StandIn, source: str, level: str, body: dict[str, str]
) -> None:
    server.answers["PUT", "/api/v1/logs/level"] = (200, body)
    assert corral("logs", "level", source, level).returncode == 0
    assert server.requests[0].body == body


def test_the_cluster_tells_all_it_knows(corral: Corral, server: StandIn) -> None:
    told = {"id": "c1", "leader": {"holder": "h", "epoch": 7}, "members": [{"id": "m1", "role": "leader"}]}
    server.answers["GET", "/api/v1/cluster"] = (200, told)
    shown = corral("cluster", "status").stdout
    assert "Leader epoch" in shown
    assert "id=m1" in shown


def test_the_settings_are_shown_by_their_keys(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/settings"] = (
        200,
        {"controller": {"http": {"listen": "127.0.0.1:8480", "cors": {"origins": []}}, "data": "/srv"}},
    )
    rows = [line.split() for line in corral("cluster", "settings").stdout.splitlines()]
    assert rows == [["http.listen:", "127.0.0.1:8480"], ["http.cors.origins:", "-"], ["data:", "/srv"]]


def test_raising_the_epoch_tells_the_new_one(corral: Corral, server: StandIn) -> None:
    server.answers["POST", "/api/v1/cluster/raise-epoch"] = (200, {"epoch": 4294967303})
    assert corral("cluster", "raise-epoch", "--yes").stdout == "the epoch is now 4294967303\n"


def test_a_repaired_counter_tells_the_next_number(corral: Corral, server: StandIn) -> None:
    answer = {"before": 2**54, "highest_used": 41, "ignored": 1}
    server.answers["POST", "/api/v1/cluster/repair-sequence"] = (200, answer)
    assert corral("cluster", "repair-sequence", "--yes").stdout == "the next start has number 42\n"


def test_strays_of_a_node_are_named(corral: Corral, server: StandIn) -> None:
    strays = [{"instance": f"ghost-{n}", "group": "g", "incarnation": 1, "reason": "r"} for n in range(9)]
    node = {"id": "web-1", "stray_count": 12, "strays": strays}
    server.answers["GET", "/api/v1/nodes/web-1"] = (200, node)
    assert "12: ghost-0, ghost-1, ghost-2, ghost-3, ghost-4, ..." in corral("node", "get", "web-1").stdout


def test_an_admin_certificate_is_for_a_key_that_never_left(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    server.answers["POST", "/api/v1/cluster/certificates"] = (
        200,
        {"certificate_pem": "CERTIFICATE\n", "ca_pem": "AUTHORITY\n"},
    )
    out = tmp_path / "certificates"
    assert corral("cluster", "admin-certificate", "ada", "--out", str(out)).returncode == 0
    body = server.requests[0].body
    request = x509.load_pem_x509_csr(body["csr_pem"].encode())
    assert request.is_signature_valid
    assert body["name"] == "ada"
    assert "PRIVATE" not in json.dumps(body)
    modes = {path.name: path.stat().st_mode & 0o777 for path in out.iterdir()}
    assert modes == {"ada.key": 0o600, "ada.crt": 0o600, "ca.crt": 0o600}
    assert "PRIVATE KEY" in (out / "ada.key").read_text()
    assert (out / "ada.crt").read_text() == "CERTIFICATE\n"


def test_an_admin_certificate_never_overwrites_a_key(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "ada.key").write_text("old")
    assert corral("cluster", "admin-certificate", "ada", "--out", str(tmp_path)).returncode == 1
    assert corral("cluster", "admin-certificate", "../ada", "--out", str(tmp_path)).returncode == 1
    assert (tmp_path / "ada.key").read_text() == "old"
    assert server.requests == []


def test_the_version_is_printed(corral: Corral) -> None:
    assert json.loads(corral("version", "-o", "json").stdout)["protocol"] == 1
    assert corral("--version").stdout.startswith("corral 0.")


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("event", "list"), "/api/v1/events"),
        (("audit", "list"), "/api/v1/audit"),
        (("crash", "list"), "/api/v1/crashes"),
        (("logs", "controller"), "/api/v1/logs"),
    ],
)
def test_lists_of_what_happened_are_asked_for_by_time(
    corral: Corral, server: StandIn, words: tuple[str, str], path: str
) -> None:
    server.answers["GET", path] = (200, {"items": [], "next": None})
    done = corral(*words, "--since", "2026-11-15T10:00Z", "--until", "2026-11-15T11:00Z", "-n", "7")
    assert done.returncode == 0, done.stderr
    asked = next(request for request in server.requests if "since" in request.query)
    assert asked.query["since"] == "2026-11-15T10:00:00.000Z"
    assert asked.query["until"] == "2026-11-15T11:00:00.000Z"
    wrong = corral(*words, "--since", "2026-11-15T11:00Z", "--until", "2026-11-15T10:00Z")
    assert (wrong.returncode, "is not before" in wrong.stderr) == (2, True)


def test_ended_instances_are_left_out_of_tables_and_names(corral: Corral, server: StandIn) -> None:
    items = [{"id": name, "state": "RUNNING"} for name in ("w-10", "w-6")]
    server.answers["GET", "/api/v1/instances"] = (200, {"items": items, "next": None})
    table = corral("instance", "list").stdout
    assert table.index("w-6") < table.index("w-10")
    assert corral("instance", "list", "-o", "name").stdout == "w-6\nw-10\n"
    corral("instance", "list", "-a")
    corral("instance", "list", "-a", "-o", "name")
    corral("instance", "list", "-o", "json")
    asked = [request.query.get("live") for request in server.requests]
    assert asked == ["true", "true", None, None, None]
    views = [request.query.get("view") for request in server.requests]
    assert views == [None, "summary", None, "summary", None], "for names alone a compact list will do"


def test_the_shell_completes_names_that_the_controller_knows(corral: Corral, server: StandIn) -> None:
    items = [{"id": name} for name in ("lobby-1", "lobby-2", "arena-1")]
    server.answers["GET", "/api/v1/instances"] = (200, {"items": items, "next": None})
    assert "_CORRAL_COMPLETE=bash_complete" in corral("completion", "bash").stdout
    words = {"COMP_WORDS": "corral instance stop lob", "COMP_CWORD": "3", "_CORRAL_COMPLETE": "bash_complete"}
    assert corral(**words).stdout.split() == ["plain,lobby-1", "plain,lobby-2"]
    assert (server.requests[-1].query["view"], server.requests[-1].query["q"]) == ("summary", "lob")
    nobody = corral(**words, CORRAL_URL="http://127.0.0.1:1")
    assert (nobody.returncode, nobody.stdout.strip(), nobody.stderr) == (0, "", "")


def test_an_output_that_cannot_be_written_is_named(pointed: dict[str, str]) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [*PROGRAM, "version"], env=pointed, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert (done.returncode, "cannot write the output" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr
