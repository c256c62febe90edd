"""The provider of OpenID Connect as it describes itself: its endpoints and keys, cached, and the exchange of a code.

One request at a time fetches a document, the others wait for its outcome. After a failure nothing is fetched for a few
seconds: people who press a button again and again do not add up.
"""

from __future__ import annotations

import asyncio
import base64
import pathlib
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog

from corral.controller.accounts.oidc.errors import login_failed, provider_unavailable
from corral.controller.accounts.oidc.http import JsonClient, check_endpoint
from corral.controller.accounts.oidc.id_token import ALGORITHMS, SigningKeys, TokenHeader
from corral.errors import Retryable
from corral.system.aio.token_bucket import TokenBucket
from corral.system.clock import Clock
from corral.system.log_mask import HIDDEN_VALUES
from corral.system.oidc_config import OidcSection
from corral.system.threads import to_end

T = TypeVar("T")

CACHED_SECONDS: Final = 3600.0
PAUSE_SECONDS: Final = 5.0
"""After a failure."""
KEY_REFRESHES: Final = 3
"""Refreshes at once because of keys that are not known; after them one every half minute."""
_REFRESH_SECONDS: Final = 30.0
_SECRET_MAX: Final = 4096
_TEXT_MAX: Final = 64 * 1024
_DISCOVERY: Final = "/.well-known/openid-configuration"
_log = structlog.get_logger("corral.controller.accounts")


class ProviderMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the discovery document that is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    response_types_supported: tuple[str, ...] = ("code",)
    code_challenge_methods_supported: tuple[str, ...] | None = None
    id_token_signing_alg_values_supported: tuple[str, ...] = ALGORITHMS
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class IssuedTokens(msgspec.Struct, frozen=True, kw_only=True):
    id_token: str
    access_token: str = ""


class _Cached(Generic[T]):
    """A document that is fetched when it is needed and too old."""

    def __init__(self, fetch: Callable[[], Awaitable[T]], *, clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._fetching = asyncio.Lock()
        self._value: T | None = None
        self._until = 0.0
        self._failure: Retryable | None = None

    async def get(self, *, other_than: T | None = None) -> T:
        """With `other_than`, one that was fetched after that."""
        value = self._current()
        if value is not None and value is not other_than:
            return value
        async with self._fetching:
            value = self._current()
            if value is not None and value is not other_than:
                return value
            try:
                self._value = await self._fetch()
            except Retryable as failure:
                if value is None:  # else the old one serves those who need no other
                    self._failure, self._until = failure, self._clock.monotonic() + PAUSE_SECONDS
                raise
            self._failure, self._until = None, self._clock.monotonic() + CACHED_SECONDS
            return self._value

    def _current(self) -> T | None:
        """The cached one, if it is not too old; raises the failure of a moment ago once more."""
        if self._clock.monotonic() >= self._until:
            return None
        if self._failure is not None:
            raise Retryable(
                self._failure.code,
                self._failure.message,
                hint=self._failure.hint,
                retry_after=self._failure.retry_after,
            )
        return self._value


class OidcProvider:
    """All that is asked of the provider. The caller has the deadline. OIDC_UNAVAILABLE when it does not answer as it has
    to."""

    def __init__(self, section: OidcSection, *, redirect_uri: str, clock: Clock) -> None:
        self._section = section
        self._redirect_uri = redirect_uri
        self._client = JsonClient(ca_file=section.ca_file)
        self._on_loopback = section.issuer.startswith("http://")
        self._metadata = _Cached(self._discover, clock=clock)
        self._keys = _Cached(self._fetch_keys, clock=clock)
        self._refreshes = TokenBucket(
            burst=KEY_REFRESHES, per_second=1 / _REFRESH_SECONDS, monotonic=clock.monotonic
        )

    async def metadata(self) -> ProviderMetadata:
        return await self._metadata.get()

    async def keys_for(self, header: TokenHeader) -> SigningKeys:
        """The key set; fetched anew for a key id that is not in it, which is how providers change their keys."""
        keys = await self._keys.get()
        if keys.knows(header.kid):
            return keys
        if not self._refreshes.take():
            raise provider_unavailable("it signs with keys that its key set does not have", retry_after=30)
        _log.info("oidc_keys.requested", reason="a token names a key that is not known")
        return await self._keys.get(other_than=keys)

    async def redeem(self, code: str, verifier: str) -> IssuedTokens:
        """Exchange a code, once. OIDC_FAILED when the provider refuses it."""
        metadata = await self.metadata()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        headers = await self._client_credentials(metadata, form)
        what = "its token endpoint"
        answer = await self._client.post_form(metadata.token_endpoint, form, headers=headers, what=what)
        if answer.status != 200:
            raise _not_exchanged(answer.document)
        try:
            found = msgspec.convert(answer.document, IssuedTokens)
        except msgspec.ValidationError:
            raise provider_unavailable(f"{what} answered without an ID token") from None
        if len(found.access_token) > _TEXT_MAX:
            raise provider_unavailable(f"{what} answered with an access token that is too long")
        return found

    async def _client_credentials(self, metadata: ProviderMetadata, form: dict[str, str]) -> dict[str, str]:
        """Headers that prove who asks; in the form, where the provider supports nothing else."""
        section = self._section
        if not section.client_secret_file:
            form["client_id"] = section.client_id
            return {}
        secret = await to_end(_read_secret, pathlib.Path(section.client_secret_file))
        methods = metadata.token_endpoint_auth_methods_supported
        if "client_secret_basic" not in methods and "client_secret_post" in methods:
            form |= {"client_id": section.client_id, "client_secret": secret}
            return {}
        quote = urllib.parse.quote_plus
        pair = f"{quote(section.client_id)}:{quote(secret)}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}

    async def _discover(self) -> ProviderMetadata:
        issuer = self._section.issuer
        what = "its discovery document"
        document = await self._client.get(issuer.rstrip("/") + _DISCOVERY, what=what)
        try:
            found = msgspec.convert(document, ProviderMetadata)
            if found.issuer != issuer:
                raise ValueError(
                    "it names another issuer than oidc.issuer; both have to be the same, to the last /"
                )
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                _check_endpoint(name, getattr(found, name), on_loopback=self._on_loopback)
            _check_abilities(found)
        except ValueError as why:
            raise provider_unavailable(f"{what}: {why}") from None
        return found

    async def _fetch_keys(self) -> SigningKeys:
        metadata = await self.metadata()
        document = await self._client.get(metadata.jwks_uri, what="its key set")
        try:
            return SigningKeys(document)
        except ValueError as why:
            raise provider_unavailable(f"its key set: {why}") from None


def _check_endpoint(name: str, url: str, *, on_loopback: bool) -> None:
    try:
        check_endpoint(url, http_on_loopback=on_loopback)
    except ValueError as why:
        raise ValueError(f"'{name}' is no URL to use: {why}") from None


def _check_abilities(metadata: ProviderMetadata) -> None:
    methods = metadata.code_challenge_methods_supported
    if "code" not in metadata.response_types_supported:
        raise ValueError("it does not support the authorization code")
    if methods is not None and "S256" not in methods:
        raise ValueError("it does not support PKCE with S256")
    if not set(ALGORITHMS) & set(metadata.id_token_signing_alg_values_supported):
        raise ValueError(f"it signs with none of {', '.join(ALGORITHMS)}")


def _not_exchanged(document: dict[str, Any]) -> Exception:
    error = document.get("error")
    if error == "invalid_grant":
        return login_failed("the provider refuses the code: it was used already, or is too old")
    if error in ("invalid_client", "unauthorized_client"):
        return provider_unavailable("it refuses oidc.client_id or the secret in oidc.client_secret_file")
    return provider_unavailable("its token endpoint refused the request")


def _read_secret(path: pathlib.Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(_SECRET_MAX + 1)
        secret = raw.decode().strip() if len(raw) <= _SECRET_MAX else ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise provider_unavailable(f"oidc.client_secret_file cannot be read: {why}") from None
    if not secret or not secret.isprintable():
        raise provider_unavailable("oidc.client_secret_file holds no secret of one line, or a very long one")
    HIDDEN_VALUES.add(secret)
    return secret
