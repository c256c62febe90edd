"""ID tokens that must not open anything, from a provider that can sign whatever it likes."""

from __future__ import annotations

import base64
import json
import pathlib
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from joserfc.jwk import ECKey, OctKey, RSAKey

from corral.controller.accounts.oidc.values import CallbackQuery
from corral.errors import Code, CorralError
from corral.testing.stepped_clock import SteppedClock
from tests.component.accounts.oidc_logins import cookie_in, log_in, login_with
from tests.component.accounts.scripted_provider import CLIENT, ScriptedProvider, new_key, signed

OTHER = "another-client"


async def refusal(provider: ScriptedProvider, directory: pathlib.Path, **settings: Any) -> str:
    with pytest.raises(CorralError) as refused:
        await log_in(login_with(provider.issuer, directory, **settings), provider)
    assert refused.value.code is Code.OIDC_FAILED
    return str(refused.value)


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"nonce": "n" * 43}, "of another login"),
        ({"nonce": None}, "of another login"),
        ({"nonce": 7}, "of another login"),
        ({"nonce": "ä"}, "of another login"),
        ({"iss": "https://other.example"}, "of another issuer"),
        ({"iss": None}, "of another issuer"),
        ({"aud": OTHER}, "for another client"),
        ({"aud": [OTHER]}, "for another client"),
        ({"aud": None}, "for another client"),
        ({"aud": {CLIENT: 1}}, "for another client"),
        ({"aud": [CLIENT, OTHER]}, "issued to another client"),
        ({"aud": [CLIENT, OTHER], "azp": OTHER}, "issued to another client"),
        ({"azp": OTHER}, "issued to another client"),
        ({"exp": None}, "no time 'exp'"),
        ({"exp": "9999999999"}, "no time 'exp'"),
        ({"exp": True}, "no time 'exp'"),
        ({"exp": -1}, "no time 'exp'"),
        ({"exp": 10**30}, "no time 'exp'"),
        ({"iat": None}, "no time 'iat'"),
        ({"at_hash": "AAAA"}, "another access token"),
        ({"at_hash": 7}, "another access token"),
        ({"sub": None}, "no subject"),
        ({"sub": "a\nb"}, "no subject"),
    ],
)
async def test_a_token_with_claims_of_something_else_is_refused(
    tmp_path: pathlib.Path, claims: dict[str, Any], said: str
) -> None:
    async with ScriptedProvider() as provider:
        provider.claims = claims
        assert said in await refusal(provider, tmp_path)


@pytest.mark.parametrize(
    "claims", [{"aud": [CLIENT]}, {"aud": [CLIENT, OTHER], "azp": CLIENT}, {"at_hash": None}]
)
async def test_a_token_for_several_is_accepted_if_it_was_issued_to_this_client(
    tmp_path: pathlib.Path, claims: dict[str, Any]
) -> None:
    async with ScriptedProvider() as provider:
        provider.claims = claims
        assert (await log_in(login_with(provider.issuer, tmp_path), provider)).bindings


@pytest.mark.parametrize(
    ("name", "seconds", "said"),
    [
        ("exp", -30, ""),
        ("exp", -90, "it has expired"),
        ("iat", 30, ""),
        ("iat", 90, "from the future"),
        ("nbf", 30, ""),
        ("nbf", 90, "from the future"),
    ],
)
async def test_the_clocks_may_differ_by_a_minute(
    tmp_path: pathlib.Path, name: str, seconds: int, said: str
) -> None:
    async with ScriptedProvider() as provider:
        provider.claims = {name: time.time() + seconds}
        if said:
            assert said in await refusal(provider, tmp_path)
        else:
            assert (await log_in(login_with(provider.issuer, tmp_path), provider)).bindings


async def test_a_login_that_took_too_long_is_refused(tmp_path: pathlib.Path) -> None:
    clock = SteppedClock()
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path, clock=clock)
        started = await login.start()
        clock.pass_time(601)
        query = CallbackQuery(**provider.authorize(started.location))
        with pytest.raises(CorralError, match="ten minutes"):
            await login.finish(query, cookie=cookie_in(started.set_cookie))


async def test_an_unsigned_token_is_refused(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        for name in ("none", "None", "NONE", ""):
            payload = base64.urlsafe_b64encode(json.dumps({"sub": "42"}).encode()).rstrip(b"=").decode()
            head = base64.urlsafe_b64encode(json.dumps({"alg": name}).encode()).rstrip(b"=").decode()
            provider.id_token = f"{head}.{payload}."
            assert "not signed with one of" in await refusal(provider, tmp_path)


async def test_a_public_key_is_never_a_secret(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        public = provider.key.raw_value.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        provider.key = OctKey.import_key(base64.urlsafe_b64encode(public))
        provider.header = {"alg": "HS256", "kid": "one"}
        assert "not signed with one of" in await refusal(provider, tmp_path)


async def test_a_shared_key_in_the_key_set_is_not_read(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        provider.listed = [{"kty": "oct", "kid": "one", "k": "c2VjcmV0", "alg": "RS256"}]
        assert "no key of the provider" in await refusal(provider, tmp_path)


async def test_a_token_that_somebody_else_signed_is_refused(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        provider.key = new_key("RS256", "one")
        assert "no key of the provider" in await refusal(provider, tmp_path)


async def test_a_token_that_brings_its_own_key_is_refused(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        provider.key = new_key("RS256", "one")
        provider.header["jwk"] = provider.key.as_dict(private=False)
        provider.header["jku"] = f"{provider.issuer}/other-keys"
        assert "no key of the provider" in await refusal(provider, tmp_path)
        assert "/other-keys" not in provider.requests


async def test_a_key_for_encryption_or_another_algorithm_signs_nothing(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        honest = provider.listed[0]
        for change in ({"use": "enc"}, {"alg": "PS256"}, {"kty": "EC"}):
            provider.listed = [{**honest, **change}]
            with pytest.raises(CorralError):
                await log_in(login_with(provider.issuer, tmp_path), provider)


async def test_a_weak_key_signs_nothing(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        with pytest.warns(match="2048"):
            provider.key = RSAKey.generate_key(1024, {"kid": "one"})
        provider.listed = [provider.key.as_dict(private=False)]
        assert "no key of the provider" in await refusal(provider, tmp_path)
    async with ScriptedProvider(algorithm="ES256") as provider:
        provider.listed = [ECKey.generate_key("P-384", {"kid": "one"}).as_dict(private=False)]
        assert "no key of the provider" in await refusal(provider, tmp_path)


@pytest.mark.parametrize(
    "member",
    [
        {"n": "!", "e": "AQAB"},
        {"n": 7, "e": "AQAB"},
        {"n": "A" * 4000, "e": "AQAB"},
        {"n": "AQAB"},
        {"n": "AQAB", "e": "A" * 400},
        {"n": "", "e": ""},
    ],
)
async def test_a_malformed_key_signs_nothing_and_breaks_nothing(
    tmp_path: pathlib.Path, member: dict[str, Any]
) -> None:
    async with ScriptedProvider() as provider:
        provider.listed = [{"kty": "RSA", "kid": "one", **member}, "no key", None]  # type: ignore[list-item]
        assert "no key of the provider" in await refusal(provider, tmp_path)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"crit": ["b64"], "b64": False}, "conditions that are not known"),
        ({"b64": False}, "conditions that are not known"),
        ({"typ": "at+jwt"}, "another kind"),
        ({"kid": 7}, "header cannot be read"),
    ],
)
async def test_a_header_with_other_rules_is_refused(
    tmp_path: pathlib.Path, header: dict[str, Any], said: str
) -> None:
    async with ScriptedProvider() as provider:
        honest = {"alg": "RS256", "kid": "one"}
        head = base64.urlsafe_b64encode(json.dumps({**honest, **header}).encode()).rstrip(b"=").decode()
        token = signed(honest, {"sub": "42"}, provider.key)
        provider.id_token = ".".join((head, *token.split(".")[1:]))
        assert said in await refusal(provider, tmp_path)


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "a.b",
        "a.b.c",
        "....",
        "ä.b.c",
        "e30.e30.e30",
        "W10.e30.e30",
        "a" * 200_000 + ".b.c",
        "W1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbXV1dXV1d.e30.e30",
    ],
)
async def test_what_is_no_token_is_refused(tmp_path: pathlib.Path, token: str) -> None:
    async with ScriptedProvider() as provider:
        provider.id_token = token
        assert "token is refused" in await refusal(provider, tmp_path)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"[" * 100 + b"]" * 100, "levels deep"),
        (b"[]", "no JSON object"),
        (b"no json", "no JSON"),
        (b'{"sub":"1","sub":"2"}', "stands twice"),
        (b'{"exp":' + b"9" * 10_000 + b"}", "no JSON"),
        (b'{"sub":"\\ud800"}', "no JSON"),
        (b"\xff", "no JSON"),
    ],
)
async def test_a_signed_text_that_is_no_set_of_claims_is_refused(
    tmp_path: pathlib.Path, payload: bytes, said: str
) -> None:
    async with ScriptedProvider() as provider:
        provider.id_token = signed(provider.header, payload, provider.key)
        assert said in await refusal(provider, tmp_path)


async def test_a_header_that_is_not_known_is_ignored(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        provider.header |= {"x-own": "1", "typ": "jwt", "x5t": "abc"}
        assert (await log_in(login_with(provider.issuer, tmp_path), provider)).bindings


async def test_a_token_without_key_id_is_checked_with_the_keys_of_its_kind(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        provider.header = {"alg": "RS256"}
        provider.listed = [
            new_key("ES256", "three").as_dict(private=False),
            new_key("RS256", "two").as_dict(private=False),
            *provider.listed,
        ]
        assert (await log_in(login_with(provider.issuer, tmp_path), provider)).bindings


@pytest.mark.system
async def test_a_provider_may_change_its_keys(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path)
        assert (await log_in(login, provider)).bindings
        assert (await log_in(login, provider)).bindings
        assert provider.requests.count("/keys") == 1
        provider.key = new_key("RS256", "two")
        provider.header["kid"] = "two"
        provider.listed = [provider.key.as_dict(private=False)]
        assert (await log_in(login, provider)).bindings
        assert provider.requests.count("/keys") == 2


async def test_keys_that_nobody_knows_do_not_make_the_controller_ask_for_ever(tmp_path: pathlib.Path) -> None:
    clock = SteppedClock()
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path, clock=clock)
        codes = []
        for number in range(8):
            provider.header["kid"] = f"unknown-{number}"
            with pytest.raises(CorralError) as refused:
                await log_in(login, provider)
            codes.append(refused.value.code)
        assert provider.requests.count("/keys") == 4
        assert set(codes) == {Code.OIDC_FAILED, Code.OIDC_UNAVAILABLE}
        provider.header["kid"] = "one"
        assert (await log_in(login, provider)).bindings
        clock.pass_time(31)
        provider.header["kid"] = "unknown"
        with pytest.raises(CorralError):
            await log_in(login, provider)
        assert provider.requests.count("/keys") == 5


async def test_keys_are_fetched_anew_after_an_hour(tmp_path: pathlib.Path) -> None:
    clock = SteppedClock()
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path, clock=clock)
        await log_in(login, provider)
        clock.pass_time(3700)
        provider.claims = {"exp": int(clock.now().timestamp()) + 300}
        await log_in(login, provider)
        assert provider.requests.count("/keys") == 2
        assert provider.requests.count("/.well-known/openid-configuration") == 2
