"""Requests that no library would send, drawn by hypothesis, and the answers to them as bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import hypothesis.strategies as st
from http_rig import DEADLINE, Rig

from corral.controller.http.messages.responses import SECURITY_HEADERS

LATIN = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=30)
"""A value that HTTP/1.1 can carry: no library sends all of these, and parsers differ about them."""
ANY_BYTES = st.binary(max_size=40)
LONG = st.sampled_from((100, 5_000, 20_000, 66_000))

METHODS = st.sampled_from(
    ("GET", "GET", "GET", "POST", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", "",
     "G T", "PRI", "M-SEARCH", "GET\t", "é")
)  # fmt: skip
VERSIONS = st.sampled_from(
    ("HTTP/1.1",) * 10 + ("HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "http/1.1", "", "HTTP/1.1 x")
)
SEGMENTS = st.sampled_from(
    ("api", "v1", "health", "ready", "groups", "instances", "nodes", "events", "stream", "console", "ws", "modules", "templates",
     "-", "files", "audit", "tokens", "docs", ".", "..", "", "%2e%2e", "%2f", "%00", "%ff", "%", "%zz", "a" * 300, "é", "\x7f", "%c3%a9",
     "%25%32%65", "..;", "~", "*", "\\", "x:y", "@", "%0d%0aX-A:%20b")
)  # fmt: skip
PATHS = st.lists(SEGMENTS, max_size=7).map(lambda parts: "/" + "/".join(parts))
KNOWN_PATHS = st.sampled_from(
    ("/health", "/api/v1/groups", "/api/v1/events", "/api/v1/events/stream", "/api/v1/instances/x/console/ws", "/api/v1/auth/me",
     "/api/v1/modules/m/x", "/api/v1/templates/t/-/files/a", "/metrics", "/api/v1/openapi.json", "/api/v1/tokens", "/", "/login", "/docs", "/ui/assets/x", "/api/v1/auth/login", "/api/v1/auth/device")
)  # fmt: skip
QUERIES = st.one_of(
    st.just(""),
    st.sampled_from(
        ("?", "?a=b", "?limit=-1", "?limit=1&limit=2", "?%00=%ff", "?ticket=", "?ticket=x", "?after=0-0", "?after=%f0%9f%92%a9", "?types=A"
         "&types=" + "B" * 2000, "?" + "&" * 3000, "?cursor=e30", "?limit=" + "9" * 5000, "?a[]=1", "?=;;=", "?\\u0000")
    ),
)  # fmt: skip
TARGETS = st.one_of(
    st.tuples(KNOWN_PATHS, QUERIES).map("".join),
    st.tuples(PATHS, QUERIES).map("".join),
    st.sampled_from(
        ("*", "", "http://evil.example.org/health", "//evil/health", "health", "/ health", "?", "#")
    ),
)
NAMES = st.sampled_from(
    ("Accept", "Authorization", "Cache-Control", "Connection", "Content-Encoding", "Content-Type", "Cookie", "Expect", "Forwarded",
     "Host", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "Origin", "Range", "Referer", "Sec-Fetch-Site",
     "Sec-WebSocket-Extensions", "Sec-WebSocket-Key", "Sec-WebSocket-Protocol", "Sec-WebSocket-Version", "TE", "Trailer", "Upgrade",
     "X-Corral-CSRF", "X-Forwarded-For", "X-HTTP-Method-Override", "X-Request-Id", "X", "X Y", "", ":authority", "Ã©")
)  # fmt: skip
VALUES = st.one_of(
    LATIN,
    st.sampled_from(
        ("", "*", "close", "upgrade", "Upgrade, close", "websocket", "13", "0", "null", "localhost", "evil.example.org", "127.0.0.1:80",
         "http://localhost", "same-origin", "cross-site", "Bearer", "Bearer ", "Bearer x", "Bearer corral_tok-x_y", "Bearer cw1.a.b",
         "Bearer é", "Basic eDp5", "application/json", "text/plain; charset=é", "gzip", "100-continue", '"1"', 'W/"1"', '"', "bytes=0-",
         "1-1", "0-0", "9" * 400, "-1", "ticket.x", "corral.console, ticket.é", "chunked", "trailers", "PUT", "a=b; c=d")
    ),
)  # fmt: skip
FIELDS = st.tuples(NAMES, VALUES)
UPGRADE = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)

OF_PAGES = (b"cache-control", b"content-security-policy")
"""Headers for which pages have values of their own."""

COOKIE_TEXTS = st.one_of(
    LATIN,
    st.sampled_from(
        ("", "=", ";", ";;;;", "a", "=b", "a=", 'a="', 'a="b;c"', "a=b,c=d", "a=b; a=c", "$Version=1; a=b", "a==b", "\t", "a=é", "a=\x7f",
         "a=%00", "__Host-a=b", "__Secure-a=b", " a = b ")
    ),
)  # fmt: skip


@st.composite
def cookie_headers(draw: st.DrawFn, names: Sequence[str]) -> list[str]:
    """Values of `Cookie` headers: some of the names that we would give, in every wrong form."""
    named = st.tuples(st.sampled_from(names), st.sampled_from(("=", "", " = ", "==")), LATIN).map("".join)
    few = st.lists(st.one_of(named, COOKIE_TEXTS), max_size=6).map("; ".join)
    many = st.tuples(st.one_of(named, COOKIE_TEXTS), st.sampled_from((50, 500, 3000))).map(
        lambda each: "; ".join([each[0][:15]] * each[1])
    )
    huge = st.tuples(named, LONG).map(lambda each: each[0] + "x" * each[1])
    return draw(st.lists(st.one_of(few, few, many, huge), min_size=1, max_size=4))


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """A head with an end, whatever else is wrong with it."""
    fields: list[tuple[str, str]] = draw(st.lists(FIELDS, max_size=6))
    if draw(st.booleans()):
        fields.append(
            ("Host", draw(st.sampled_from(("localhost", "evil.example.org", "[::1", "a b", "x" * 300))))
        )
    if draw(st.integers(0, 4)) == 0:
        fields += UPGRADE[: draw(st.integers(1, 4))]
    text = written(draw(METHODS), draw(TARGETS), fields, version=draw(VERSIONS))
    if draw(st.integers(0, 5)) == 0:
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(ANY_BYTES) + text[at:]
    return text + b"\r\n\r\n"


def written(
    method: str, target: str, fields: Iterable[tuple[str, str]], *, version: str = "HTTP/1.1"
) -> bytes:
    """A head as bytes; one that closes its connection, so that the end of the answer shows."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"{method} {target} {version}\r\n{lines}Connection: close\r\n\r\n".encode(
        "utf-8" if _wide(target) else "latin-1"
    )


def _wide(text: str) -> bool:
    return any(ord(letter) > 255 for letter in text)


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return str(json.loads(self.body)["error"]["code"])
        return ""


async def exchanged(rig: Rig, *pieces: bytes) -> bytes:
    """Everything that came back until the server closed."""
    reader, writer = await asyncio.open_connection(*rig.server.address)
    try:
        said = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                while more := await reader.read(65536):
                    said += more
        return said
    finally:
        writer.transport.abort()


def head_of(head: bytes) -> Reply:
    """An answer of which the head alone was read."""
    lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    assert lines[0].startswith("HTTP/1.1 "), head
    headers: dict[str, str] = {}
    for name, _, value in (line.partition(":") for line in lines[1:]):
        assert name.lower() not in headers, f"{name} is there twice"
        headers[name.lower()] = value.strip()
    return Reply(int(lines[0].split()[1]), headers, b"")


def replies(said: bytes, *, bodiless: bool = False) -> list[Reply]:
    """The answers in what came back; each has to be whole."""
    found: list[Reply] = []
    while said:
        head, separator, said = said.partition(b"\r\n\r\n")
        assert separator, head
        reply = head_of(head)
        malformed = reply.status == 400 and "x-request-id" not in reply.headers  # the server knows no method
        length = 0 if bodiless and not malformed else int(reply.headers.get("content-length", "0"))
        assert len(said) >= length, "it was cut"
        found.append(reply._replace(body=said[:length]))
        said = said[length:]
    return found


def check(reply: Reply) -> None:
    """What holds of every answer to a request that nobody should send."""
    assert reply.status < 500, reply
    assert "set-cookie" not in reply.headers, reply
    if reply.status != 101:
        for name, value in SECURITY_HEADERS:
            found = reply.headers[name.decode()]
            assert found == value.decode() or name in OF_PAGES, reply


async def is_well(rig: Rig) -> None:
    """Everything goes on, and nothing was left behind."""
    async with rig.client() as client:
        answer: Any = (await client.get("/api/v1/auth/me")).json()
    assert answer["user"] == "admin"
