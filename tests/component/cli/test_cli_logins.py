"""`corral login` by password, against a real controller, on a terminal and without one."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator

import pytest
from people import OTHER, PASSWORD, Person, administrator, logged_in, make_user
from stand_in_controller import StandIn, refused

from corral.testing.cluster import CHEAP_HASHES, LocalCluster, LocalController


@pytest.fixture
async def api(scratch: pathlib.Path) -> AsyncIterator[LocalController]:
    async with LocalCluster(scratch) as cluster:
        yield await cluster.controller(hash_cost=CHEAP_HASHES)


async def test_somebody_at_a_terminal_is_asked_for_name_and_password_and_remembered(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    ada = Person(tmp_path / "ada")
    code, seen = await ada.talk("login", api.url, answers=[("User name: ", "ada"), ("Password: ", PASSWORD)])
    assert code == 0, seen
    assert f"logged in to {api.url} as 'ada', until " in seen
    assert PASSWORD not in seen
    assert ada.contexts.stat().st_mode & 0o777 == 0o600
    assert ada.token.startswith("corral_ses-")
    (session,) = (await api.call("GET", "/api/v1/sessions"))["items"]
    assert (session["user"], session["kind"]) == ("ada", "COMMAND_LINE")
    assert session["agent"].startswith("corral-cli/")
    assert (await ada.run("group", "list")).returncode == 0
    assert (await ada.run("context", "list")).stdout.splitlines()[1].endswith("of a session")


@pytest.mark.parametrize("source", ["file", "standard input"])
async def test_a_script_has_its_password_in_a_file_or_on_standard_input(
    api: LocalController, tmp_path: pathlib.Path, source: str
) -> None:
    await make_user(api)
    ada = Person(tmp_path / "ada")
    given = ada.file("password", f"{PASSWORD}\n") if source == "file" else "-"
    done = await ada.run(
        "login", api.url, "--user", "ada", "--password-file", given, "-o", "json", input=f"{PASSWORD}\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["as"], told["session"][:4], told["recovery_codes_left"]) == ("ada", "ses-", None)
    assert ada.token not in done.stdout


async def test_somebody_who_mistypes_the_password_is_asked_again_and_after_three_not_any_more(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    ada = Person(tmp_path / "ada")
    wrong = ("Password: ", "not this one, not at all")
    code, seen = await ada.talk(
        "login", api.url, "--user", "ada", answers=[wrong, wrong, ("Password: ", PASSWORD)]
    )
    assert code == 0, seen
    assert seen.count("error: name or password is wrong") == 2
    code, seen = await ada.talk("login", api.url, "--user", "ada", answers=[wrong, wrong, wrong])
    assert (code, seen.count("Password: ")) == (1, 3)
    assert "ask an administrator for a new password" in seen
    code, seen = await ada.talk("login", api.url, "--user", "ada", answers=[wrong, wrong])
    assert code == 1
    assert "name, password or code is wrong; the next attempt is possible in 30 s" in seen


async def test_a_password_that_has_to_be_changed_is_changed_at_the_login(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api, must_change_password=True)
    ada = Person(tmp_path / "ada")
    code, seen = await ada.talk(
        "login",
        api.url,
        "--user",
        "ada",
        answers=[
            ("Password: ", PASSWORD),
            ("New password: ", "short"),
            ("The same again: ", "short"),
            ("New password: ", OTHER),
            ("The same again: ", "another one"),
            ("New password: ", OTHER),
            ("The same again: ", OTHER),
        ],
    )
    assert code == 0, seen
    assert "an administrator gave this password, and it has to be changed" in seen
    assert "the password has 5 characters, and at least 12 are needed" in seen
    assert "these were two different passwords" in seen
    assert (await ada.run("whoami")).returncode == 0
    script = Person(tmp_path / "script")
    for text, told in ((PASSWORD, "name, password or code is wrong"), (OTHER, "")):
        file = script.file("password", text)
        done = await script.run("login", api.url, "--user", "ada", "--password-file", file)
        assert told in done.stderr


async def test_a_script_cannot_change_the_password_and_is_told(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api, must_change_password=True)
    ada = Person(tmp_path / "ada")
    file = ada.file("password", PASSWORD)
    done = await ada.run("login", api.url, "--user", "ada", "--password-file", file)
    assert done.returncode == 2
    assert "it has to be changed" in done.stderr
    assert not ada.contexts.exists()


async def test_failures_are_told_with_the_wait_that_follows(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    ada = Person(tmp_path / "ada")
    wrong, right = ada.file("wrong", "not this one, not at all"), ada.file("right", PASSWORD)
    given = ("login", api.url, "--user", "ada", "--password-file")
    first = await ada.run(*given, wrong)
    assert first.returncode == 1
    assert first.stderr.startswith("error: name, password or code is wrong\nhint: try again")
    for _ in range(3):
        await ada.run(*given, wrong)
    fifth = await ada.run(*given, wrong)
    assert "the next attempt is possible in 30 s" in fifth.stderr
    delayed = await ada.run(*given, right)
    assert delayed.returncode == 1
    assert "too many logins with this name or from this address have failed" in delayed.stderr
    assert "hint: the next attempt is possible in " in delayed.stderr
    assert not ada.contexts.exists()
    admin = administrator(api, tmp_path / "admin")
    assert (await admin.run("user", "lock", "ada", "--reason", "left")).returncode == 0
    await api.call("POST", "/api/v1/users/ada/reset-delay")
    locked = await ada.run(*given, right)
    assert (locked.returncode, "error: user 'ada' is locked" in locked.stderr) == (1, True)


async def test_another_login_in_the_same_place_ends_the_session_before(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    ada = await logged_in(api, tmp_path / "ada")
    first = ada.token
    await logged_in(api, tmp_path / "ada")
    assert ada.token != first
    assert len((await api.call("GET", "/api/v1/sessions"))["items"]) == 1
    assert (await ada.run("whoami")).returncode == 0


async def test_what_others_remembered_during_a_login_stays(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    ada = Person(tmp_path / "ada")

    def meanwhile(screen: str) -> str:
        asyncio.run(ada.run("context", "add", "other", "http://other:1"))
        return PASSWORD

    code, seen = await ada.talk("login", api.url, "--user", "ada", answers=[("Password: ", meanwhile)])
    assert code == 0, seen
    assert "other" in (await ada.run("context", "list", "-o", "name")).stdout.split()


async def test_a_session_that_cannot_be_remembered_is_not_left_behind(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    ada = Person(tmp_path / "ada")
    ada.contexts.parent.mkdir(parents=True)
    given = ("login", api.url, "--user", "ada", "--password-file", ada.file("password", PASSWORD))
    ada.contexts.write_text("{")
    assert (await ada.run(*given)).returncode == 1
    assert (await api.call("GET", "/api/v1/audit?action=auth.login"))["items"] == [], "the file is read first"
    nowhere = Person(tmp_path / "ada", XDG_CONFIG_HOME="/proc")
    done = await nowhere.run(*given)
    assert (done.returncode, "cannot write /proc/corral/contexts.json" in done.stderr) == (1, True)
    assert len((await api.call("GET", "/api/v1/audit?action=auth.login"))["items"]) == 1
    assert (await api.call("GET", "/api/v1/sessions"))["items"] == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--user", "ada", "--token-file", "-"), "--user means nothing beside a token"),
        (("--user", "ada"), "Password is missing, and there is no terminal to ask on"),
        ((), "neither a token nor a user was given"),
        (("--password-file", "-"), "neither a token nor a user was given"),
        (("--user", "ada", "--password-file", "/nowhere"), "cannot read '/nowhere'"),
        (("--user", "ada", "--password-file", "/dev/null"), "there is no password in '/dev/null'"),
        (("--first-admin", "-", "--password-file", "-", "--user", "a"), "cannot hold both code and password"),
        (("--first-admin", "http://x"), "there is no code of the first administrator in this"),
    ],
)
async def test_a_login_that_lacks_something_is_wrong_usage(
    server: StandIn, tmp_path: pathlib.Path, given: tuple[str, ...], told: str
) -> None:
    done = await Person(tmp_path / "ada").run("login", server.url, *given, input="x")
    assert (done.returncode, server.requests) == (2, [])
    assert told in done.stderr


async def test_a_file_with_more_than_a_password_is_refused(server: StandIn, tmp_path: pathlib.Path) -> None:
    ada = Person(tmp_path / "ada")
    file = ada.file("password", "one\ntwo\n")
    done = await ada.run("login", server.url, "--user", "ada", "--password-file", file)
    assert (done.returncode, server.requests) == (2, [])
    assert "there is more than one line in" in done.stderr


async def test_no_password_is_sent_where_the_controller_refuses_to_take_it(
    server: StandIn, tmp_path: pathlib.Path
) -> None:
    """As for a host elsewhere over plain HTTP; a name that is not one of loopback stands for it."""
    told = "nobody can log in over plain HTTP from another host"
    server.answers["POST", "/api/v1/auth/login"] = refused(403, "INSECURE_LOGIN", told)
    ada = Person(tmp_path / "ada")
    elsewhere = server.url.replace("127.0.0.1", "0.0.0.0")
    file = ada.file("password", PASSWORD)
    done = await ada.run("login", elsewhere, "--user", "ada", "--password-file", file)
    assert (done.returncode, f"error: {told}" in done.stderr) == (1, True)
    assert [request.body for request in server.requests] == [{"kind": "COMMAND_LINE"}]


async def test_a_token_is_asked_for_without_showing_it(api: LocalController, tmp_path: pathlib.Path) -> None:
    ada = Person(tmp_path / "ada")
    given = ("login", api.url, "--token-file", "-")
    code, seen = await ada.talk(*given, answers=[("API token: ", api.admin_token)])
    assert code == 0, seen
    assert "as 'first-admin' (ADMIN)" in seen
    assert api.admin_token not in seen
    assert ada.token == api.admin_token


def printed_code(api: LocalController) -> str:
    """The code of a line that a controller prints; each voids the one before."""
    assert api.app.role.term is not None
    code = api.app.role.term.services.http.logins.first_admin.new_code()
    assert code is not None
    return code


async def test_the_first_administrator_is_asked_for_what_the_controller_printed(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    code = printed_code(api)
    root = Person(tmp_path / "root")
    ended, seen = await root.talk(
        "login",
        "--first-admin",
        answers=[
            ("Address that the controller printed: ", f"first-admin: {api.url}/first-admin#{code}"),
            ("User name of the administrator [admin]: ", "No Name"),
            ("New password: ", "too short"),
            ("The same again: ", "too short"),
            ("User name of the administrator [admin]: ", ""),
            ("New password: ", PASSWORD),
            ("The same again: ", PASSWORD),
        ],
    )
    assert ended == 0, seen
    assert "is not a valid user name" in seen
    assert f"logged in to {api.url} as 'admin'" in seen
    me = await root.json("whoami")
    assert (me["user"], me["session"]["authenticated_by"]) == ("admin", "FIRST_ADMIN")
    assert "users.manage" in me["permissions"]
    script = Person(tmp_path / "script")
    file = script.file("password", PASSWORD)
    given = ("login", api.url, "--first-admin", "-", "--user", "eve", "--password-file", file)
    again = await script.run(*given, input=code)
    assert again.returncode == 1
    assert "error: the code is unknown, used or expired" in again.stderr
    assert (await script.run("login", api.url, "--user", "admin", "--password-file", file)).returncode == 0


@pytest.mark.parametrize("form", ["address", "code"])
async def test_a_code_on_a_command_line_is_taken_with_a_warning(
    api: LocalController, tmp_path: pathlib.Path, form: str
) -> None:
    code = printed_code(api)
    root = Person(tmp_path / "root")
    file = root.file("password", PASSWORD)
    where = (
        ("--first-admin", f"{api.url}/first-admin#{code}")
        if form == "address"
        else (api.url, "--first-admin", code)
    )
    done = await root.run("login", *where, "--user", "ada", "--password-file", file)
    assert done.returncode == 0, done.stderr
    assert "others on this host can see a code on a command line" in done.stderr


async def test_a_logout_ends_the_session_at_the_controller(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    await make_user(api)
    ada = await logged_in(api, tmp_path / "ada")
    text = ada.token
    done = await ada.run("logout")
    assert (done.returncode, done.stdout) == (0, f"forgot 'here' ({api.url}); the session is ended\n")
    assert text not in ada.contexts.read_text()
    assert (await api.call("GET", "/api/v1/sessions"))["items"] == []
    again = await logged_in(api, tmp_path / "ada")
    (session,) = (await api.call("GET", "/api/v1/sessions"))["items"]
    await api.call("DELETE", f"/api/v1/sessions/{session['id']}")
    assert (await again.run("logout")).returncode == 0, "it has ended already"


@pytest.mark.parametrize(
    ("flags", "answer", "code"), [((), "y", 0), ((), "n", 1), ((), None, 3), (("--force",), None, 0)]
)
async def test_a_session_that_cannot_be_ended_is_forgotten_on_request_alone(
    api: LocalController, tmp_path: pathlib.Path, flags: tuple[str, ...], answer: str | None, code: int
) -> None:
    await make_user(api)
    ada = await logged_in(api, tmp_path / "ada")
    await api.app.stop()
    if answer is not None:
        ended, told = await ada.talk(
            "logout", *flags, answers=[("forget it here all the same [y/N]: ", answer)]
        )
    else:
        done = await ada.run("logout", *flags)
        ended, told = done.returncode, done.stderr
    assert (ended, "cannot reach" in told) == (code, True), told
    assert ("corral_ses-" in ada.contexts.read_text()) is (code != 0)


async def test_whoami_tells_by_which_login_or_token(api: LocalController, tmp_path: pathlib.Path) -> None:
    await make_user(api, display_name="Ada L.")
    ada = await logged_in(api, tmp_path / "ada")
    shown = (await ada.run("whoami")).stdout
    for text in ("Ada L.", "by password, from 127.0.0.1", "sooner if unused", "Second factor:   no"):
        assert text in shown
    assert "Role:" not in shown
    script = await administrator(api, tmp_path / "admin").run("whoami")
    for text in ("first-admin (tok-", "ADMIN", "never", "May, everywhere:"):
        assert text in script.stdout
