"""JSON documents of an OpenID Connect provider: bounded in size and depth before they are decoded. The caller has the
deadline. Redirects are not followed: only the configured issuer and the endpoints that it names are asked."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from corral.controller.accounts.oidc.errors import provider_unavailable
from corral.domain.json_limits import MAX_DEPTH, json_deeper_than, repeated_key
from corral.errors import Retryable
from corral.system.http_exchange import HttpAnswer, HttpFault, OutwardRequest, http_exchange
from corral.system.oidc_config import check_web_url
from corral.system.threads import to_end

SECONDS: Final = 10.0
"""For all that one login asks of the provider."""
MOST_BYTES: Final = 256 * 1024
URL_MAX: Final = 2048
_PORTS: Final = {"http": 80, "https": 443}


class JsonAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    document: dict[str, Any]


def check_endpoint(url: str, *, http_on_loopback: bool) -> str:
    """A URL of the provider; ValueError unless it is https, as `check_web_url`, and of a bounded length."""
    if len(url) > URL_MAX:
        raise ValueError(f"it is longer than {URL_MAX} characters")
    return check_web_url(url, http_on_loopback=http_on_loopback, query=True)


def json_object(raw: bytes) -> dict[str, Any]:
    """The object; ValueError when it is none, is too deep, or has a key twice."""
    if json_deeper_than(raw, MAX_DEPTH):
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    if repeated_key(raw) is not None:
        raise ValueError("a key stands twice in it")
    return found


class JsonClient:
    """Asks the provider. OIDC_UNAVAILABLE for everything but a JSON object with status 200, or 4xx for a form."""

    def __init__(self, *, ca_file: str) -> None:
        self._ca_file = ca_file
        self._tls: ssl.SSLContext | None = None

    async def get(self, url: str, *, what: str) -> dict[str, Any]:
        answer = await self._ask(_request(url, headers={"Accept": "application/json"}), what)
        if answer.status != 200:
            raise provider_unavailable(f"{what}: it answered {answer.status}")
        return answer.document

    async def post_form(
        self, url: str, form: Mapping[str, str], *, headers: Mapping[str, str], what: str
    ) -> JsonAnswer:
        """The answer, also one that refuses (400 to 403); nothing is sent twice."""
        sent = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            **headers,
        }
        body = urllib.parse.urlencode(form).encode()
        return await self._ask(_request(url, method="POST", headers=sent, body=body), what)

    async def _ask(self, request: OutwardRequest, what: str) -> JsonAnswer:
        try:
            if self._tls is None:
                self._tls = await to_end(_tls_context, self._ca_file)
            addresses = await _addresses(request)
            async with http_exchange(request, addresses, timeout=SECONDS, tls=self._tls) as answer:
                if answer.status not in (200, 400, 401, 403):
                    raise _unexpected(answer, what)
                raw = await _body(answer)
        except HttpFault as fault:
            raise provider_unavailable(f"{what}: {fault}") from None
        except OSError as error:
            raise provider_unavailable(f"{what}: {error.strerror or error}") from None
        try:
            return JsonAnswer(status=answer.status, document=json_object(raw))
        except ValueError as why:
            raise provider_unavailable(f"{what}: {why} (status {answer.status})") from None


def _tls_context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # an SSLError is one
        raise provider_unavailable(f"oidc.ca_file cannot be read: {error.strerror or error}") from None


def _request(
    url: str, *, method: str = "GET", headers: Mapping[str, str], body: bytes = b""
) -> OutwardRequest:
    """The URL is checked: by the configuration, or by `check_endpoint`."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or _PORTS[parts.scheme]
    shown = f"[{host}]" if ":" in host else host
    return OutwardRequest(
        scheme=parts.scheme,
        host=host,
        port=port,
        host_header=shown if port == _PORTS[parts.scheme] else f"{shown}:{port}",
        path=urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")),
        method=method,
        headers=headers,
        body=body,
    )


async def _addresses(request: OutwardRequest) -> list[str]:
    """Private ones, too: an administrator has configured the issuer, and it alone names the endpoints."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(request.host, request.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise HttpFault(f"the host '{request.host}' cannot be resolved") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _unexpected(answer: HttpAnswer, what: str) -> Retryable:
    if 300 <= answer.status < 400:
        return provider_unavailable(f"{what}: it answered {answer.phrase}; redirects are not followed")
    return provider_unavailable(f"{what}: it answered {answer.phrase}")


async def _body(answer: HttpAnswer) -> bytes:
    if answer.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise HttpFault("the answer is packed, though it was asked not to be")
    if (answer.content_length or 0) > MOST_BYTES:
        raise HttpFault(f"the answer has more than {MOST_BYTES} bytes")
    raw = bytearray()
    async with contextlib.aclosing(answer.blocks()) as blocks:
        async for block in blocks:
            raw += block
            if len(raw) > MOST_BYTES:
                raise HttpFault(f"the answer has more than {MOST_BYTES} bytes")
    return bytes(raw)
