"""The cookie between the start of a login with OpenID Connect and its callback.

It is sealed with a key that every controller of the cluster derives from the cluster key, so a login survives a change of
the leader, and no state of it is kept here. Cookies ignore ports: a program on another port of the host receives it, too,
and can neither read nor change it.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import pathlib
from collections.abc import Callable
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from corral.controller.accounts.oidc.errors import login_failed
from corral.pki.keys import ClusterKey
from corral.system.entropy import Entropy

LIFE: Final = dt.timedelta(minutes=10)
NAME: Final = "__Host-corral-oidc"
PLAIN_NAME: Final = "corral-oidc"
"""On plain HTTP, which is for this host alone: browsers refuse the other name without TLS."""
RETURN_MAX: Final = 1024
_PURPOSE: Final = "oidc login cookie"
_NONCE: Final = 12
_VALUE_MAX: Final = 4096


class LoginState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the callback has to be checked against."""

    state: str
    nonce: str
    verifier: str
    """Of PKCE: proves to the provider that the code was requested here."""
    return_path: str
    page_challenge: str
    """SHA-256, base64url, of a secret of the page that began; empty: there is none. See `OidcLogin.start`."""
    expires: int
    """Seconds of Unix time."""
    issuer: str


def cookie_key(path: pathlib.Path) -> bytes:
    """The key of this cluster's cookies, from the file of its cluster key; the same on each of its controllers."""
    return ClusterKey.require(path).derive(_PURPOSE)


def cookie_name(*, secure: bool) -> str:
    return NAME if secure else PLAIN_NAME


def set_cookie(value: str, *, secure: bool) -> str:
    """The value of `Set-Cookie`. Lax, not Strict: the provider's page leads back here."""
    return _header(value, int(LIFE.total_seconds()), secure=secure)


def clear_cookie(*, secure: bool) -> str:
    return _header("", 0, secure=secure)


def _header(value: str, seconds: int, *, secure: bool) -> str:
    end = "; Secure" if secure else ""
    return f"{cookie_name(secure=secure)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{end}"


def seal_state(state: LoginState, *, key: bytes, entropy: Entropy) -> str:
    """The value of the cookie."""
    nonce = entropy.secret(_NONCE)
    sealed = AESGCM(key).encrypt(nonce, msgspec.json.encode(state), _PURPOSE.encode())
    return base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()


def unseal_state(value: str, *, key: bytes, issuer: str, now: dt.datetime) -> LoginState:
    """The state of a login that was started here, with this provider, in the last ten minutes; OIDC_FAILED."""
    if not value:
        raise login_failed("your browser sent no cookie of a login that was started here")
    state = _opened(value, key)
    if state is None:
        raise login_failed("the cookie of the login is not of this cluster, or was changed")
    if now.timestamp() >= state.expires:
        raise login_failed("it was started more than ten minutes ago")
    if state.issuer != issuer:
        raise login_failed("it was started with another provider")
    return state


def _opened(value: str, key: bytes) -> LoginState | None:
    if len(value) > _VALUE_MAX or not value.isascii():
        return None
    try:
        raw = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
        opened = AESGCM(key).decrypt(raw[:_NONCE], raw[_NONCE:], _PURPOSE.encode())
        return msgspec.json.decode(opened, type=LoginState)
    except (binascii.Error, ValueError, InvalidTag):  # msgspec's errors are ValueErrors
        return None


def return_path(text: str) -> str:
    """The path on this origin to go to after the login: the text, if it can only be that, else `/`."""
    plain = text.isascii() and text.isprintable() and " " not in text and "\\" not in text
    local = text.startswith("/") and not text.startswith("//")
    return text if plain and local and len(text) <= RETURN_MAX else "/"


KeySource = Callable[[], bytes]
"""Called once, at the first use."""
