"""`corral user create --role ADMIN --data DIR`: an administrator made beside a controller that does not run."""

from __future__ import annotations

import getpass
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from people import OTHER, PASSWORD, Person, logged_in, make_user

from corral.controller.state.collections import USERS
from corral.testing.cluster import LocalCluster, LocalController


@pytest.fixture
async def cluster(scratch: pathlib.Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(scratch) as made:
        yield made


@pytest.fixture
def root(tmp_path: pathlib.Path) -> Person:
    return Person(tmp_path / "root")


def order(api: LocalController, name: str, *more: str) -> tuple[str, ...]:
    return ("user", "create", name, "--role", "ADMIN", "--data", str(api.data), *more)


async def log_in(api: LocalController, person: Person, name: str, password: str) -> int:
    file = person.file("shown", password)
    return (await person.run("login", api.url, "--user", name, "--password-file", file)).returncode


@pytest.mark.system
async def test_an_administrator_is_made_without_the_api_and_audited(
    cluster: LocalCluster, root: Person
) -> None:
    api = await cluster.controller()
    refused, seen = await root.talk(*order(api, "ada"), answers=[])
    assert (refused, "is in use by another controller" in seen) == (1, True), "nobody is asked in vain"
    await api.app.stop()
    code, seen = await root.talk(
        *order(api, "ada"),
        answers=[
            ("New password: ", "short"),
            ("The same again: ", "short"),
            ("New password: ", PASSWORD),
            ("The same again: ", PASSWORD),
        ],
    )
    assert code == 0, seen
    assert "at least 12 are needed" in seen
    assert "administrator 'ada' is made\n" in seen
    assert "start the controller, then: corral login URL --user ada" in seen
    assert PASSWORD not in seen

    again = await cluster.controller()
    assert await log_in(again, root, "ada", PASSWORD) == 0
    assert "users.manage" in (await root.json("whoami"))["permissions"]
    entries = (await again.call("GET", "/api/v1/audit?action=users.create"))["items"]
    assert [(each["actor"], each["subject"]) for each in entries] == [(f"host:{getpass.getuser()}", "ada")]
    assert again.app.role.term is not None
    assert again.app.role.term.services.http.logins.first_admin.new_code() is None
    verified = await root.run("audit", "verify")
    assert verified.returncode == 0, verified.stderr


@pytest.mark.system
async def test_a_user_who_is_there_gets_a_password_and_everything_back(
    cluster: LocalCluster, root: Person, tmp_path: pathlib.Path
) -> None:
    api = await cluster.controller()
    scope = {"groups": ["lobby*"]}
    await make_user(api, bindings=[{"role": "ADMIN", "scope": scope}])
    await logged_in(api, tmp_path / "ada")
    await make_user(api, "bob")
    await logged_in(api, tmp_path / "bob", "bob")
    await api.call("POST", "/api/v1/users/bob/lock", {"reason": "left"})
    await api.app.stop()
    file = root.file("password", OTHER)
    for name in ("ada", "bob"):
        done = await root.run(*order(api, name, "--password-file", file, "-o", "json"))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"name": name, "created": False, "has_totp": False}
    again = await cluster.controller()
    for name in ("ada", "bob"):
        shown = await again.call("GET", f"/api/v1/users/{name}")
        assert (shown["locked"], shown["sessions"], shown["must_change_password"]) == (None, 0, False)
        assert shown["bindings"][0]["role"] == "ADMIN"
        assert await log_in(again, root, name, PASSWORD) == 1
        assert await log_in(again, root, name, OTHER) == 0
    assert (await again.call("GET", "/api/v1/users/ada"))["bindings"][1]["scope"]["groups"] == ["lobby*"]
    events = (await again.call("GET", "/api/v1/events?types=USER_UNLOCKED"))["items"]
    assert [each["subject"] for each in events] == ["bob"]
    entries = (await again.call("GET", "/api/v1/audit?action=users.restore"))["items"]
    assert {each["subject"]: each["before"]["locked"] for each in entries} == {"ada": False, "bob": "left"}


async def test_a_user_of_a_provider_gets_no_password(cluster: LocalCluster, root: Person) -> None:
    api = await cluster.controller()
    await make_user(api, password=None)
    await vouched_for(api, "ada")
    await api.app.stop()
    done = await root.run(*order(api, "ada", "--password-file", root.file("password", OTHER)))
    assert done.returncode == 1
    assert "error: user 'ada' logs in with https://id.example and has no password here" in done.stderr


async def vouched_for(api: LocalController, name: str) -> None:
    """A login with OpenID Connect would store it so."""
    assert api.app.role.term is not None
    stored = api.app.role.term.state.users.require(name)
    record = msgspec.structs.replace(stored.record, provider="https://id.example")
    await api.app.role.term.ledger.commit(USERS.put(name, record, expect=stored.revision))


async def test_nothing_but_an_administrator_is_made_without_the_api(
    root: Person, tmp_path: pathlib.Path
) -> None:
    for more in [
        (),
        ("--role", "ADMIN", "--group", "x"),
        ("--role", "VIEWER"),
        ("--role", "ADMIN", "--no-change"),
    ]:
        done = await root.run("user", "create", "ada", "--data", str(tmp_path), *more)
        assert done.returncode == 2, more
        assert "without the API only administrators are made" in done.stderr, more


async def test_a_directory_without_a_cluster_is_named_with_the_one_of_up(
    root: Person, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "up" / "controller").mkdir(parents=True)
    given: Any = ("user", "create", "ada", "--role", "ADMIN", "--data", str(tmp_path / "up"))
    done = await root.run(*given, "--password-file", root.file("password", PASSWORD))
    assert done.returncode == 1
    assert f"there is no cluster in {tmp_path}/up" in done.stderr
    assert f"'corral up' keeps it in {tmp_path}/up/controller" in done.stderr
    assert not (tmp_path / "up" / "corral.db").exists()
