"""The first administrator: whoever has the code that a controller prints while no administrator has a password."""

from __future__ import annotations

import asyncio
import pathlib

import httpx
import pytest
from browsers import LOGIN, OTHER, PASSWORD, log_in, make_user, refused, session_client
from http_rig import Rig, http_rig

from corral.testing.failing_store import StoreFault
from corral.testing.waiting import eventually


def the_code(rig: Rig) -> str:
    code = rig.leading.logins.first_admin.new_code()
    assert code is not None
    return code


async def become(rig: Rig, code: str, name: str = "root", password: str = PASSWORD) -> httpx.Response:
    async with rig.client("") as stranger:
        body = {"first_admin_code": code, "name": name, "password": password}
        return await stranger.post(LOGIN, json=body)


async def test_the_code_makes_an_administrator_once(rig: Rig) -> None:
    code = the_code(rig)
    answer = await become(rig, code)
    async with session_client(rig, answer) as root:
        me = (await root.get("/api/v1/auth/me")).json()
        assert (me["user"], me["session"]["authenticated_by"]) == ("root", "FIRST_ADMIN")
        assert "users.manage" in me["permissions"]
    assert refused(await become(rig, code, "other", OTHER)) == "LOGIN_FAILED"
    assert (await log_in(rig, "root")).is_success
    assert rig.leading.logins.first_admin.new_code() is None, "an administrator has a password now"


async def test_the_user_of_the_first_token_gets_its_password_so(rig: Rig) -> None:
    assert (await become(rig, the_code(rig), "admin")).is_success
    assert rig.state.users.require("admin").record.password_hash


async def test_a_new_code_voids_the_one_before(rig: Rig) -> None:
    old, new = the_code(rig), the_code(rig)
    assert refused(await become(rig, old)) == "LOGIN_FAILED"
    assert (await become(rig, new)).is_success


async def test_a_refused_name_or_password_leaves_the_code_as_it_is(rig: Rig) -> None:
    await make_user(rig, "ada", password=None)
    code = the_code(rig)
    assert (await become(rig, code, "Root!")).json()["error"]["field"] == "name"
    assert (await become(rig, code, password="short")).json()["error"]["field"] == "password"
    assert refused(await become(rig, code, "ada")) == "CONFLICT"
    assert (await become(rig, code)).is_success


async def test_a_store_that_is_away_leaves_the_code_as_it_is(data: pathlib.Path) -> None:
    async with http_rig(data, patience=0.2) as rig:
        code = the_code(rig)
        rig.store.commits.fail(StoreFault.BEFORE)
        assert (await become(rig, code)).status_code == 503
        await eventually(lambda: rig.writer.healthy)
        assert (await become(rig, code)).is_success


async def test_of_two_who_have_the_code_one_becomes_the_administrator(rig: Rig) -> None:
    code = the_code(rig)
    answers = await asyncio.gather(*(become(rig, code, name) for name in ("one", "two", "three")))
    assert sorted(answer.status_code for answer in answers) == [200, 401, 401]


async def test_the_code_is_void_once_an_administrator_has_a_password_otherwise(rig: Rig) -> None:
    code = the_code(rig)
    async with rig.client() as admin:
        assert (await admin.post("/api/v1/users/admin/password", json={"password": PASSWORD})).is_success
    assert refused(await become(rig, code)) == "LOGIN_FAILED"


async def test_a_code_that_was_void_once_stays_so(rig: Rig) -> None:
    code = the_code(rig)
    await make_user(rig, "second", role="ADMIN")
    async with rig.client() as admin:
        assert (await admin.post("/api/v1/users/second/lock", json={"reason": "left"})).is_success
        assert refused(await become(rig, code)) == "LOGIN_FAILED"
        assert (await admin.delete("/api/v1/users/second")).status_code == 204
    assert refused(await become(rig, code)) == "LOGIN_FAILED"


@pytest.mark.parametrize(
    "forwarded",
    [{"X-Forwarded-For": "10.0.0.1"}, {"Forwarded": "for=10.0.0.1"}, {"X-Forwarded-Proto": "http"}],
)
async def test_neither_passwords_nor_the_code_are_taken_from_elsewhere_without_tls(
    rig: Rig, forwarded: dict[str, str]
) -> None:
    """A proxy on this host that nobody has declared may bring anybody."""
    code = the_code(rig)
    await make_user(rig)
    async with rig.client("") as stranger:
        stranger.headers.update(forwarded)
        body = {"first_admin_code": code, "name": "root", "password": PASSWORD}
        for sent in (body, {"name": "ada", "password": PASSWORD}):
            answer = await stranger.post(LOGIN, json=sent)
            assert (answer.status_code, refused(answer)) == (403, "INSECURE_LOGIN")
    assert (await become(rig, code)).is_success


async def test_a_configuration_that_allows_insecure_logins_does_not_allow_the_code(
    data: pathlib.Path,
) -> None:
    async with http_rig(data, allow_insecure_login=True) as rig:
        code = the_code(rig)
        await make_user(rig)
        async with rig.client("") as stranger:
            stranger.headers["Via"] = "1.1 proxy"
            assert (await stranger.post(LOGIN, json={"name": "ada", "password": PASSWORD})).is_success
            body = {"first_admin_code": code, "name": "root", "password": PASSWORD}
            assert refused(await stranger.post(LOGIN, json=body)) == "INSECURE_LOGIN"
