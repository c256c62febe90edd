"""Contexts: whom the command line talks to, and how it keeps the tokens."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable

import pytest
from stand_in_controller import StandIn, refused

Corral = Callable[..., subprocess.CompletedProcess[str]]
ALONE = {"CORRAL_URL": None, "CORRAL_TOKEN": None}


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "home" / ".config" / "corral" / "contexts.json"


@pytest.fixture
def me(server: StandIn) -> None:
    server.answers["GET", "/api/v1/auth/me"] = (
        200,
        {"token": {"id": "tok-1", "name": "ada", "role": "ADMIN"}, "permissions": []},
    )


def test_login_checks_the_token_and_remembers_both(
    corral: Corral, server: StandIn, file: pathlib.Path, me: None
) -> None:
    done = corral("login", server.url, "--token", "corral_abc", "--name", "here", **ALONE)
    assert (done.returncode, done.stdout) == (0, f"logged in to {server.url} as 'ada' (ADMIN)\n")
    assert file.stat().st_mode & 0o777 == 0o600
    kept = json.loads(file.read_text())
    assert (kept["format"], kept["version"], kept["current"]) == ("corral-contexts", 1, "here")
    assert corral("node", "list", "-o", "name", **ALONE).stdout == "web-1\n"
    assert server.requests[-1].headers["Authorization"] == "Bearer corral_abc"


def test_a_token_that_is_refused_is_not_remembered(
    corral: Corral, server: StandIn, file: pathlib.Path
) -> None:
    server.answers["GET", "/api/v1/auth/me"] = refused(401, "UNAUTHENTICATED", "the token is not valid")
    done = corral("login", server.url, "--token", "corral_abc", **ALONE)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "error: the token is not valid")
    assert not file.exists()


def test_login_takes_the_token_from_the_environment_and_asks_nobody_without_a_terminal(
    corral: Corral, server: StandIn, me: None
) -> None:
    assert corral("login", server.url, CORRAL_URL=None, CORRAL_TOKEN="corral_env").returncode == 0
    assert server.requests[0].headers["Authorization"] == "Bearer corral_env"
    assert corral("login", server.url, **ALONE).returncode == 2


@pytest.mark.parametrize("kind", ["file", "standard input"])
def test_a_token_is_read_from_a_file_or_standard_input_and_is_on_no_command_line(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path, me: None, kind: str
) -> None:
    source = tmp_path / "token"
    source.write_text("corral_filed\n")
    given = str(source) if kind == "file" else "-"
    done = corral("login", server.url, "--token-file", given, input="corral_filed\n", **ALONE)
    assert (done.returncode, done.stderr) == (0, "")
    assert corral("node", "list", "--url", server.url, "--token-file", str(source), **ALONE).returncode == 0
    assert corral("--url", server.url, "--token-file", str(source), "node", "list", **ALONE).returncode == 0
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer corral_filed"}


def test_a_token_on_a_command_line_is_taken_with_a_word_of_warning(
    corral: Corral, server: StandIn, me: None
) -> None:
    done = corral("login", server.url, "--token", "corral_abc", **ALONE)
    assert (done.returncode, "use --token-file" in done.stderr) == (0, True)


@pytest.mark.parametrize("content", [None, "", "\n"], ids=["missing", "empty", "blank"])
def test_a_file_without_a_token_is_wrong_usage(
    corral: Corral, server: StandIn, tmp_path: pathlib.Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    done = corral("login", server.url, "--token-file", str(tmp_path / "token"), **ALONE)
    assert (done.returncode, server.requests) == (2, [])


def test_logout_forgets_the_one_in_use(corral: Corral, server: StandIn, file: pathlib.Path, me: None) -> None:
    corral("login", server.url, "--token", "corral_abc", **ALONE)
    assert corral("logout", **ALONE).returncode == 0
    assert "corral_abc" not in file.read_text()
    assert corral("node", "list", **ALONE).returncode == 2
    assert corral("logout", **ALONE).returncode == 2


def test_contexts_are_added_used_shown_and_removed_without_ever_printing_a_token(
    corral: Corral, file: pathlib.Path
) -> None:
    corral("context", "add", "one", "http://one:1", "--token", "corral_hush")
    corral("context", "add", "two", "https://two/base/", "--token", "corral_hush")
    listed = corral("context", "list")
    assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [
        ["*", "one"],
        ["two", "https://two/base"],
    ]
    assert corral("context", "use", "two").returncode == 0
    assert json.loads(corral("context", "show", "-o", "json").stdout)["name"] == "two"
    assert corral("context", "list", "-o", "name").stdout == "one\ntwo\n"
    assert "corral_hush" not in listed.stdout + corral("context", "show", "one").stdout
    assert corral("context", "remove", "two").returncode == 0
    assert json.loads(file.read_text())["current"] == ""
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_unknown_context_names_the_nearest_one(corral: Corral) -> None:
    corral("context", "add", "production", "http://p:1")
    done = corral("context", "use", "prodution")
    assert done.returncode == 2
    assert "did you mean 'production'?" in done.stderr


def test_the_token_of_a_context_never_goes_to_another_address(corral: Corral, server: StandIn) -> None:
    corral("context", "add", "one", "http://127.0.0.1:1", "--token", "corral_hush")
    corral("node", "list", "--url", server.url, **ALONE)
    assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize("named", ["environment", "option"])
def test_an_address_without_a_token_is_used_with_the_login_that_is_remembered_for_it(
    corral: Corral, server: StandIn, named: str
) -> None:
    port = server.url.rpartition(":")[2]
    corral("context", "add", "other", "http://127.0.0.1:1", "--token", "corral_other", **ALONE)
    corral("context", "add", "here", f"HTTP://127.0.0.1:{port}/", "--token", "corral_here", **ALONE)
    option = ("--url", server.url) if named == "option" else ()
    env = {**ALONE, "CORRAL_URL": server.url} if named == "environment" else ALONE
    assert corral("node", "list", *option, **env).returncode == 0
    corral("context", "add", "too", server.url, "--token", "corral_too", **ALONE)
    server.answers["GET", "/api/v1/nodes"] = refused(401, "UNAUTHENTICATED", "no token")
    assert "'here', 'too'; choose one with --context" in corral("node", "list", *option, **env).stderr
    corral("context", "use", "too", **ALONE)
    corral("node", "list", *option, **env)
    sent = [request.headers.get("Authorization") for request in server.requests]
    assert sent == ["Bearer corral_here", None, "Bearer corral_too"]


@pytest.mark.parametrize("named", ["CORRAL_URL", "--url"])
def test_a_refusal_at_another_address_says_whose_login_is_remembered(
    corral: Corral, server: StandIn, named: str
) -> None:
    corral("context", "add", "one", "http://127.0.0.1:1", "--token", "corral_hush")
    server.answers["GET", "/api/v1/nodes"] = refused(401, "UNAUTHENTICATED", "no token")
    option = ("--url", server.url) if named == "--url" else ()
    done = corral("node", "list", *option, CORRAL_TOKEN=None)
    assert done.returncode == 1
    hint = f"hint: {named} is {server.url}, and the remembered login 'one' is for http://127.0.0.1:1; "
    assert hint in done.stderr


def test_a_named_context_beats_an_address_in_the_environment(corral: Corral, server: StandIn) -> None:
    corral("context", "add", "here", server.url, "--token", "corral_hush")
    env = {"CORRAL_URL": "http://127.0.0.1:1", "CORRAL_TOKEN": None}
    assert corral("--context", "here", "node", "list", **env).returncode == 0
    assert corral("node", "list", CORRAL_URL=None, CORRAL_TOKEN=None, CORRAL_CONTEXT="here").returncode == 0


def test_a_newer_file_is_refused_and_left_alone(corral: Corral, file: pathlib.Path) -> None:
    file.parent.mkdir(parents=True)
    content = json.dumps({"format": "corral-contexts", "version": 2, "future": True})
    file.write_text(content)
    done = corral("context", "add", "one", "http://one:1")
    assert done.returncode == 1
    assert "format version 2, this Corral reads up to 1" in done.stderr
    assert file.read_text() == content


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format":"corral-contexts","version":1,"contexts":[1]}', "\x00"]
)
def test_a_damaged_file_is_refused_without_a_traceback(
    corral: Corral, file: pathlib.Path, content: str
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(content)
    done = corral("context", "list")
    assert done.returncode == 1
    assert "is not a 'corral-contexts' file" in done.stderr


def test_the_file_lies_where_the_desktop_standard_says(corral: Corral, tmp_path: pathlib.Path) -> None:
    corral("context", "add", "one", "http://one:1", XDG_CONFIG_HOME=str(tmp_path / "xdg"))
    assert (tmp_path / "xdg" / "corral" / "contexts.json").exists()
