"""Logins with OpenID Connect: the authorization code flow with PKCE, state and nonce.

`start` sends a browser to the provider; `finish` takes what it comes back with, and returns who it is and what that person
may do. Nothing is kept in between but the sealed cookie. Who the caller is afterwards (user, session, the one-time code of
the login page) is the API's part.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import itertools
import re
import urllib.parse
from collections.abc import AsyncIterator
from typing import Final

import structlog

from corral.controller.accounts.oidc.claims import OidcIdentity, identity_of, issuer_host
from corral.controller.accounts.oidc.cookie import (
    LIFE,
    KeySource,
    LoginState,
    clear_cookie,
    cookie_name,
    return_path,
    seal_state,
    set_cookie,
    unseal_state,
)
from corral.controller.accounts.oidc.errors import login_failed, no_role, provider_unavailable
from corral.controller.accounts.oidc.http import SECONDS
from corral.controller.accounts.oidc.id_token import (
    check_access_hash,
    check_claims,
    signed_claims,
    token_header,
)
from corral.controller.accounts.oidc.provider import OidcProvider
from corral.controller.accounts.oidc.values import CALLBACK_PATH, CallbackQuery, FinishedLogin, StartedLogin
from corral.domain.accounts.oidc_bindings import bindings_of, read_group_table
from corral.domain.bindings import Binding
from corral.errors import CorralError, short_list
from corral.system.clock import Clock
from corral.system.entropy import Entropy
from corral.system.oidc_config import OidcSection

MOST_AT_ONCE: Final = 32
"""Logins that ask the provider at the same time."""
_CODE_MAX: Final = 4096
_SHOWN_GROUPS: Final = 50
_SECRET_BYTES: Final = 32
_ERROR: Final = re.compile(r"[a-z_]{1,60}")
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_log = structlog.get_logger("corral.controller.accounts")


class OidcLogin:
    """Logins with one provider. It has no tasks and nothing to close; a provider that is down fails these logins alone."""

    def __init__(
        self,
        section: OidcSection,
        *,
        public_url: str,
        key: KeySource,
        clock: Clock,
        entropy: Entropy,
        seconds: float = SECONDS,
    ) -> None:
        """`public_url`: where the provider sends people back to, and where their logins have to begin; `seconds` is for all
        that one login asks of the provider."""
        self._section = section
        self.public_url = public_url
        self._seconds = seconds
        self._key_source = key
        self._key: bytes | None = None
        self._clock = clock
        self._entropy = entropy
        self._table = read_group_table(section.bindings)
        self._redirect_uri = public_url + CALLBACK_PATH
        self._provider = OidcProvider(section, redirect_uri=self._redirect_uri, clock=clock)
        self._under_way = 0
        self._secure = public_url.startswith("https://")

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """All that groups of the provider can bring."""
        return tuple(itertools.chain.from_iterable(self._table.values()))

    @property
    def display_name(self) -> str:
        """The provider's name on the login page."""
        return self._section.display_name or issuer_host(self._section.issuer)

    @property
    def cookie_name(self) -> str:
        return cookie_name(secure=self._secure)

    @property
    def clear_cookie(self) -> str:
        """`Set-Cookie` of every answer to a callback, a refusal too: a cookie serves one login."""
        return clear_cookie(secure=self._secure)

    async def start(self, *, return_to: str = "/", page_challenge: str = "") -> StartedLogin:
        """OIDC_UNAVAILABLE; OIDC_FAILED for a bad challenge.

        `page_challenge` is the SHA-256 (base64url) of a secret that the login page keeps in its own storage, and shows with
        the one-time code. It proves that the page which logs in is the one that began: another program on this host could
        plant a cookie of its own login, because cookies ignore ports, and storage does not."""
        if page_challenge and _CHALLENGE.fullmatch(page_challenge) is None:
            raise login_failed("'challenge' is not the SHA-256 of a secret, in base64url")
        async with self._asking():
            metadata = await self._provider.metadata()
        state = LoginState(
            state=self._secret(),
            nonce=self._secret(),
            verifier=self._secret(),
            return_path=return_path(return_to),
            page_challenge=page_challenge,
            expires=int((self._clock.now() + LIFE).timestamp()),
            issuer=self._section.issuer,
        )
        value = seal_state(state, key=self._sealing_key(), entropy=self._entropy)
        return StartedLogin(
            location=self._authorization_url(metadata.authorization_endpoint, state),
            set_cookie=set_cookie(value, secure=self._secure),
        )

    async def finish(self, query: CallbackQuery, *, cookie: str) -> FinishedLogin:
        """OIDC_FAILED, OIDC_NO_ROLE, OIDC_UNAVAILABLE. `cookie` is the value of `cookie_name`; empty: there is none."""
        begun = self._begun(query, cookie)  # not logged: anybody can send what is no login
        try:
            async with self._asking():
                identity = await self._identity(query, begun)
        except CorralError as error:
            _log.warning("oidc_login.failed", code=error.code.name, reason=str(error))
            raise
        return FinishedLogin(
            identity=identity,
            bindings=self._bindings(identity),
            return_path=begun.return_path,
            page_challenge=begun.page_challenge,
        )

    def _begun(self, query: CallbackQuery, cookie: str) -> LoginState:
        """The login that this answer belongs to, if the answer has a code."""
        issuer = self._section.issuer
        begun = unseal_state(cookie, key=self._sealing_key(), issuer=issuer, now=self._clock.now())
        if not hmac.compare_digest(query.state.encode("utf-8", "replace"), begun.state.encode()):
            raise login_failed(
                "the answer belongs to another login than the one that this browser started last"
            )
        if query.error:
            raise _refused_there(query.error)
        if not query.code or len(query.code) > _CODE_MAX or not query.code.isprintable():
            raise login_failed("the provider sent no code")
        return begun

    def _bindings(self, identity: OidcIdentity) -> tuple[Binding, ...]:
        bindings = bindings_of(identity.groups, self._table)
        if not bindings:
            _log.warning(
                "oidc_login.refused",
                user=identity.user_name,
                subject=identity.subject,
                name=identity.name,
                groups=short_list(identity.groups, _SHOWN_GROUPS) or "none",
                reason="none of these groups is in oidc.bindings",
            )
            raise no_role()
        _log.info(
            "oidc_login.succeeded", user=identity.user_name, subject=identity.subject, name=identity.name
        )
        return bindings

    async def _identity(self, query: CallbackQuery, begun: LoginState) -> OidcIdentity:
        section = self._section
        metadata = await self._provider.metadata()
        named = query.iss or not metadata.authorization_response_iss_parameter_supported
        if not named or (query.iss and query.iss != section.issuer):
            raise login_failed("the answer is of another provider")
        tokens = await self._provider.redeem(query.code, begun.verifier)
        header = token_header(tokens.id_token)
        keys = (await self._provider.keys_for(header)).of(header)
        claims = signed_claims(tokens.id_token, keys)
        check_claims(
            claims,
            issuer=section.issuer,
            client_id=section.client_id,
            nonce=begun.nonce,
            now=self._clock.now(),
        )
        check_access_hash(claims, tokens.access_token, header.alg)
        return identity_of(
            claims,
            issuer=section.issuer,
            name_claim=section.name_claim,
            groups_claim=section.groups_claim,
        )

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """A place among those that ask the provider, with the deadline of all that is asked."""
        if self._under_way >= MOST_AT_ONCE:
            raise provider_unavailable(f"{MOST_AT_ONCE} logins wait for it already", retry_after=2)
        self._under_way += 1
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            raise provider_unavailable(f"it did not answer within {self._seconds:g} s") from None
        finally:
            self._under_way -= 1

    def _authorization_url(self, endpoint: str, state: LoginState) -> str:
        digest = hashlib.sha256(state.verifier.encode()).digest()
        query = urllib.parse.urlencode(
            {
                "response_type": "code",
                "client_id": self._section.client_id,
                "redirect_uri": self._redirect_uri,
                "scope": " ".join(self._section.scopes),
                "state": state.state,
                "nonce": state.nonce,
                "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            }
        )
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"

    def _secret(self) -> str:
        return base64.urlsafe_b64encode(self._entropy.secret(_SECRET_BYTES)).rstrip(b"=").decode()

    def _sealing_key(self) -> bytes:
        if self._key is None:
            self._key = self._key_source()
        return self._key


def _refused_there(error: str) -> CorralError:
    """The provider's own refusal; its texts are not repeated, for anybody can write them into a link."""
    if error in ("access_denied", "consent_required", "interaction_required", "login_required"):
        return login_failed("the provider did not let you in, or you did not agree")
    if error in ("temporarily_unavailable", "server_error"):
        return provider_unavailable("it says that it has a problem")
    known = error if _ERROR.fullmatch(error) else "an unknown error"
    return login_failed(
        f"the provider refuses the request ({known})",
        hint="check oidc.client_id, oidc.scopes and http.public_url, and what the provider knows about this client",
    )
