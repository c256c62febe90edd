"""A provider of OpenID Connect on loopback that is honest and strict, unless a test tells it otherwise: real sockets,
real keys. It checks PKCE, the redirect and the client, and takes each code once."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import json
import ssl
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

CLIENT = "corral"
SECRET = "a secret/with+signs"
KEY_TYPES = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}


class _Algorithms(jws.JWSRegistry):
    """All of them, the bad ones too, without warnings."""

    def get_alg(self, name: str) -> Any:
        return self.algorithms[name]


def new_key(algorithm: str, kid: str) -> Key:
    kind = KEY_TYPES.get(algorithm, "RSA")
    if kind == "RSA":
        return RSAKey.generate_key(2048, {"kid": kid})
    if kind == "EC":
        return ECKey.generate_key("P-256", {"kid": kid})
    return OKPKey.generate_key("Ed25519", {"kid": kid})


@functools.cache
def _first_key(algorithm: str) -> Key:
    return new_key(algorithm, "one")


def signed(header: dict[str, Any], claims: dict[str, Any] | bytes, key: Any) -> str:
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return jws.serialize_compact(header, payload, key, registry=_Algorithms(strict_check_header=False))


def half_hash(text: str, digest: Callable[[bytes], Any] = hashlib.sha256) -> str:
    whole = digest(text.encode()).digest()
    return base64.urlsafe_b64encode(whole[: len(whole) // 2]).rstrip(b"=").decode()


class ScriptedProvider:
    """Tests change the public attributes between two steps of a login."""

    def __init__(self, *, algorithm: str = "RS256", tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._codes: dict[str, dict[str, str]] = {}
        self._server: asyncio.Server
        self._port = 0
        self.algorithm = algorithm
        self.key: Any = _first_key(algorithm)
        self.listed: list[dict[str, Any]] = [self.key.as_dict(private=False)]
        self.header: dict[str, Any] = {"alg": algorithm, "kid": "one"}
        self.claims: dict[str, Any] = {}
        """Put over those of an honest token; None takes a claim away."""
        self.metadata: dict[str, Any] = {}
        """Put over the discovery document."""
        self.answers: dict[str, bytes] = {}
        """By path: what is sent instead of an answer, as it is."""
        self.silent: set[str] = set()
        """Paths that are never answered."""
        self.id_token: str | None = None
        self.requests: list[str] = []
        self.hung_up = asyncio.Event()
        """Somebody gave up a silent path."""

    @property
    def issuer(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self._port}/realm"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    def authorize(self, location: str) -> dict[str, str]:
        """What a person does in the browser: agree. Returns the parameters that the browser comes back with."""
        address, _, query = location.partition("?")
        assert address == f"{self.issuer}/authorize"
        sent = dict(urllib.parse.parse_qsl(query, strict_parsing=True))
        assert sent["response_type"] == "code"
        assert sent["client_id"] == CLIENT
        assert sent["code_challenge_method"] == "S256"
        assert "openid" in sent["scope"].split()
        code = f"code-{len(self._codes)}"
        self._codes[code] = sent
        return {"code": code, "state": sent["state"]}

    def honest_claims(self, sent: dict[str, str], access_token: str) -> dict[str, Any]:
        now = int(time.time())
        digest = hashlib.sha512 if self.algorithm == "EdDSA" else hashlib.sha256
        claims = {
            "iss": self.issuer,
            "sub": "42",
            "aud": CLIENT,
            "exp": now + 300,
            "iat": now,
            "nonce": sent["nonce"],
            "at_hash": half_hash(access_token, digest),
            "preferred_username": "alice",
            "groups": ["everybody", "ops"],
        }
        merged = {**claims, **self.claims}
        return {name: value for name, value in merged.items() if value is not None}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            async with _closed(writer):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *rest = head.split("\r\n")
                headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
                body = (await reader.readexactly(int(headers.get("content-length", "0")))).decode()
                path = line.split()[1].removeprefix("/realm")
                self.requests.append(path)
                if path in self.silent:
                    await reader.read()
                    self.hung_up.set()
                elif path in self.answers:
                    writer.write(self.answers[path])
                else:
                    writer.write(self._answer(path, headers, body))

    def _answer(self, path: str, headers: dict[str, str], body: str) -> bytes:
        if path == "/.well-known/openid-configuration":
            return answer(self._discovery())
        if path == "/keys":
            return answer({"keys": self.listed})
        assert path == "/token", path
        return self._exchanged(dict(urllib.parse.parse_qsl(body, strict_parsing=True)), headers)

    def _discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code", "id_token"],
            "code_challenge_methods_supported": ["plain", "S256"],
            "id_token_signing_alg_values_supported": [self.algorithm],
            "claims_supported": ["sub"],
            **self.metadata,
        }

    def _exchanged(self, form: dict[str, str], headers: dict[str, str]) -> bytes:
        methods = self.metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if _client_of(form, headers, methods[0]) != (CLIENT, SECRET if methods[0] != "none" else ""):
            return answer({"error": "invalid_client"}, status="401 Unauthorized")
        sent = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            sent is None
            or form["grant_type"] != "authorization_code"
            or form["redirect_uri"] != sent["redirect_uri"]
            or challenge != sent["code_challenge"]
        ):
            return answer({"error": "invalid_grant"}, status="400 Bad Request")
        token = self.id_token or signed(self.header, self.honest_claims(sent, "access"), self.key)
        return answer({"access_token": "access", "token_type": "Bearer", "id_token": token})


def answer(document: Any, *, status: str = "200 OK") -> bytes:
    return body_answer(json.dumps(document).encode(), status=status)


def body_answer(body: bytes, *, status: str = "200 OK", extra: str = "") -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n{extra}\r\n"
    ).encode() + body


def _client_of(form: dict[str, str], headers: dict[str, str], method: str) -> tuple[str, str]:
    if method == "client_secret_basic":
        pair = base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode()
        name, _, secret = pair.partition(":")
        return urllib.parse.unquote_plus(name), urllib.parse.unquote_plus(secret)
    assert "authorization" not in headers
    return form["client_id"], form.get("client_secret", "")


@contextlib.asynccontextmanager
async def _closed(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
