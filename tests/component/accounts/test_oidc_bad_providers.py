"""Providers that are down, slow, huge or not what they should be: logins by them fail, soon, and nothing else does."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import pathlib
import ssl
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from corral.controller.accounts.oidc.values import CallbackQuery
from corral.errors import Code, CorralError, Retryable
from corral.pki.keys import key_pem, new_key
from corral.system.aio.tasks import Tasks
from corral.testing.ports import free_addresses
from corral.testing.stepped_clock import SteppedClock
from corral.testing.waiting import eventually
from tests.component.accounts.oidc_logins import cookie_in, log_in, login_with
from tests.component.accounts.scripted_provider import ScriptedProvider, answer, body_answer

DISCOVERY = "/.well-known/openid-configuration"
BAD_ANSWERS = {
    "an error": (body_answer(b"{}", status="500 Internal Server Error"), "500"),
    "busy": (body_answer(b"{}", status="429 Too Many Requests"), "429"),
    "a redirect": (body_answer(b"{}", status="302 Found", extra="Location: /keys\r\n"), "not followed"),
    "truncated": (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "hung up in the middle"),
    "truncated chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", "in the middle"),
    "nothing": (b"", "hung up before"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "no HTTP answer"),
    "no JSON": (body_answer(b"<html>"), "no JSON"),
    "no object": (body_answer(b"[]"), "no JSON object"),
    "not UTF-8": (body_answer(b'{"a":"\xff"}'), "no JSON"),
    "deep": (body_answer(b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"), "levels deep"),
    "twice": (body_answer(b'{"a":1,"a":2}'), "twice"),
    "announced as huge": (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n{", "more than 262144"),
    "huge": (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 300_000, "more than 262144"),
    "packed": (body_answer(b"{}", extra="Content-Encoding: gzip\r\n"), "packed"),
    "an endless head": (b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20_000, "head has no end"),
}


async def unavailable(provider: ScriptedProvider, directory: pathlib.Path, **settings: Any) -> str:
    with pytest.raises(Retryable) as refused:
        await log_in(login_with(provider.issuer, directory, **settings), provider)
    assert refused.value.code is Code.OIDC_UNAVAILABLE
    assert refused.value.retry_after
    assert "local logins" in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *((DISCOVERY, name) for name in BAD_ANSWERS),
        *itertools.product(["/token", "/keys"], ["an error", "truncated", "no JSON", "huge"]),
    ],
)
async def test_an_answer_that_cannot_be_used_fails_the_login_alone(
    tmp_path: pathlib.Path, path: str, name: str
) -> None:
    async with ScriptedProvider() as provider:
        provider.answers[path], said = BAD_ANSWERS[name]
        assert said in await unavailable(provider, tmp_path)
        assert provider.requests.count(path) == 1


@pytest.mark.parametrize("path", [DISCOVERY, "/token", "/keys"])
async def test_a_provider_that_does_not_answer_is_given_up(tmp_path: pathlib.Path, path: str) -> None:
    async with ScriptedProvider() as provider:
        provider.silent.add(path)
        assert "did not answer within 1 s" in await unavailable(provider, tmp_path, seconds=1)
        if path in provider.requests:  # on a busy machine the time may be up before
            await eventually(provider.hung_up.is_set)


async def test_nobody_listens(tmp_path: pathlib.Path) -> None:
    (address,) = free_addresses(1)
    login = login_with(f"http://{address}", tmp_path)
    with pytest.raises(Retryable) as refused:
        await login.start()
    assert refused.value.code is Code.OIDC_UNAVAILABLE


async def test_a_host_that_cannot_be_resolved_is_named(tmp_path: pathlib.Path) -> None:
    host = "a" * 64  # no label of a name is so long: nobody is asked for it
    with pytest.raises(Retryable, match=f"'{host}' cannot be resolved"):
        await login_with(f"https://{host}", tmp_path).start()


async def test_after_a_failure_nobody_asks_for_a_moment(tmp_path: pathlib.Path) -> None:
    clock = SteppedClock()
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path, clock=clock)
        provider.answers[DISCOVERY] = BAD_ANSWERS["an error"][0]
        for _ in range(5):
            with pytest.raises(Retryable, match="500"):
                await login.start()
        assert len(provider.requests) == 1
        provider.answers.clear()
        clock.pass_time(6)
        assert (await log_in(login, provider)).bindings


async def test_a_failed_refresh_leaves_the_keys_that_are_known(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path)
        assert (await log_in(login, provider)).bindings
        provider.answers["/keys"] = BAD_ANSWERS["an error"][0]
        provider.header["kid"] = "two"
        with pytest.raises(Retryable, match="500"):
            await log_in(login, provider)
        provider.header["kid"] = "one"
        assert (await log_in(login, provider)).bindings


async def test_logins_at_once_ask_once_and_are_bounded(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider, Tasks() as tasks:
        login = login_with(provider.issuer, tmp_path)
        provider.silent.add(DISCOVERY)
        waiting = [
            tasks.spawn(login.start(), name=f"test/start/{number}", awaited=True) for number in range(32)
        ]
        await eventually(lambda: provider.requests)
        with pytest.raises(Retryable, match="32 logins wait"):
            await login.start()
        assert len(provider.requests) == 1
        provider.silent.clear()
        waiting[0].cancel()
        found = await asyncio.gather(*waiting[1:])
        assert len({each.set_cookie for each in found}) == 31
        assert len(provider.requests) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"issuer": "https://other.example"}, "another issuer"),
        ({"issuer": None}, "Expected `str`"),
        ({"token_endpoint": "http://id.example.org/token"}, "'token_endpoint' is no URL"),
        ({"token_endpoint": "file:///etc/passwd"}, "'token_endpoint' is no URL"),
        ({"token_endpoint": "https://u:p@id.example.org"}, "'token_endpoint' is no URL"),
        ({"token_endpoint": "https://id.example.org/\r\nX: y"}, "'token_endpoint' is no URL"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "'authorization_endpoint' is no URL"),
        ({"authorization_endpoint": "https://id.example.org/#x"}, "'authorization_endpoint' is no URL"),
        ({"jwks_uri": "https://id.example.org/" + "a" * 2048}, "'jwks_uri' is no URL"),
        ({"jwks_uri": 7}, "Expected `str`"),
        ({"response_types_supported": ["id_token"]}, "authorization code"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE with S256"),
        ({"id_token_signing_alg_values_supported": ["HS256", "none"]}, "signs with none of"),
    ],
)
async def test_a_description_that_leads_astray_is_refused(
    tmp_path: pathlib.Path, change: dict[str, Any], said: str
) -> None:
    async with ScriptedProvider() as provider:
        provider.metadata = change
        assert said in await unavailable(provider, tmp_path)
        assert provider.requests == [DISCOVERY]


@pytest.mark.parametrize("keys", [{}, {"keys": 7}, {"keys": [{}] * 101}])
async def test_a_key_set_without_a_bounded_list_is_refused(tmp_path: pathlib.Path, keys: Any) -> None:
    async with ScriptedProvider() as provider:
        provider.answers["/keys"] = answer(keys)
        assert "its key set" in await unavailable(provider, tmp_path)


@pytest.mark.parametrize("document", [{}, {"id_token": 7}, {"access_token": "a"}, {"id_token": None}])
async def test_an_answer_without_an_id_token_is_refused(tmp_path: pathlib.Path, document: Any) -> None:
    async with ScriptedProvider() as provider:
        provider.answers["/token"] = answer(document)
        assert "without an ID token" in await unavailable(provider, tmp_path)


async def test_a_wrong_secret_is_the_operators_to_mend(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        wrong = tmp_path / "wrong"
        wrong.write_text("another")
        said = await unavailable(provider, tmp_path, client_secret_file=str(wrong))
        assert "oidc.client_secret_file" in said
        assert "another" not in said


@pytest.mark.parametrize("content", [None, b"", b"\n", b"a\nb", b"\xff", b"x" * 5000])
async def test_a_file_without_a_secret_is_named(tmp_path: pathlib.Path, content: bytes | None) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    async with ScriptedProvider() as provider:
        said = await unavailable(provider, tmp_path, client_secret_file=str(path))
        assert "oidc.client_secret_file" in said
        assert "/token" not in provider.requests


async def test_a_changed_secret_is_used_without_a_restart(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        path = tmp_path / "secret"
        login = login_with(provider.issuer, tmp_path, client_secret_file=str(path))
        path.write_text("old")
        with pytest.raises(Retryable):
            await log_in(login, provider)
        path.write_bytes((tmp_path / "client.secret").read_bytes())
        assert (await log_in(login, provider)).bindings


async def test_the_log_and_not_the_answer_names_the_groups_of_a_stranger(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        provider.claims = {"groups": ["guests", "night-shift"]}
        with capture_logs() as logged, pytest.raises(CorralError) as refused:
            await log_in(login_with(provider.issuer, tmp_path), provider)
        assert refused.value.code is Code.OIDC_NO_ROLE
        assert "night-shift" not in str(refused.value)
        (record,) = [each for each in logged if each["event"] == "oidc_login.refused"]
        assert record["groups"] == "guests, night-shift"
        assert record["subject"] == "42"


def authority(directory: pathlib.Path) -> tuple[ssl.SSLContext, pathlib.Path]:
    """A server's context for `localhost`, and the certificate to trust."""
    key, now = new_key(), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "authority.pem"
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    (directory / "key.pem").write_bytes(key_pem(key))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path, directory / "key.pem")
    return context, path


async def test_the_provider_s_certificate_is_checked_with_the_configured_authority(
    tmp_path: pathlib.Path,
) -> None:
    context, path = authority(tmp_path)
    async with ScriptedProvider(tls=context) as provider:
        assert (await log_in(login_with(provider.issuer, tmp_path, ca_file=str(path)), provider)).bindings
        with pytest.raises(Retryable, match="certificate is not trusted"):
            await login_with(provider.issuer, tmp_path).start()
        with pytest.raises(Retryable, match=r"oidc\.ca_file"):
            await login_with(provider.issuer, tmp_path, ca_file=str(tmp_path / "none")).start()


async def test_a_provider_on_https_sends_nobody_to_plain_http(tmp_path: pathlib.Path) -> None:
    context, path = authority(tmp_path)
    async with ScriptedProvider(tls=context) as provider:
        provider.metadata["token_endpoint"] = "http://127.0.0.1:1/token"
        assert "begin with https" in await unavailable(provider, tmp_path, ca_file=str(path))


async def test_a_code_that_is_sent_twice_is_refused(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path)
        started = await login.start()
        query = CallbackQuery(**provider.authorize(started.location))
        assert (await login.finish(query, cookie=cookie_in(started.set_cookie))).bindings
        with pytest.raises(CorralError, match="used already"):
            await login.finish(query, cookie=cookie_in(started.set_cookie))


async def test_the_code_of_one_login_does_not_finish_another(tmp_path: pathlib.Path) -> None:
    async with ScriptedProvider() as provider:
        login = login_with(provider.issuer, tmp_path)
        mine, stolen = await login.start(), await login.start()
        state = provider.authorize(mine.location)["state"]
        code = provider.authorize(stolen.location)["code"]
        with pytest.raises(CorralError) as refused:  # by PKCE, at the provider
            await login.finish(CallbackQuery(code=code, state=state), cookie=cookie_in(mine.set_cookie))
        assert refused.value.code is Code.OIDC_FAILED
