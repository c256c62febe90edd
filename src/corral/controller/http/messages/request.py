"""HTTP request from the ASGI server: headers, address, and a body that is read with a limit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import unquote

from corral.domain.causes import request_id
from corral.errors import Code, Rejected
from corral.system.addresses import LOOPBACK, counted_as
from corral.system.entropy import Entropy, new_id

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_BODY_SECONDS: Final = 30.0
_LONGEST_ID: Final = 200
"""Longer than any id: what is cut here is refused."""
ABORT: Final = "corral.abort"
"""Key of the scope: a function that drops the connection and what is buffered for it."""
REQUEST_ID: Final = "corral.request_id"
PRINCIPAL: Final = "corral.principal"
PAGE_MODULE: Final = "corral.page"
"""Keys of the scope, for middleware: the id of the request, the principal that made it, and the module whose page did."""
PRIVATE: Final = "corral.private"
"""Key of the scope: the request came by the private socket of this process."""
JSON_TYPE: Final = "application/json"
PATCH_TYPE: Final = "application/merge-patch+json"
"""RFC 7396, which every PATCH here is."""
_CHARSETS: Final = frozenset({"", "utf-8", "utf8"})
_TLS_SCHEMES: Final = frozenset({"https", "wss"})
_FORWARDING: Final = (
    b"x-forwarded-for",
    b"x-forwarded-proto",
    b"x-forwarded-host",
    b"x-forwarded-port",
    b"x-forwarded-server",
    b"forwarded",
    b"x-real-ip",
    b"via",
)


class BodyPace:
    """How fast a body comes. One that comes with less than `SLOWEST` bytes a second may pause for `pause_seconds`,
    any other for `idle_seconds`; only the time in which we waited for the caller counts."""

    SLOWEST: Final = 1024

    def __init__(self, *, pause_seconds: float, idle_seconds: float) -> None:
        self._pause = pause_seconds
        self._idle = idle_seconds
        self.size = 0
        self.waited = 0.0

    @property
    def patience(self) -> float:
        """Seconds that the next piece may take."""
        fast = self.size > self.SLOWEST * max(self.waited, 1.0)
        return self._idle if fast else min(self._pause, self._idle)


_LONGEST_PATH: Final = 512
_DECODINGS: Final = 4
_MAYBE_TICKET: Final = re.compile(
    r"(?=[a-z0-9_-]*[A-Z])[A-Za-z0-9_-]{32,}|(?<![a-z0-9])[a-z2-7]{52}(?![a-z0-9])"
)
"""Random characters. Ids and digests have no capitals."""
CLIENT_CLOSED: Final = 499
"""Status in metrics and logs of a request whose caller disconnected before the response."""


class ClientGone(Exception):
    """The caller disconnected before the request was complete: no response can be sent."""


class HttpRequest:
    """The parts of a request that the pipeline needs, decoded when asked for."""

    __slots__ = (
        "_headers",
        "_receive",
        "_send",
        "address",
        "id",
        "is_secure",
        "is_socket",
        "label",
        "method",
        "path",
        "query",
        "scope",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, entropy: Entropy) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, value)
        self._headers = headers
        self.is_socket: bool = scope["type"] == "websocket"
        self.method: str = scope.get("method", "GET")  # a WebSocket has none: it begins as a GET
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        client = scope.get("client")
        self.address: str = client[0] if client else ""
        """Of the client: the peer, or whom a trusted proxy names."""
        self.is_secure: bool = scope.get("scheme") in _TLS_SCHEMES
        """Whether the client's connection has TLS: with our own listener, or by the word of a trusted proxy."""
        given = request_id(headers.get(b"x-request-id", b"")[:_LONGEST_ID].decode("latin-1"))
        self.id: str = given or new_id("req", entropy)
        """The caller's `X-Request-Id`, if it may be one: it names the request in log records, and proves nothing."""
        scope[REQUEST_ID] = self.id
        self.label: str | None = None
        """The label of the request in metrics, when not its path in the route table."""
        self.status = 200
        """The status that metrics count, when the answer was sent in pieces."""

    def header(self, name: bytes) -> str | None:
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    @property
    def is_local(self) -> bool:
        """Whether both of its ends are on this host, and nothing of it leaves the host."""
        reached, _ = self.scope.get("server") or ("", 0)
        if self.is_forwarded:
            return False
        return counted_as(self.address) == LOOPBACK and counted_as(str(reached)) == LOOPBACK

    @property
    def is_forwarded(self) -> bool:
        """Whether it says that a proxy has passed it on, trusted or not. Without that, the peer has made it itself."""
        return any(name in self._headers for name in _FORWARDING)

    @property
    def id_header(self) -> tuple[bytes, bytes]:
        """The header that every answer has."""
        return b"x-request-id", self.id.encode()

    @property
    def shown_path(self) -> str:
        """The path as logs may show it."""
        return shown_path(self.path)

    def made_by(self, principal: str) -> None:
        """Who makes it, for the access log."""
        self.scope[PRINCIPAL] = principal

    async def receive(self) -> Message:
        return await self._receive()

    async def send(self, message: Message) -> None:
        await self._send(message)

    def abort(self) -> None:
        """Drop the connection with all that is buffered for it."""
        cut: Callable[[], None] = self.scope[ABORT]
        cut()

    async def read_body(self, *, limit: int, pause_seconds: float) -> bytes:
        """The whole body. Never holds more than `limit` and one network read of it. BAD_REQUEST when it comes
        too slowly."""
        self.refuse_declared(limit)
        pace = BodyPace(pause_seconds=pause_seconds, idle_seconds=_BODY_SECONDS)
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                return await self._collect(limit, pace)
        except TimeoutError:
            raise Rejected(
                Code.BAD_REQUEST, f"the body did not arrive within {_BODY_SECONDS:g} seconds"
            ) from None

    def refuse_declared(self, limit: int) -> None:
        """BODY_TOO_LARGE by the declared Content-Length."""
        declared = self.declared_size
        if declared is not None and declared > limit:
            raise too_large(limit)

    def is_small(self, limit: int) -> bool:
        """Does it declare a Content-Length, and no more than this?"""
        declared = self.declared_size
        return declared is not None and declared <= limit

    @property
    def declared_size(self) -> int | None:
        """Its Content-Length; None: it has none."""
        declared = self.header(b"content-length")
        return int(declared[:19]) if declared is not None and declared.isdecimal() else None

    async def next_piece(self, pace: BodyPace, *, limit: int) -> tuple[bytes, bool]:
        """The next piece of the body, and whether more of it follows. BODY_TOO_LARGE, BAD_REQUEST when it does not
        come in time, `ClientGone`."""
        loop = asyncio.get_running_loop()
        began, patience = loop.time(), pace.patience
        try:
            async with asyncio.timeout(patience):
                message = await self._receive()
        except TimeoutError:
            raise Rejected(
                Code.BAD_REQUEST,
                f"the body was given up: nothing came for {patience:g} seconds",
                hint="send it again",
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        pace.waited += loop.time() - began
        piece: bytes = message.get("body", b"")
        pace.size += len(piece)
        if pace.size > limit:
            raise too_large(limit)
        return piece, message.get("more_body", False)

    async def _collect(self, limit: int, pace: BodyPace) -> bytes:
        parts: list[bytes] = []
        more = True
        while more:
            piece, more = await self.next_piece(pace, limit=limit)
            parts.append(piece)
        return b"".join(parts)

    def require_bytes(self) -> None:
        """Refuse a body that wraps what is uploaded: it would be stored wrapped; and a part of a file, which would take the
        place of the whole (RFC 9110, 14.5)."""
        if self.header(b"content-range") is not None:
            raise Rejected(
                Code.BAD_REQUEST,
                "a part of a file cannot be stored: Content-Range is not supported",
                hint="send the whole file as the body",
                field="Content-Range",
            )
        kind = (self.header(b"content-type") or "").partition(";")[0].strip().lower()
        coding = (self.header(b"content-encoding") or "identity").lower()
        if kind.startswith("multipart/") or coding != "identity":
            raise Rejected(
                Code.UNSUPPORTED_MEDIA_TYPE,
                f"cannot take a body of type '{kind[:80]}'"
                if coding == "identity"
                else f"cannot take a body with Content-Encoding '{coding[:40]}'",
                hint="send the bytes of the file themselves as the body",
            )

    def require_plain(self) -> None:
        """Refuse a body that was compressed on its way."""
        coding = (self.header(b"content-encoding") or "identity").lower()
        if coding != "identity":
            raise Rejected(
                Code.UNSUPPORTED_MEDIA_TYPE,
                f"cannot take a body with Content-Encoding '{coding[:40]}'",
                hint="send it as it is",
            )

    @property
    def is_json(self) -> bool:
        """Whether its body is declared as JSON."""
        kind = (self.header(b"content-type") or "").partition(";")[0]
        return kind.strip().lower() == JSON_TYPE

    def require_json(self) -> None:
        """Refuse a body that is not declared as JSON: browsers send forms cross-origin without a preflight."""
        given = self.header(b"content-type") or ""
        kind, _, rest = given.partition(";")
        parameters = {
            name.strip().lower(): value.strip().strip('"').lower()
            for name, _, value in (part.partition("=") for part in rest.split(";"))
        }
        known = (JSON_TYPE, PATCH_TYPE) if self.method == "PATCH" else (JSON_TYPE,)
        if kind.strip().lower() in known and parameters.get("charset", "") in _CHARSETS:
            return
        raise Rejected(
            Code.UNSUPPORTED_MEDIA_TYPE,
            f"cannot read a body of type '{given[:80]}'" if given else "the body has no Content-Type",
            hint="send 'Content-Type: application/json'",
        )


def shown_path(path: str) -> str:
    """A path as logs may show it: cut to a bound, and without a query that was encoded into it, or a part that may be
    a ticket. What was encoded several times is looked at decoded."""
    path = path[:_LONGEST_PATH]
    plain = path
    for _ in range(_DECODINGS):
        plain = unquote(plain)
    masked = _MAYBE_TICKET.sub("***", plain.partition("?")[0])
    return path if masked == plain else masked


def too_large(limit: int) -> Rejected:
    return Rejected(Code.BODY_TOO_LARGE, f"the body is larger than {limit} bytes")
