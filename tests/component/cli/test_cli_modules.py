"""`corral module`, `capability`, `command`: what they send, what people read, and what authors get."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from people import Person
from stand_in_controller import Request, StandIn, refused

Corral = Callable[..., subprocess.CompletedProcess[str]]

MODULES = "/api/v1/modules"
MODULE: dict[str, Any] = {
    "id": "guest-book",
    "version": "0.1.0",
    "hosts": ["controller"],
    "phase": "FAILED",
    "intent": "active",
    "reason": "hook_failed:on_start",
    "sha256": "ab" * 32,
    "size": 2048,
    "nodes": [],
    "provides": [{"id": "guests", "version": "1.0.0"}],
    "requires": [{"id": "stats.groups", "version_range": "^1", "optional": True, "from": "controller"}],
    "title": "Guest book",
    "description": "",
    "signature": {"kind": "sig", "key_sha256": "cd" * 32, "identity": "", "legacy": True},
    "settings": {"greeting": "Hello", "nested": {"deep": 1}},
    "failure": {
        "reason": "hook_failed:on_start",
        "message": "RuntimeError: no",
        "traceback": "line 1",
        "log": ["x"],
    },
    "history": [
        {"at": "2026-01-01T00:00:00Z", "from": "WAITING", "to": "FAILED", "reason": "hook_failed:on_start"}
    ],
    "updated_at": "2026-01-01T00:00:00Z",
}

RUNNING = {**MODULE, "phase": "ACTIVE", "reason": ""}


@pytest.fixture
def source(tmp_path: pathlib.Path, corral: Corral) -> pathlib.Path:
    made = corral("module", "new", "guest-book", "--into", str(tmp_path / "guest-book"))
    assert made.returncode == 0, made.stderr
    return tmp_path / "guest-book"


@pytest.fixture
def archive(source: pathlib.Path, corral: Corral) -> pathlib.Path:
    built = corral("module", "build", str(source))
    assert built.returncode == 0, built.stderr
    return source / "dist" / "guest-book-0.1.0.cmod"


def test_modules_are_listed_and_one_is_told_with_its_failure_and_story(
    corral: Corral, server: StandIn
) -> None:
    server.answers["GET", MODULES] = (200, {"items": [MODULE], "next": None})
    server.answers["GET", f"{MODULES}/guest-book"] = (200, MODULE)
    listed = corral("module", "list", "--phase", "failed").stdout.splitlines()
    assert listed[1].split()[:4] == ["guest-book", "0.1.0", "FAILED", "active"]
    assert server.requests[-1].query["phase"] == "FAILED"
    shown = corral("extension", "get", "guest-book").stdout
    for text in (
        "RuntimeError: no",
        "WAITING -> FAILED",
        "stats.groups ^1 (optional, from controller)",
        "sig by key cdcdcdcdcdcd",
    ):
        assert text in shown
    assert json.loads(corral("module", "info", "guest-book", "-o", "json").stdout) == MODULE


def test_a_module_is_shown_with_the_settings_it_takes(corral: Corral, server: StandIn) -> None:
    schema = {
        "properties": {
            "greeting": {"type": "string", "default": "Hello", "maxLength": 40},
            "mode": {"enum": ["loud", "still"], "description": "how"},
            "ports": {"type": ["integer", "null"], "minimum": 1},
            "any": True,
        },
        "required": ["mode"],
    }
    server.answers["GET", f"{MODULES}/guest-book"] = (200, MODULE)
    server.answers["GET", f"{MODULES}/guest-book/config"] = (200, {"settings": {}, "schema": schema})
    shown = corral("module", "info", "guest-book").stdout.splitlines()
    told = corral("module", "config", "guest-book").stdout.splitlines()
    for lines in (shown, told):
        assert [line.partition(":")[2].strip() for line in lines if line.startswith("Takes:")] == [
            'greeting: string, length at most 40, default "Hello"',
            'mode: one of "loud", "still", required; how',
            "ports: integer|null, at least 1",
            "any",
        ]
    server.answers["GET", f"{MODULES}/guest-book"] = (200, {**MODULE, "settings": None})
    before = len(server.requests)
    corral("module", "info", "guest-book")
    assert len(server.requests) == before + 1


def test_a_schema_that_names_no_settings_is_shown_as_it_is(corral: Corral, server: StandIn) -> None:
    schema = {"additionalProperties": {"type": "integer"}}
    server.answers["GET", f"{MODULES}/guest-book"] = (200, MODULE)
    server.answers["GET", f"{MODULES}/guest-book/config"] = (200, {"settings": {}, "schema": schema})
    for command in ("info", "config"):
        shown = corral("module", command, "guest-book").stdout
        assert 'what fits {"additionalProperties": {"type": "integer"}}' in shown


@pytest.mark.system
def test_a_long_setting_is_cut_among_other_facts_and_whole_by_itself(corral: Corral, server: StandIn) -> None:
    text = "x" * 5000
    server.answers["GET", f"{MODULES}/guest-book"] = (200, {**MODULE, "settings": {"text": text, "on": True}})
    shown = corral("module", "info", "guest-book").stdout
    assert re.search("^Settings: +text=x+…,on=yes$", shown, re.MULTILINE)
    assert max(map(len, shown.splitlines())) < 200
    assert text in corral("module", "info", "guest-book", "-o", "json").stdout
    assert text in corral("module", "config", "guest-book").stdout


@pytest.mark.parametrize("verb", ["activate", "deactivate", "resume", "recover", "reload"])
def test_a_verb_is_sent_and_the_outcome_is_one_sentence(corral: Corral, server: StandIn, verb: str) -> None:
    server.answers["POST", f"{MODULES}/guest-book/{verb}"] = (200, MODULE)
    said = corral("module", verb, "guest-book")
    assert said.stdout == "'guest-book' 0.1.0 is FAILED (hook_failed:on_start)\n", said.stderr
    assert (said.returncode, "RuntimeError: no" in said.stderr) == (1, True)
    server.answers["POST", f"{MODULES}/guest-book/{verb}"] = (
        200,
        {**MODULE, "phase": "ACTIVE", "reason": ""},
    )
    assert corral("module", verb, "guest-book").returncode == 0


def test_a_pause_needs_a_reason_and_sends_it(corral: Corral, server: StandIn) -> None:
    server.answers["POST", f"{MODULES}/guest-book/pause"] = (200, {**MODULE, "phase": "INSTALLED"})
    assert corral("module", "pause", "guest-book").returncode == 2
    assert corral("module", "pause", "guest-book", "--reason", "later").returncode == 0
    assert server.requests[-1].body == {"reason": "later"}


def test_single_settings_are_changed_and_the_rest_stays(corral: Corral, server: StandIn) -> None:
    server.answers["GET", f"{MODULES}/guest-book"] = (200, MODULE)
    server.answers["PUT", f"{MODULES}/guest-book/config"] = (200, MODULE)
    corral("module", "config", "guest-book", "--set", "nested.deep=[1, 2]", "--unset", "greeting")
    assert server.requests[-1].body == {"nested": {"deep": [1, 2]}}
    assert "greeting: Hello" in corral("module", "config", "guest-book").stdout
    wrong = corral("module", "config", "guest-book", "--set", "greeting.deep=1")
    assert (wrong.returncode, "holds no others" in wrong.stderr) == (2, True)


def test_settings_are_read_as_manifests_are_and_dates_are_texts(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path
) -> None:
    server.answers["GET", f"{MODULES}/guest-book"] = (200, {**RUNNING, "settings": {}})
    server.answers["PUT", f"{MODULES}/guest-book/config"] = (200, RUNNING)
    given = [f"--set={each}" for each in ("day=2026-01-01", "mode=on", "limit=.inf", "nothing=", "port=80")]
    said = corral("module", "config", "guest-book", *given)
    assert said.returncode == 0, said.stderr
    wanted = {"day": "2026-01-01", "mode": "on", "limit": ".inf", "nothing": None, "port": 80}
    assert server.requests[-1].body == wanted
    file = tmp_path / "settings.yaml"
    file.write_text("day: 2026-01-01\nsame: &a [1]\n")
    said = corral("module", "config", "guest-book", "--file", str(file))
    assert (said.returncode, f"{file}:2: the anchor" in said.stderr) == (2, True)


def test_an_archive_is_sent_whatever_its_name_is(
    corral: Corral, server: StandIn, archive: pathlib.Path
) -> None:
    server.answers["POST", MODULES] = (201, {**RUNNING, "outcome": "installed"})
    odd = archive.rename(archive.parent / os.fsdecode(b'"\xff\r\n.cmod'))
    said = corral("module", "install", str(odd))
    assert said.returncode == 0, said.stderr
    head = server.requests[-1].body.partition(b"\r\n\r\n")[0]
    assert b'filename="_?__.cmod"' in head


def test_reloads_while_developing_can_be_read_by_programs(
    corral: Corral, server: StandIn, source: pathlib.Path
) -> None:
    server.answers["POST", MODULES] = (201, {**MODULE, "outcome": "installed"})
    said = corral("module", "dev", str(source), "--once", "-o", "json")
    assert json.loads(said.stdout)["id"] == "guest-book", said.stderr


def test_an_archive_is_sent_as_a_form_with_the_signature_beside_it(
    corral: Corral, server: StandIn, archive: pathlib.Path
) -> None:
    server.answers["POST", MODULES] = (
        201,
        {**MODULE, "kind": "installed", "outcome": "installed", "steps": []},
    )
    signed = corral("module", "sign", str(archive), "--new-key", str(archive.parent / "author"))
    assert signed.returncode == 0, signed.stderr
    assert (archive.parent / "author.key").stat().st_mode & 0o077 == 0
    said = corral("module", "install", str(archive), "--no-activate", "--replace")
    assert said.stdout.startswith("installed: 'guest-book' 0.1.0 is FAILED"), said.stderr
    sent = server.requests[-1]
    assert sent.query == {"activate": "false", "replace": "true"}
    assert sent.headers["Content-Type"].startswith("multipart/form-data; boundary=")
    assert archive.read_bytes() in sent.body
    assert (archive.parent / f"{archive.name}.sig").read_bytes() in sent.body
    assert len(sent.body) == int(sent.headers["Content-Length"])


def test_a_dry_run_tells_what_is_in_the_way_and_fails(
    corral: Corral, server: StandIn, archive: pathlib.Path
) -> None:
    report = {"kind": "examined", "ok": False, "action": "install", "id": "guest-book", "version": "0.1.0"}
    problem = {"code": "CAPABILITY_CONFLICT", "message": "'a' provides it", "hint": "pause 'a'"}
    server.answers["POST", MODULES] = (200, {**report, "problems": [problem], "warnings": ["mind the gap"]})
    said = corral("module", "install", str(archive), "--dry-run")
    assert said.returncode == 1
    assert "problem: 'a' provides it; pause 'a'" in said.stdout
    assert "warning: mind the gap" in said.stdout


EXAMINED = {
    "kind": "examined", "ok": True, "action": "install", "id": "guest-book", "version": "0.1.0", "sha256": "ab" * 32,
    "size": 2048, "signature": None, "problems": [], "warnings": ["mind the gap"], "expires_at": None,
}  # fmt: skip


@pytest.mark.parametrize("kept", [True, False])
async def test_on_a_terminal_an_install_shows_what_would_happen_and_sends_the_archive_once(
    server: StandIn, archive: pathlib.Path, tmp_path: pathlib.Path, kept: bool
) -> None:
    made = {**RUNNING, "kind": "installed", "outcome": "installed", "steps": []}
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()

    def answer(request: Request) -> Any:
        if request.query.get("dry_run"):
            return 200, {**EXAMINED, "sha256": digest}
        if isinstance(request.body, dict) and not kept:
            return refused(404, "NOT_FOUND", "no archive with the digest …", field="sha256")
        return 201, made

    server.answers["POST", MODULES] = answer
    person = Person(tmp_path / "home", CORRAL_URL=server.url, CORRAL_TOKEN="corral_test_0123456789abcdef")
    question = ("install guest-book 0.1.0", "y")
    code, seen = await person.talk(
        "module", "install", str(archive), "--no-activate", "--wait", "0", answers=[question]
    )
    assert code == 0, seen
    assert "warning: mind the gap" in seen
    assert f"not signed, 2.0 KiB, sha256 {digest}" in seen
    posts = [request for request in server.requests if request.method == "POST"]
    assert posts[0].query == {"activate": "false", "dry_run": "true"}
    assert (posts[1].query, posts[1].body) == ({"activate": "false"}, {"sha256": digest})
    sent = [request for request in posts if isinstance(request.body, bytes)]
    assert len(sent) == (1 if kept else 2), "again only where the controller has it no more"


async def test_a_file_that_has_become_another_since_it_was_shown_is_not_installed(
    server: StandIn, archive: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The controller has the archive no more, and what lies at its path is not what the person has seen."""

    def answer(request: Request) -> Any:
        if request.query.get("dry_run"):
            return 200, EXAMINED
        return refused(404, "NOT_FOUND", "no archive with the digest …", field="sha256")

    server.answers["POST", MODULES] = answer
    person = Person(tmp_path / "home", CORRAL_URL=server.url, CORRAL_TOKEN="corral_test_0123456789abcdef")
    question = ("install guest-book 0.1.0", "y")
    code, seen = await person.talk("module", "install", str(archive), answers=[question])
    assert (code, "nothing was installed" in seen) == (1, True)
    assert len([request for request in server.requests if isinstance(request.body, bytes)]) == 1


async def test_a_no_and_a_problem_install_nothing(
    server: StandIn, archive: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    person = Person(tmp_path / "home", CORRAL_URL=server.url, CORRAL_TOKEN="corral_test_0123456789abcdef")
    server.answers["POST", MODULES] = (200, EXAMINED)
    code, _ = await person.talk(
        "module", "install", str(archive), answers=[("install guest-book 0.1.0", "n")]
    )
    assert code == 1
    problem = {"code": "CAPABILITY_CONFLICT", "message": "'a' provides it", "hint": "pause 'a'"}
    server.answers["POST", MODULES] = (200, {**EXAMINED, "ok": False, "problems": [problem]})
    code, seen = await person.talk("module", "install", str(archive), answers=[])
    assert (code, "pause 'a'" in seen) == (1, True)
    assert [request.query.get("dry_run") for request in server.requests] == ["true", "true"]


def test_an_upgrade_of_what_is_not_there_is_refused_before_anything_is_sent(
    corral: Corral, server: StandIn, archive: pathlib.Path
) -> None:
    server.answers["GET", f"{MODULES}/guest-book"] = refused(404, "NOT_FOUND", "no")
    said = corral("module", "upgrade", str(archive))
    assert (said.returncode, "is not installed" in said.stderr) == (1, True)
    assert [request.method for request in server.requests] == ["GET"]


def test_uninstalling_asks_first_and_drops_data_only_when_told(corral: Corral, server: StandIn) -> None:
    server.answers["GET", f"{MODULES}/guest-book"] = (200, MODULE)
    server.answers["DELETE", f"{MODULES}/guest-book"] = (200, MODULE)
    server.answers["DELETE", f"{MODULES}/storage/guest-book"] = (200, {})
    assert corral("module", "uninstall", "guest-book").returncode == 2
    assert not server.requests
    assert corral("module", "uninstall", "guest-book", "--drop-storage", "--yes").returncode == 0
    assert [(request.method, request.path) for request in server.requests] == [
        ("GET", f"{MODULES}/guest-book"),
        ("DELETE", f"{MODULES}/guest-book"),
        ("DELETE", f"{MODULES}/storage/guest-book"),
    ]


def test_a_module_that_stored_nothing_is_uninstalled_with_its_data_all_the_same(
    corral: Corral, server: StandIn
) -> None:
    server.answers["GET", f"{MODULES}/guest-book"] = (200, MODULE)
    server.answers["DELETE", f"{MODULES}/guest-book"] = (200, MODULE)
    server.answers["DELETE", f"{MODULES}/storage/guest-book"] = refused(404, "NOT_FOUND", "no data")
    said = corral("module", "uninstall", "guest-book", "--drop-storage", "--yes")
    assert (said.returncode, said.stdout) == (0, "'guest-book' is uninstalled\n"), said.stderr


def test_capabilities_and_what_is_missing_are_listed(corral: Corral, server: StandIn) -> None:
    provided = {"id": "stats.groups", "version": "1.0.0", "provider": "stats-aggregator", "consumers": ["a"]}
    missing = {
        "module": "b",
        "id": "x.y",
        "version_range": "^1",
        "optional": False,
        "reason": "missing provider",
    }
    server.answers["GET", "/api/v1/capabilities"] = (200, {"items": [provided], "unresolved": [missing]})
    assert "stats-aggregator" in corral("capability", "list").stdout
    assert "missing provider" in corral("capability", "list", "--unresolved").stdout


def test_a_command_of_a_module_is_run_with_its_words_as_they_are(corral: Corral, server: StandIn) -> None:
    server.answers["POST", "/api/v1/commands/execute"] = (200, {"output": ["one", "two"], "exit_code": 0})
    said = corral("command", "run", "stats", "show", "two words")
    assert said.stdout == "one\ntwo\n", said.stderr
    assert server.requests[-1].body == {"command": "stats show 'two words'"}
    corral("command", "run", "jvm-flags", "set", "lobby", "-Xojson", "--help", "-h")
    assert server.requests[-1].body == {"command": "jvm-flags set lobby -Xojson --help -h"}


def test_a_scaffold_builds_to_the_same_bytes_wherever_it_lies(corral: Corral, source: pathlib.Path) -> None:
    first = json.loads(corral("module", "build", str(source), "-o", "json").stdout)
    moved = source.rename(source.with_name("elsewhere"))
    os.utime(moved / "module.yaml", (1, 1))
    again = json.loads(corral("module", "build", str(moved), "-o", "json").stdout)
    assert first["sha256"] == again["sha256"]


@pytest.mark.parametrize("id", ["json", "class", "docs", "src", "msgspec", "vendor"])
def test_a_scaffold_can_be_built_whatever_else_has_its_name(
    corral: Corral, tmp_path: pathlib.Path, id: str
) -> None:
    made = corral("module", "new", id, "--into", str(tmp_path / "new"))
    assert made.returncode == 0, made.stderr
    built = corral("module", "build", str(tmp_path / "new"))
    assert built.returncode == 0, built.stderr
    assert f"entrypoint: {id}_module.module:" in (tmp_path / "new" / "module.yaml").read_text()


@pytest.mark.parametrize(
    ("host", "hosts"),
    [("daemon", ["daemon"]), ("both", ["controller", "daemon"]), ("controller", ["controller"])],
)
def test_a_scaffold_is_for_the_host_it_was_asked_for(
    corral: Corral, tmp_path: pathlib.Path, host: str, hosts: list[str]
) -> None:
    made = corral("module", "new", "guest-book", "--host", host, "--into", str(tmp_path / "new"))
    assert made.returncode == 0, made.stderr
    built = corral("module", "build", str(tmp_path / "new"))
    assert built.returncode == 0, built.stderr
    archive = tmp_path / "new" / "dist" / "guest-book-0.1.0.cmod"
    assert json.loads(corral("module", "doctor", str(archive), "-o", "json").stdout)["hosts"] == hosts
    for path in (tmp_path / "new").rglob("*.py"):
        compile(path.read_text(), str(path), "exec")


@pytest.mark.parametrize("id", ["", "Upper", "corral", "a b", "9", "x" * 64])
def test_a_scaffold_with_a_bad_id_writes_nothing(corral: Corral, tmp_path: pathlib.Path, id: str) -> None:
    said = corral("module", "new", id, "--into", str(tmp_path / "new"))
    assert said.returncode == 1
    assert not (tmp_path / "new").exists()


def test_a_scaffold_never_overwrites(corral: Corral, source: pathlib.Path) -> None:
    said = corral("module", "new", "other", "--into", str(source))
    assert (said.returncode, "is there already" in said.stderr) == (1, True)


def test_doctor_tells_what_an_archive_is_and_refuses_what_is_none(
    corral: Corral, archive: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    shown = corral("module", "doctor", str(archive)).stdout
    assert "guest-book 0.1.0" in shown
    assert "Storage:" in shown
    garbage = tmp_path / "garbage.cmod"
    garbage.write_bytes(b"PK\x03\x04 no")
    said = corral("module", "doctor", str(garbage))
    assert (said.returncode, said.stderr.startswith("error: ")) == (1, True)
    assert corral("module", "doctor", str(tmp_path / "none.cmod")).returncode == 2


def test_a_key_is_never_replaced(corral: Corral, archive: pathlib.Path) -> None:
    base = str(archive.parent / "author")
    assert corral("module", "sign", "--new-key", base).returncode == 0
    before = (archive.parent / "author.key").read_bytes()
    assert corral("module", "sign", "--new-key", base).returncode == 1
    assert (archive.parent / "author.key").read_bytes() == before


@pytest.mark.parametrize("name", ["", "/"])
def test_a_key_needs_a_name(corral: Corral, name: str) -> None:
    said = corral("module", "sign", "--new-key", name)
    assert (said.returncode, said.stderr.startswith("error: ")) == (2, True), said.stderr


WAITING = {**MODULE, "phase": "WAITING", "reason": "waiting_for_capability:stats.groups", "failure": None}


@pytest.mark.parametrize("verb", ["activate", "resume", "recover"])
def test_a_module_that_shall_run_and_waits_ends_with_code_1(
    corral: Corral, server: StandIn, verb: str
) -> None:
    server.answers["POST", f"{MODULES}/guest-book/{verb}"] = (200, WAITING)
    said = corral("module", verb, "guest-book")
    assert said.returncode == 1
    assert "does not run yet: it is WAITING (waiting_for_capability:stats.groups)" in said.stderr


def test_where_modules_are_switched_off_the_hint_says_how_they_run_again(
    corral: Corral, server: StandIn
) -> None:
    off = {**MODULE, "phase": "INSTALLED", "reason": "modules_disabled", "failure": None}
    server.answers["POST", f"{MODULES}/guest-book/activate"] = (200, off)
    said = corral("module", "activate", "guest-book")
    assert said.returncode == 1
    assert "start the controller without --no-modules" in said.stderr
    assert "capability list" not in said.stderr


def test_an_install_that_ends_waiting_ends_with_code_1_and_one_that_is_held_back_does_not(
    corral: Corral, server: StandIn, archive: pathlib.Path
) -> None:
    made = {"kind": "installed", "outcome": "installed", "steps": []}
    server.answers["POST", MODULES] = (200, {**WAITING, **made})
    said = corral("module", "install", str(archive))
    assert said.returncode == 1
    assert "'corral capability list --unresolved'" in said.stderr
    server.answers["POST", MODULES] = (200, {**WAITING, **made, "phase": "INSTALLED", "intent": "inactive"})
    assert corral("module", "install", str(archive), "--no-activate").returncode == 0


def test_what_a_module_registered_and_why_it_is_paused_are_shown(corral: Corral, server: StandIn) -> None:
    live = {
        "pid": 7,
        "routes": ["GET /x"],
        "commands": ["greet all"],
        "tasks": ["sweep"],
        "subscriptions": ["GROUP_CREATED"],
    }
    page = {"title": "Guests", "entry": "index.html"}
    found = {**RUNNING, "live": live, "frontend": page}
    server.answers["GET", f"{MODULES}/guest-book"] = (200, found)
    shown = corral("module", "info", "guest-book").stdout
    for name, value in (
        ("Page", "Guests"),
        ("Route", "GET /x"),
        ("Command", "greet all"),
        ("Task", "sweep"),
        ("Subscription", "GROUP_CREATED"),
    ):
        assert re.search(f"^{name}: +{value}$", shown, re.MULTILINE), shown
    paused = {
        **RUNNING,
        "phase": "INSTALLED",
        "intent": "paused",
        "reason": "paused",
        "paused_reason": "burns CPU",
    }
    server.answers["GET", MODULES] = (200, {"items": [paused], "next": None})
    assert corral("module", "list").stdout.splitlines()[1].endswith(" paused: burns CPU")


def test_what_is_missing_is_listed_with_the_nodes_that_wait(corral: Corral, server: StandIn) -> None:
    missing = {
        "module": "disk-view",
        "id": "node.disk",
        "version_range": "^1",
        "why": "missing_provider",
        "reason": "no active module provides it",
        "optional": False,
        "nodes": ["n1", "n2"],
    }
    server.answers["GET", "/api/v1/capabilities"] = (
        200,
        {"items": [], "next": None, "unresolved": [missing]},
    )
    head, line = corral("capability", "list", "--unresolved").stdout.splitlines()
    assert head.split() == ["MODULE", "NEEDS", "RANGE", "OPTIONAL", "NODES", "REASON"]
    assert line.split()[:6] == ["disk-view", "node.disk", "^1", "no", "n1,", "n2"]
