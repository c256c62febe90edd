"""Cross-origin calls from browsers: for listed origins alone, and never with cookies.

The API is called with a bearer token that a page has to know, so no answer ever allows credentials
and no origin is ever `*`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from corral.controller.http.messages.request import AsgiApp, Message, Receive, Scope, Send
from corral.controller.http.messages.responses import SECURITY_HEADERS

_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_HEADERS: Final = b"Authorization, Content-Type, Idempotency-Key, If-Match, Last-Event-ID, X-Corral-CSRF"
_EXPOSED: Final = b"Content-Disposition, Corral-Cursor, ETag, Idempotency-Replayed, Retry-After, X-Request-Id"
_MAX_AGE: Final = b"600"

Headers = list[tuple[bytes, bytes]]


class CrossOrigin:
    """Lets pages of the listed origins read the API's responses; requests of other origins pass unchanged."""

    def __init__(self, app: AsgiApp, *, origins: Iterable[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope["headers"])
        origin = given.get(b"origin")
        if origin not in self._origins or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        allowed: Headers = [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in given:
            await _preflight(send, allowed)
            return

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    *message.get("headers", ()),
                    *allowed,
                    (b"access-control-expose-headers", _EXPOSED),
                ]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_with)


async def _preflight(send: Send, allowed: Headers) -> None:
    headers = [
        *SECURITY_HEADERS,
        *allowed,
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _HEADERS),
        (b"access-control-max-age", _MAX_AGE),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
