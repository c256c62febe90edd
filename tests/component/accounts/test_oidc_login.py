"""Logins with OpenID Connect, against a published provider and one that is strict."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import pathlib
import urllib.parse

import pytest

from corral.controller.accounts.oidc.values import CallbackQuery
from corral.domain.bindings import Binding, Scope
from corral.errors import Code, CorralError
from tests.component.accounts.oidc_logins import KEY, cookie_in, log_in, login_with
from tests.component.accounts.published_provider import published_provider
from tests.component.accounts.scripted_provider import ScriptedProvider

OPERATOR = (Binding(role="OPERATOR", scope=Scope(groups=("lobby-*",))),)


def agree(location: str, subject: str) -> CallbackQuery:
    """The form of the provider, filled in by a person."""
    parts = urllib.parse.urlsplit(location)
    with contextlib.closing(http.client.HTTPConnection(parts.netloc)) as connection:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", f"{parts.path}?{parts.query}", body=f"sub={subject}", headers=kind)
        back = connection.getresponse().headers["Location"]
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(back).query))
    return CallbackQuery(code=query["code"], state=query["state"])


@pytest.mark.system
async def test_a_person_logs_in_with_a_published_provider(tmp_path: pathlib.Path) -> None:
    async with published_provider(tmp_path) as issuer:
        login = login_with(issuer, tmp_path)
        started = await login.start(return_to="/nodes", page_challenge="c" * 43)
        query = await asyncio.to_thread(agree, started.location, "u-1")
        found = await login.finish(query, cookie=cookie_in(started.set_cookie))
        assert found.identity.issuer == issuer
        assert found.identity.subject == "u-1"
        assert found.identity.name == "alice"
        assert found.identity.groups == ("ops", "admins")
        assert found.bindings == (*OPERATOR, Binding(role="ADMIN"))
        assert (found.return_path, found.page_challenge) == ("/nodes", "c" * 43)

        with pytest.raises(CorralError) as twice:
            await login.finish(query, cookie=cookie_in(started.set_cookie))
        assert twice.value.code is Code.OIDC_FAILED
        assert "used already" in str(twice.value)

        started = await login.start()
        query = await asyncio.to_thread(agree, started.location, "u-2")
        with pytest.raises(CorralError) as stranger:
            await login.finish(query, cookie=cookie_in(started.set_cookie))
        assert stranger.value.code is Code.OIDC_NO_ROLE
        assert "guests" not in str(stranger.value)


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
async def test_each_of_four_algorithms_is_accepted(tmp_path: pathlib.Path, algorithm: str) -> None:
    async with ScriptedProvider(algorithm=algorithm) as provider:
        found = await log_in(login_with(provider.issuer, tmp_path), provider)
    assert found.identity.subject == "42"
    assert found.bindings == OPERATOR
    assert found.return_path == "/groups"


@pytest.mark.parametrize("method", ["client_secret_post", "none"])
async def test_the_client_proves_itself_as_the_provider_supports(tmp_path: pathlib.Path, method: str) -> None:
    async with ScriptedProvider() as provider:
        provider.metadata["token_endpoint_auth_methods_supported"] = [method]
        public = {"client_secret_file": ""} if method == "none" else {}
        assert (await log_in(login_with(provider.issuer, tmp_path, **public), provider)).bindings


async def test_another_controller_finishes_a_login(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        first, second = (login_with(provider.issuer, tmp_path) for _ in range(2))
        started = await first.start()
        query = CallbackQuery(**provider.authorize(started.location))
        assert (await second.finish(query, cookie=cookie_in(started.set_cookie))).bindings


async def test_the_cookie_of_another_cluster_finishes_nothing(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        mine = login_with(provider.issuer, tmp_path)
        other = login_with(provider.issuer, tmp_path, key=KEY[::-1])
        started = await other.start()
        query = CallbackQuery(**provider.authorize(started.location))
        with pytest.raises(CorralError) as refused:
            await mine.finish(query, cookie=cookie_in(started.set_cookie))
        assert "not of this cluster" in str(refused.value)
        assert "/token" not in provider.requests


async def test_every_login_has_secrets_of_its_own(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path)
        sent = [
            dict(urllib.parse.parse_qsl((await login.start()).location.partition("?")[2])) for _ in range(2)
        ]
        assert provider.requests == ["/.well-known/openid-configuration"]
    for name in ("state", "nonce", "code_challenge"):
        assert sent[0][name] != sent[1][name]
        assert len(sent[0][name]) == 43
    assert sent[0]["redirect_uri"] == "https://corral.example.org/api/v1/auth/oidc/callback"


async def test_an_answer_that_names_its_issuer_is_of_this_provider(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path)
        assert (await log_in(login, provider, iss=provider.issuer)).bindings
        with pytest.raises(CorralError, match="of another provider"):
            await log_in(login, provider, iss="https://other.example")
    async with ScriptedProvider() as provider:
        provider.metadata["authorization_response_iss_parameter_supported"] = True
        with pytest.raises(CorralError, match="of another provider"):
            await log_in(login_with(provider.issuer, tmp_path), provider)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": "another"}, "another login"),
        ({"state": ""}, "another login"),
        ({"state": "ä\ud800"}, "another login"),
        ({"code": ""}, "no code"),
        ({"code": "x" * 5000}, "no code"),
        ({"code": "a\r\nb"}, "no code"),
        ({"error": "access_denied"}, "did not let you in"),
        ({"error": "invalid_scope"}, "(invalid_scope)"),
        ({"error": "<script>"}, "(an unknown error)"),
    ],
)
async def test_an_answer_that_is_no_login_is_refused_without_asking_the_provider(
    tmp_path: pathlib.Path, changed: dict[str, str], said: str
) -> None:
    async with ScriptedProvider() as provider:
        with pytest.raises(CorralError) as refused:
            await log_in(login_with(provider.issuer, tmp_path), provider, **changed)
        assert refused.value.code is Code.OIDC_FAILED
        assert said in str(refused.value)
        assert "/token" not in provider.requests


async def test_a_cookie_that_was_changed_or_left_out_finishes_nothing(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path)
        started = await login.start()
        query = CallbackQuery(**provider.authorize(started.location))
        value = cookie_in(started.set_cookie)
        swapped = ("B" if value[40] == "A" else "A").join((value[:40], value[41:]))
        for cookie in ("", swapped, value[:-4]):
            with pytest.raises(CorralError) as refused:
                await login.finish(query, cookie=cookie)
            assert refused.value.code is Code.OIDC_FAILED


async def test_a_challenge_of_the_page_has_one_form(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        with pytest.raises(CorralError, match="challenge"):
            await login_with(provider.issuer, tmp_path).start(page_challenge="short")


async def test_on_plain_loopback_the_cookie_needs_no_tls(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path, public_url="http://127.0.0.1:8480")
        assert (await login.start()).set_cookie.startswith("corral-oidc=")
        assert login.cookie_name == "corral-oidc"
        assert login.display_name == "localhost"
