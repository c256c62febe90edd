"""`corral session` against a real controller."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import AsyncIterator

import pytest
from people import Person, administrator, logged_in, make_user

from corral.testing.cluster import CHEAP_HASHES, LocalCluster, LocalController


@pytest.fixture
async def api(scratch: pathlib.Path) -> AsyncIterator[LocalController]:
    async with LocalCluster(scratch) as cluster:
        yield await cluster.controller(hash_cost=CHEAP_HASHES)


async def ids(person: Person, *flags: str) -> set[str]:
    return {each["id"] for each in (await person.json("session", "list", *flags))["items"]}


@pytest.mark.system
async def test_somebody_sees_and_ends_the_own_sessions(api: LocalController, tmp_path: pathlib.Path) -> None:
    await make_user(api)
    ada, laptop, phone = [await logged_in(api, tmp_path / name) for name in ("ada", "laptop", "phone")]
    listed = (await ada.run("session", "list")).stdout
    assert len(re.findall(r"ses-\w+ +command line +password +127.0.0.1 ", listed)) == 3, listed
    assert listed.count("*") == 1
    (own,) = [each for each in (await ada.json("session", "list"))["items"] if each["current"]]
    (of_phone,) = [each for each in (await phone.json("session", "list"))["items"] if each["current"]]
    done = await ada.run("session", "end", of_phone["id"])
    assert (done.returncode, done.stdout) == (0, f"session '{of_phone['id']}' is ended\n")
    assert (await phone.run("whoami")).returncode == 1
    others = await ada.run("session", "end", "--others", "-o", "json")
    (ended,) = json.loads(others.stdout)["items"]
    assert (ended["own"], ended["current"]) == (True, False)
    assert (await laptop.run("whoami")).returncode == 1
    assert (await ada.run("session", "end", "--others")).stdout == "there is no other session\n"
    last = await ada.run("session", "end", own["id"])
    assert (
        last.stdout
        == f"session '{own['id']}' is ended; it was the one in use: log in again with 'corral login URL'\n"
    )
    assert (await ada.run("whoami")).returncode == 1


@pytest.mark.system
async def test_an_administrator_sees_and_ends_those_of_others(
    api: LocalController, tmp_path: pathlib.Path
) -> None:
    for name in ("ada", "bob"):
        await make_user(api, name)
    ada, bob = await logged_in(api, tmp_path / "ada"), await logged_in(api, tmp_path / "bob", "bob")
    admin = administrator(api, tmp_path / "admin")
    assert await ids(admin) == set(), "a token is no session"
    assert await ids(admin, "--all") == await ids(ada) | await ids(bob)
    assert await ids(admin, "--user", "bob") == await ids(bob)
    nobody = await admin.run("session", "list", "--user", "nosuch")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert nobody.stderr.startswith("error: user 'nosuch' does not exist"), nobody.stderr
    assert re.search(r"ses-\w+ +bob +command line ", (await admin.run("session", "list", "--all")).stdout)
    (of_bob,) = await ids(bob)
    refused = await ada.run("session", "end", of_bob)
    assert refused.returncode == 1
    assert f"'{of_bob}' is not one of yours" in refused.stderr
    assert (await bob.run("whoami")).returncode == 0
    (of_ada,) = await ids(ada)
    done = await admin.run("session", "end", of_bob, of_ada, "-o", "name")
    assert done.stdout.split() == [of_bob, of_ada]
    assert (await bob.run("whoami")).returncode == 1
    missing = await admin.run("session", "end", of_bob)
    assert (missing.returncode, "does not exist" in missing.stderr) == (1, True)


@pytest.mark.parametrize(
    "arguments", [("end",), ("end", "ses-1", "--others"), ("list", "--all", "--user", "ada")]
)
async def test_what_is_meant_has_to_be_said(tmp_path: pathlib.Path, arguments: tuple[str, ...]) -> None:
    person = Person(tmp_path / "ada", CORRAL_URL="http://127.0.0.1:1")
    assert (await person.run("session", *arguments)).returncode == 2
