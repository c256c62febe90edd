"""The sealed cookie between the start of a login with OpenID Connect and its callback."""

from __future__ import annotations

import base64
import datetime as dt
import pathlib

import pytest

from corral.controller.accounts.oidc.cookie import (
    LoginState,
    clear_cookie,
    cookie_key,
    return_path,
    seal_state,
    set_cookie,
    unseal_state,
)
from corral.errors import Code, Rejected
from corral.pki.keys import ClusterKey
from corral.system.entropy import SystemEntropy

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ISSUER = "https://id.example.org"
ENTROPY = SystemEntropy()
STATE = LoginState(
    state="s" * 43,
    nonce="n" * 43,
    verifier="v" * 43,
    return_path="/groups?x=1",
    page_challenge="",
    expires=int(NOW.timestamp()) + 600,
    issuer=ISSUER,
)


def key_of_a_cluster(directory: pathlib.Path) -> bytes:
    path = directory / "ca" / "cluster.key"
    if not path.exists():
        ClusterKey.create(path, ENTROPY)
    return cookie_key(path)


def refusal(value: str, key: bytes, *, now: dt.datetime = NOW, issuer: str = ISSUER) -> str:
    with pytest.raises(Rejected) as refused:
        unseal_state(value, key=key, issuer=issuer, now=now)
    assert refused.value.code is Code.OIDC_FAILED
    return str(refused.value)


def test_another_controller_of_the_cluster_opens_the_cookie(tmp_path: pathlib.Path) -> None:
    sealed = seal_state(STATE, key=key_of_a_cluster(tmp_path), entropy=ENTROPY)
    assert unseal_state(sealed, key=key_of_a_cluster(tmp_path), issuer=ISSUER, now=NOW) == STATE


def test_a_cookie_of_another_cluster_is_refused(tmp_path: pathlib.Path) -> None:
    sealed = seal_state(STATE, key=key_of_a_cluster(tmp_path / "a"), entropy=ENTROPY)
    assert "not of this cluster" in refusal(sealed, key_of_a_cluster(tmp_path / "b"))


def test_a_cookie_shows_nothing_and_is_another_each_time() -> None:
    first, second = (seal_state(STATE, key=bytes(32), entropy=ENTROPY) for _ in range(2))
    assert first != second
    assert b"vvvv" not in base64.urlsafe_b64decode(first + "==")


def test_no_changed_byte_of_a_cookie_is_accepted() -> None:
    sealed = seal_state(STATE, key=bytes(32), entropy=ENTROPY)
    raw = base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
    for position in range(len(raw)):
        changed = raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]
        text = base64.urlsafe_b64encode(changed).rstrip(b"=").decode()
        assert "was changed" in refusal(text, bytes(32))


@pytest.mark.parametrize("value", ["x", "*" * 40, "a" * 5000, "ä" * 40, "A" * 16, "a b", "\ud800"])
def test_what_is_no_cookie_of_ours_is_refused(value: str) -> None:
    assert "was changed" in refusal(value, bytes(32))


def test_no_cookie_is_said_to_be_missing() -> None:
    assert "no cookie" in refusal("", bytes(32))


def test_a_cookie_ends_after_ten_minutes() -> None:
    sealed = seal_state(STATE, key=bytes(32), entropy=ENTROPY)
    assert unseal_state(sealed, key=bytes(32), issuer=ISSUER, now=NOW + dt.timedelta(seconds=599)) == STATE
    assert "ten minutes" in refusal(sealed, bytes(32), now=NOW + dt.timedelta(seconds=600))


def test_a_cookie_is_for_one_provider() -> None:
    sealed = seal_state(STATE, key=bytes(32), entropy=ENTROPY)
    assert "another provider" in refusal(sealed, bytes(32), issuer=ISSUER + "/")


def test_the_cookie_of_tls_is_bound_to_the_host_and_hidden_from_pages() -> None:
    assert set_cookie("VALUE", secure=True) == (
        "__Host-corral-oidc=VALUE; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure"
    )
    assert clear_cookie(secure=False) == "corral-oidc=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"


def test_the_largest_cookie_is_one_that_browsers_keep() -> None:
    largest = LoginState(
        state="s" * 43,
        nonce="n" * 43,
        verifier="v" * 43,
        return_path=return_path("/" + '"' * 1023),
        page_challenge="c" * 43,
        expires=2**40,
        issuer="https://" + "i" * 248,
    )
    sealed = seal_state(largest, key=bytes(32), entropy=ENTROPY)
    assert len(set_cookie(sealed, secure=True)) <= 4096
    assert unseal_state(sealed, key=bytes(32), issuer=largest.issuer, now=NOW) == largest


@pytest.mark.parametrize("path", ["/", "/groups", "/groups?a=b#c", "/a//b", "/a:b@c"])
def test_a_login_returns_to_a_path_here(path: str) -> None:
    assert return_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "groups",
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "/a\r\nSet-Cookie: x",
        "https://evil.example",
        "javascript:alert(1)",
        "/a b",
        "/ä",
        "/" + "a" * 1024,
    ],
)
def test_a_login_never_returns_to_another_origin(path: str) -> None:
    assert return_path(path) == "/"
