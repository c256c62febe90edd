"""Heads, trailers, paths, cookies, and opened streams that nobody sends but who looks for a hole: each is refused clearly, or
means what it says; nothing gets in by it, and nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import urllib.parse
import weakref
from collections.abc import AsyncIterator

import httpx
import hypothesis.strategies as st
import msgspec
import pytest
from browsers import cookie_of, log_in, make_user
from hostile_requests import (
    FIELDS,
    KNOWN_PATHS,
    LATIN,
    PATHS,
    QUERIES,
    TARGETS,
    UPGRADE,
    VALUES,
    check,
    cookie_headers,
    exchanged,
    head_of,
    heads,
    is_well,
    replies,
    written,
)
from http_rig import DEADLINE, NO_LIMITS, Rig, http_rig
from hypothesis import HealthCheck, given, settings
from structlog.testing import capture_logs
from test_console_streams import talking

from corral.controller.http.pipeline.route_table import PUBLIC
from corral.controller.http.routes import ROUTES
from corral.testing.waiting import eventually

ONE_RIG = settings(max_examples=150, suppress_health_check=list(HealthCheck))
"""All examples go to one server: what one of them leaves behind, the next one meets."""

OPEN = {route.path for route in ROUTES if route.permission is PUBLIC}
OURS = "localhost"
LOGINS: weakref.WeakKeyDictionary[Rig, httpx.Response] = weakref.WeakKeyDictionary()
NAMES = ("corral", "__Host-corral-oidc", "session", "{tls}", "{plain}")


@pytest.fixture
async def hasty(data: pathlib.Path) -> AsyncIterator[Rig]:
    """One that does not wait long for what is announced and does not come; at its end nothing of all this is left."""
    limits = msgspec.structs.replace(NO_LIMITS, head_seconds=0.3, idle_seconds=1, body_pause_seconds=0.1)
    with capture_logs() as logged:
        async with http_rig(data, limits=limits) as made:
            yield made
            await settled(made)
    assert [each for each in logged if each["log_level"] in ("warning", "error", "critical")] == []


async def settled(made: Rig) -> None:
    """Everything goes on, and nothing is left of what was sent."""
    await is_well(made)
    await eventually(lambda: len(made.server.connections) == 0)
    assert made.server.buffered_bytes() == 0
    assert len(made.leading.streams) == 0


def own_names(rig: Rig) -> tuple[str, ...]:
    """Names that cookies of this cluster have, and some beside them."""
    id, port = rig.state.identity.id[:8], rig.server.address.port
    return tuple(each.format(tls=f"__Host-corral-{id}", plain=f"corral-{id}-{port}") for each in NAMES)


@pytest.mark.trap("T64")
@ONE_RIG
@given(sent=heads())
async def test_any_head_is_refused_clearly_or_answered(hasty: Rig, sent: bytes) -> None:
    for reply in replies(await exchanged(hasty, sent), bodiless=sent.startswith(b"HEAD")):
        check(reply)
        if reply.status >= 400 and not sent.startswith(b"HEAD"):
            assert reply.code, reply


@ONE_RIG
@given(
    target=st.one_of(PATHS, KNOWN_PATHS),
    query=QUERIES,
    method=st.sampled_from(("GET", "HEAD", "POST", "DELETE")),
)
async def test_no_spelling_of_a_path_opens_what_needs_a_token(
    hasty: Rig, target: str, query: str, method: str
) -> None:
    sent = written(method, target + query, [("Host", OURS)])
    for reply in replies(await exchanged(hasty, sent), bodiless=method == "HEAD"):
        check(reply)
        assert reply.status >= 400 or target in OPEN, target


@pytest.mark.trap("T64")
@ONE_RIG
@given(data=st.data())
async def test_cookies_open_nothing_and_take_nothing_away(hasty: Rig, data: st.DataObject) -> None:
    """Whatever is in them: without a token a request is nobody's, and with one it is answered as if they were not there."""
    cookies = [("Cookie", each) for each in data.draw(cookie_headers(own_names(hasty)))]
    path = data.draw(st.sampled_from(("/api/v1/groups", "/api/v1/events/stream", "/health")))
    token = data.draw(st.booleans())
    more = data.draw(st.lists(st.tuples(st.just("X-Corral-CSRF"), VALUES), max_size=2))
    fields = [
        ("Host", OURS),
        *cookies,
        *more,
        *([("Authorization", f"Bearer {hasty.admin}")] if token else []),
    ]
    (reply,) = replies(await exchanged(hasty, written("HEAD", path, fields)), bodiless=True)
    check(reply)
    size = sum(len(name) + len(value) for name, value in fields)
    allowed = {200} if token or path == "/health" else {401}
    if size > 60_000 or any(letter < " " or letter == "\x7f" for _, value in fields for letter in value):
        allowed |= {400}  # too long, or nothing that a header may hold
    assert reply.status in allowed
    assert reply.status == 400 or size < 66_000


@ONE_RIG
@given(data=st.data())
async def test_a_session_is_proven_among_any_other_cookies_and_only_by_both_of_its_secrets(
    hasty: Rig, data: st.DataObject
) -> None:
    """Programs on other ports of this host add cookies of every name; a few of ours are tried."""
    if hasty.state.users.find("ada") is None:
        await make_user(hasty)
    if hasty not in LOGINS:
        LOGINS[hasty] = await log_in(hasty)
    (name, value), secret = cookie_of(LOGINS[hasty]), LOGINS[hasty].json()["csrf"]
    others = [each[:3000] for each in data.draw(cookie_headers((name, "corral", "session")))]
    at = data.draw(st.integers(0, len(others)))
    changed = data.draw(st.sampled_from(("", "", "", "cookie", "csrf", "no csrf", "swapped")))
    shown = {"cookie": value[:-1] + "!", "swapped": secret}.get(changed, value)
    csrf = {"csrf": secret[:-1] + "!", "swapped": value}.get(changed, secret)
    cookies = [*others[:at], f"{name}={shown}", *others[at:]]
    fields = [("Host", OURS), *(("Cookie", each) for each in cookies)]
    fields += [] if changed == "no csrf" else [("X-Corral-CSRF", csrf)]
    (reply,) = replies(await exchanged(hasty, written("HEAD", "/api/v1/auth/me", fields)), bodiless=True)
    check(reply)
    if changed:
        assert reply.status in (400, 401)
    elif not any(letter < " " or letter == "\x7f" for each in others for letter in each):
        first = sum(
            pair.strip().partition("=")[0] == name for each in others[:at] for pair in each.split(";")
        )
        assert reply.status == (200 if first < 4 else 401)


@ONE_RIG
@given(data=st.data())
async def test_cookies_under_another_host_are_refused_before_anything_else(
    hasty: Rig, data: st.DataObject
) -> None:
    cookies = [("Cookie", each) for each in data.draw(cookie_headers(own_names(hasty)))]
    host = data.draw(
        st.sampled_from(("evil.example.org", "localhost.evil.example.org", "", "localhost:x", "a@localhost"))
    )
    fields = [("Host", host), *cookies, ("Authorization", f"Bearer {hasty.admin}")]
    for reply in replies(await exchanged(hasty, written("GET", data.draw(TARGETS), fields))):
        check(reply)
        assert reply.status in (400, 421)


@pytest.mark.trap("T64")
@ONE_RIG
@given(
    fields=st.lists(FIELDS, max_size=8),
    names=st.sets(st.sampled_from(("Authorization", "Host", "Cookie", "Origin")), min_size=1),
    pieces=st.lists(st.integers(1, 12), max_size=6),
    at_once=st.booleans(),
)
async def test_trailers_are_no_part_of_a_request(
    hasty: Rig, fields: list[tuple[str, str]], names: set[str], pieces: list[int], at_once: bool
) -> None:
    """A credential after the body is none, however the bytes come; and they neither break the body nor its successor."""
    body = b'{"name":"t","role":"VIEWER"}'
    chunks, rest = b"", body
    for size in pieces:
        piece, rest = rest[:size], rest[size:]
        chunks += b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
    chunks += b"%x\r\n%b\r\n" % (len(rest), rest) if rest else b""
    claimed = {
        "Authorization": f"Bearer {hasty.admin}",
        "Host": "evil.example.org",
        "Cookie": "a=b",
        "Origin": "null",
    }
    fields = [*((name, claimed[name]) for name in names), *fields]
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields if name.strip())
    trailers = b"0\r\n" + lines.encode("latin-1") + b"\r\n"
    head = written("POST", "/api/v1/tokens", [("Host", OURS), ("Transfer-Encoding", "chunked")])
    sent = (head + chunks + trailers,) if at_once else (head, chunks, trailers)
    before = len(hasty.state.tokens)
    found = replies(await exchanged(hasty, *sent))
    for reply in found:
        check(reply)
        assert (reply.status, reply.code) in ((401, "UNAUTHENTICATED"), (400, "BAD_REQUEST")), reply
    assert len(found) <= 1
    assert len(hasty.state.tokens) == before


@ONE_RIG
@given(
    order=st.lists(
        st.sampled_from(("good", "unknown", "nobody", "foreign", "page", "long")), min_size=1, max_size=25
    )
)
async def test_requests_behind_one_another_are_answered_each_once_and_in_their_order(
    hasty: Rig, order: list[str]
) -> None:
    forms = {
        "good": (b"GET /health HTTP/1.1\r\nHost: x\r\n", b"", 200),
        "unknown": (b"GET /no/%2e%2e/such HTTP/1.1\r\nHost: x\r\n", b"", 404),
        "nobody": (b"GET /api/v1/groups HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xe9\r\n", b"", 401),
        "foreign": (b"GET /health HTTP/1.1\r\nHost: evil\r\nCookie: \xff\r\n", b"", 421),
        "page": (
            b"POST /api/v1/groups HTTP/1.1\r\nHost: x\r\nOrigin: null\r\nContent-Length: 2\r\n",
            b"{}",
            403,
        ),
        "long": (b"POST /api/v1/groups HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n", b"x" * 3000, 401),
    }
    sent = b""
    for number, name in enumerate(order):
        head, body, _ = forms[name]
        end = b"Connection: close\r\n" if number == len(order) - 1 else b""
        sent += head + b"X-Request-Id: number-%d\r\n%b\r\n%b" % (number, end, body)
    found = replies(await exchanged(hasty, sent))
    assert [(each.status, each.headers["x-request-id"]) for each in found] == [
        (forms[name][2], f"number-{number}") for number, name in enumerate(order)
    ]


@pytest.mark.trap("T64")
@ONE_RIG
@given(
    parts=st.one_of(st.just(list(UPGRADE)), st.lists(st.sampled_from(UPGRADE), max_size=6)),
    more=st.lists(FIELDS, max_size=4),
    protocols=st.lists(
        st.one_of(LATIN, st.sampled_from(("corral.console", "ticket.", "ticket.x", "ticket.é" * 50))),
        max_size=4,
    ),
    path=st.sampled_from(("/api/v1/instances/lobby-1/console/ws", "/api/v1/events/stream", "/health", "/")),
)
async def test_no_opening_of_a_websocket_gets_in_without_a_token(
    hasty: Rig, parts: list[tuple[str, str]], more: list[tuple[str, str]], protocols: list[str], path: str
) -> None:
    if hasty.state.instances.find("lobby-1") is None:
        await talking(hasty)
    offered = [("Sec-WebSocket-Protocol", ", ".join(protocols))] if protocols else []
    sent = written("GET", path, [("Host", OURS), *parts, *offered, *more])
    for reply in replies(await exchanged(hasty, sent)):
        check(reply)
        assert reply.status >= 400 or path in OPEN


@ONE_RIG
@given(
    ticket=st.one_of(LATIN, st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=50, max_size=54)),
    form=st.sampled_from(("query", "protocol", "both")),
    path=st.sampled_from(("/api/v1/instances/lobby-1/console/ws", "/api/v1/events/stream")),
)
async def test_no_ticket_opens_anything_but_one_that_was_given(
    hasty: Rig, ticket: str, form: str, path: str
) -> None:
    if hasty.state.instances.find("lobby-1") is None:
        await talking(hasty)
    query = f"?ticket={urllib.parse.quote(ticket)}" if form != "protocol" else ""
    offered = [("Sec-WebSocket-Protocol", f"corral.console, ticket.{ticket}")] if form != "query" else []
    method = "GET" if path.endswith("/ws") else "HEAD"
    upgrade = UPGRADE if path.endswith("/ws") else ()
    sent = written(method, path + query, [("Host", OURS), *upgrade, *offered])
    for reply in replies(await exchanged(hasty, sent), bodiless=method == "HEAD"):
        check(reply)
        assert reply.status in (400, 401)


FRAMES = st.one_of(
    st.binary(min_size=1, max_size=30),
    st.sampled_from(
        (
            b"\x81\x05hello",  # not masked
            b"\x81\x85\0\0\0\0hello",
            b"\x81\xff" + b"\x7f" + b"\xff" * 7 + b"\0\0\0\0",  # 2^63 bytes are announced
            b"\x81\xfe\xff\xff\0\0\0\0" + b"x" * 1000,
            b"\x01\x85\0\0\0\0hello" * 5,  # begun again and again
            b"\x80\x80\0\0\0\0",  # the end of nothing
            b"\x89\xfe\0\x7e\0\0\0\0" + b"x" * 126,  # a ping that is too long
            b"\x89\x80\0\0\0\0" * 50,
            b"\x88\x82\0\0\0\0\x03\xe8",
            b"\x88\x81\0\0\0\0\x03",
            b"\xf1\x80\0\0\0\0",  # reserved bits
            b"\x83\x80\0\0\0\0",  # an unknown kind
            b"\x81\x82\0\0\0\0\xff\xfe",  # not UTF-8
            b"\x82\x84\0\0\0\0\0\0\0\0",
            b"\x81\x82\0\0\0\0{}",
            b"\x81\x80\0\0\0\0" * 200,
        )
    ),
)


@ONE_RIG
@given(frames=st.lists(FRAMES, min_size=1, max_size=6))
async def test_no_frames_of_a_websocket_break_more_than_their_connection(
    hasty: Rig, frames: list[bytes]
) -> None:
    if hasty.state.instances.find("lobby-1") is None:
        await talking(hasty)
    sent = written(
        "GET",
        "/api/v1/instances/lobby-1/console/ws",
        [("Host", OURS), *UPGRADE, ("Authorization", f"Bearer {hasty.admin}")],
    ).replace(b"Connection: close\r\n", b"")
    reader, writer = await asyncio.open_connection(*hasty.server.address)
    try:
        writer.write(sent)
        async with asyncio.timeout(DEADLINE):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            with contextlib.suppress(ConnectionError):
                writer.write(b"".join(frames) + b"\x88\x80\0\0\0\0")
                await writer.drain()
                writer.write_eof()
                await reader.read()
    finally:
        writer.transport.abort()
    await eventually(lambda: len(hasty.leading.streams) == 0)


@ONE_RIG
@given(
    fields=st.lists(
        st.tuples(st.sampled_from(("Last-Event-ID", "Accept", "Cache-Control", "Range", "Cookie")), VALUES),
        max_size=4,
    ),
    query=QUERIES,
    path=st.sampled_from(
        ("/api/v1/events/stream", "/api/v1/logs/stream", "/api/v1/instances/lobby-1/console/stream")
    ),
)
async def test_a_stream_opens_or_is_refused_and_ends_with_its_reader(
    hasty: Rig, fields: list[tuple[str, str]], query: str, path: str
) -> None:
    if hasty.state.instances.find("lobby-1") is None:
        await talking(hasty)
    sent = written("GET", path + query, [("Host", OURS), ("Authorization", f"Bearer {hasty.admin}"), *fields])
    reader, writer = await asyncio.open_connection(*hasty.server.address)
    try:
        writer.write(sent)
        async with asyncio.timeout(DEADLINE):
            head = await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.transport.abort()
    reply = head_of(head)
    check(reply)
    assert reply.status == 200 or 400 <= reply.status < 500
    assert (reply.status == 200) == reply.headers["content-type"].startswith("text/event-stream")
    await eventually(lambda: len(hasty.leading.streams) == 0)


@pytest.mark.trap("T64")
async def test_who_sends_nonsense_on_many_connections_at_once_has_few_of_them_and_stops_nobody(
    data: pathlib.Path,
) -> None:
    """Heads without an end, cookies without an end, frames of a WebSocket that never opened, answers that are not read."""
    limits = msgspec.structs.replace(NO_LIMITS, connections=40, head_seconds=0.5, idle_seconds=0.5)
    beginnings = (
        b"GET /health HTTP/1.1\r\nCookie: " + b"a=b; " * 1000,
        b"GET /api/v1/groups HTTP/1.1\r\nHost: x\r\nCookie: \xff\xfe\r\n\r\n" * 30,
        b"POST /api/v1/tokens HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "
        + b"y" * 5000,
        b"GET /api/v1/events/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n\x81\xff",
        b"\0" * 100,
    )
    async with http_rig(data, limits=limits) as rig:
        most = 0
        writers: list[asyncio.StreamWriter] = []
        try:
            for round in range(40):
                for beginning in beginnings:
                    _, writer = await asyncio.open_connection(*rig.server.address)
                    writer.write(beginning)
                    writers.append(writer)
                most = max(most, len(rig.server.connections))
                if round % 10 == 0:
                    await is_well(rig)
            assert 0 < most <= 40
            await is_well(rig)
        finally:
            for writer in writers:
                writer.transport.abort()
        await eventually(lambda: len(rig.server.connections) == 0)
