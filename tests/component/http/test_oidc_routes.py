"""Logins with OpenID Connect over the API: to the provider, back, and into a session."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import urllib.parse
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from browsers import LOGIN, make_user, refused, session_client
from http_rig import Rig, http_rig
from sse_client import following
from structlog.testing import capture_logs

from corral.testing.cluster import LocalCluster
from tests.component.accounts.oidc_logins import section_for
from tests.component.accounts.scripted_provider import ScriptedProvider

START = "/api/v1/auth/oidc/start"
CALLBACK = "/api/v1/auth/oidc/callback"
SECRET = "a secret of the page, in its own storage"
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(SECRET.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    async with ScriptedProvider() as made:
        yield made


@pytest.fixture
async def rig(data: pathlib.Path, provider: ScriptedProvider, tmp_path: pathlib.Path) -> AsyncIterator[Rig]:
    section = section_for(provider.issuer, tmp_path, display_name="Desk")
    async with http_rig(data, oidc=section) as made:
        yield made


async def go_and_return(
    rig: Rig, provider: ScriptedProvider, *, challenge: str = CHALLENGE, **query: str
) -> httpx.Response:
    """A browser's way to the provider and back: the answer of the callback."""
    async with rig.client("") as browser:
        started = await browser.get(START, params={"return_to": "/groups", "challenge": challenge})
        assert started.status_code == 303, started.text
        back = {**provider.authorize(started.headers["location"]), **query}
        cookie = started.headers["set-cookie"].partition(";")[0]
        return await browser.get(CALLBACK, params=back, headers={"Cookie": cookie})


def fragment(answer: httpx.Response) -> str:
    assert answer.status_code == 303, answer.text
    path, _, rest = answer.headers["location"].partition("#")
    assert path == "/login"
    return rest


def error_of(answer: httpx.Response) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(fragment(answer)))


async def exchange(rig: Rig, code: str, **more: Any) -> httpx.Response:
    async with rig.client("") as page:
        return await page.post(LOGIN, json={"code": code, "page_secret": SECRET, **more})


async def test_a_person_of_the_provider_gets_a_session_with_the_roles_of_its_groups(
    rig: Rig, provider: ScriptedProvider
) -> None:
    back = await go_and_return(rig, provider)
    assert "Max-Age=0" in back.headers["set-cookie"]
    answer = await exchange(rig, fragment(back))
    assert (answer.status_code, answer.json()["return_path"]) == (200, "/groups")
    async with session_client(rig, answer) as person, rig.client() as admin:
        me = (await person.get("/api/v1/auth/me")).json()
        assert me["session"]["authenticated_by"] == "OIDC"
        assert me["grants"][0]["scopes"] == [{"groups": ["lobby-*"], "nodes": None}]
        shown = (await admin.get(f"/api/v1/users/{me['user']}")).json()
        assert (shown["provider"], shown["has_password"], shown["bindings"]) == (provider.issuer, False, [])
        assert shown["provider_bindings"][0]["role"] == "OPERATOR"
        ordered = await admin.post(f"/api/v1/users/{me['user']}/password", json={"password": "x" * 20})
        assert refused(ordered) == "CONFLICT"
        own = await person.post("/api/v1/auth/totp", json={"password": "x"})
        assert refused(own) == "CONFLICT"


async def test_a_role_that_is_not_there_is_told_at_the_login_that_would_bring_it(
    data: pathlib.Path, provider: ScriptedProvider, tmp_path: pathlib.Path
) -> None:
    section = section_for(
        provider.issuer, tmp_path, bindings={"ops": "lobby-opps; VIEWER", "others": "deployer"}
    )
    async with http_rig(data, oidc=section) as rig, rig.client() as admin:
        role = {"name": "lobby-ops", "permissions": ["groups.read"]}
        assert (await admin.post("/api/v1/roles", json=role)).status_code == 201
        (note,) = (await admin.get("/ready")).json()["notes"]
        assert note.startswith("oidc.bindings gives 2 roles that cannot be found")
        assert (await admin.get("/api/v1/cluster")).json()["notes"] == [note]
        with capture_logs() as logs:
            answer = await exchange(rig, fragment(await go_and_return(rig, provider)))
        assert answer.is_success
        (warning,) = [each for each in logs if each["event"] == "oidc_binding.skipped"]
        assert (warning["role"], warning["user"]) == ("lobby-opps", answer.json()["user"])
        assert "is lobby-ops meant?" in warning["reason"]
        for name in ("deployer", "lobby-opps"):
            assert (await admin.post("/api/v1/roles", json={**role, "name": name})).status_code == 201
        assert (await admin.get("/ready")).json()["notes"] == []


async def test_roles_that_are_not_there_are_logged_at_the_start(scratch: pathlib.Path) -> None:
    oidc = {
        "oidc__issuer": "https://id.example.org",
        "oidc__client_id": "corral",
        "oidc__bindings": {"ops": "deployer"},
        "http__public_url": "http://127.0.0.1:8480",
    }
    with capture_logs() as logs:
        async with LocalCluster(scratch) as cluster:
            await cluster.controller(**oidc)
    (warning,) = [each for each in logs if each["event"] == "oidc_binding.skipped"]
    assert (warning["role"], warning["log_level"]) == ("deployer", "warning")


async def test_a_code_is_of_one_use_and_of_the_page_that_began(rig: Rig, provider: ScriptedProvider) -> None:
    code = fragment(await go_and_return(rig, provider))
    assert refused(await exchange(rig, code, page_secret="of another page")) == "LOGIN_FAILED"
    assert refused(await exchange(rig, code)) == "LOGIN_FAILED", "it was shown to somebody"
    code = fragment(await go_and_return(rig, provider))
    assert (await exchange(rig, code)).is_success
    assert refused(await exchange(rig, code)) == "LOGIN_FAILED"
    assert refused(await exchange(rig, "x" * 52)) == "LOGIN_FAILED"


async def test_a_page_does_not_finish_a_login_that_was_begun_without_its_challenge(
    rig: Rig, provider: ScriptedProvider
) -> None:
    """Somebody else's own login, planted by a link: the page would be logged in as that person."""
    planted = fragment(await go_and_return(rig, provider, challenge=""))
    assert refused(await exchange(rig, planted)) == "LOGIN_FAILED"
    own = fragment(await go_and_return(rig, provider, challenge=""))
    assert (await exchange(rig, own, page_secret=None)).is_success


async def test_a_command_line_can_exchange_a_code(rig: Rig, provider: ScriptedProvider) -> None:
    answer = await exchange(rig, fragment(await go_and_return(rig, provider)), kind="COMMAND_LINE")
    async with rig.client(answer.json()["token"]) as line:
        assert (await line.get("/api/v1/auth/me")).json()["session"]["kind"] == "COMMAND_LINE"


async def test_what_is_wrong_is_shown_on_the_login_page(rig: Rig, provider: ScriptedProvider) -> None:
    forged = error_of(await go_and_return(rig, provider, state="forged"))
    assert forged["error"] == "OIDC_FAILED"
    denied = error_of(await go_and_return(rig, provider, error="access_denied"))
    assert "did not let you in" in denied["message"]
    async with rig.client("") as browser:
        bare = error_of(await browser.get(CALLBACK, params={"state": "x", "code": "y", "authuser": "0"}))
        assert "no cookie" in bare["message"]
        odd = await browser.get(START, params={"challenge": "nonsense"})
        assert error_of(odd)["error"] == "OIDC_FAILED"
    assert not len(rig.state.user_sessions)


async def test_without_a_provider_the_login_page_says_so(data: pathlib.Path) -> None:
    async with http_rig(data) as rig, rig.client("") as browser:
        for path in (START, CALLBACK):
            assert error_of(await browser.get(path))["error"] == "NOT_FOUND"


async def test_a_login_with_other_groups_changes_the_roles_and_ends_earlier_sessions(
    rig: Rig, provider: ScriptedProvider
) -> None:
    first = await exchange(rig, fragment(await go_and_return(rig, provider)))
    async with session_client(rig, first) as person, following(person) as stream:
        await stream.frame()
        provider.claims["groups"] = ["admins"]
        second = await exchange(rig, fragment(await go_and_return(rig, provider)))
        assert (await stream.end(deadline=1.0)).startswith("the session was ended")
        assert (await person.get("/api/v1/auth/me")).status_code == 401
    async with session_client(rig, second) as person:
        assert "users.manage" in (await person.get("/api/v1/auth/me")).json()["permissions"]


async def test_long_names_and_many_groups_of_a_provider_are_cut(rig: Rig, provider: ScriptedProvider) -> None:
    """A record that could be stored and not be read again would end the controller."""
    provider.claims["preferred_username"] = "n" * 100
    code = fragment(await go_and_return(rig, provider))
    answer = await exchange(rig, code)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["display_name"]) == 100
    provider.claims["preferred_username"] = "adm\u200bin"
    again = await exchange(rig, fragment(await go_and_return(rig, provider)))
    assert again.json()["display_name"].startswith("42 ("), "a name that looks like another one is not taken"


async def test_a_page_elsewhere_embeds_no_start_of_a_login(rig: Rig) -> None:
    async with rig.client("") as browser:
        image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        assert refused(await browser.get(START, headers=image)) == "ORIGIN_REFUSED"
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert (await browser.get(START, headers=link)).status_code == 303


async def test_a_locked_user_of_a_provider_does_not_get_in(rig: Rig, provider: ScriptedProvider) -> None:
    name = (await exchange(rig, fragment(await go_and_return(rig, provider)))).json()["user"]
    async with rig.client() as admin:
        assert (await admin.post(f"/api/v1/users/{name}/lock", json={"reason": "left"})).is_success
    assert refused(await exchange(rig, fragment(await go_and_return(rig, provider)))) == "USER_LOCKED"


async def test_an_administrator_by_a_provider_is_not_the_last_one(
    rig: Rig, provider: ScriptedProvider
) -> None:
    """The provider may be gone tomorrow: somebody has to be able to get in without it."""
    provider.claims["groups"] = ["admins"]
    answer = await exchange(rig, fragment(await go_and_return(rig, provider)))
    async with session_client(rig, answer) as person:
        assert refused(await person.delete("/api/v1/users/admin")) == "CONFLICT"
        await make_user(rig, "second", role="ADMIN")
        assert (await person.delete("/api/v1/users/admin")).status_code == 204
