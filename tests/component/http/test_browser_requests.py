"""Requests of browsers over real sockets: the host they name, the page they come from, and what any answer carries."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import pathlib
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import msgspec
import pytest
from http_rig import DEADLINE, NO_LIMITS, Rig, http_rig
from raw_client import raw_call
from test_console_streams import socket_to, talking
from websockets.exceptions import InvalidStatus

from corral.controller.http.messages.responses import SECURITY_HEADERS
from corral.controller.http.pipeline.browser_checks import BrowserChecks
from corral.controller.http.pipeline.route_table import PUBLIC, Probe, Read
from corral.controller.http.resources.probes import health
from corral.controller.http.routes import ROUTES
from corral.controller.http.server.connection import HEAD_LIMIT
from corral.domain.permissions import Permission

EVIL = "http://evil.example.org"
LISTED = "https://panel.example.org"


def refused(answer: httpx.Response, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["status"]) == (code, status)
    assert error["hint"]
    for name, value in SECURITY_HEADERS:
        assert answer.headers.get_list(name.decode()) == [value.decode()]
    assert not [name for name in answer.headers if name in ("set-cookie", "strict-transport-security")]


async def test_a_request_with_a_cookie_names_one_of_our_hosts(rig: Rig) -> None:
    paths = ("/health", "/api/v1/nodes", "/api/v1/auth/me", "/nowhere", "/pages")
    async with rig.client("") as client:
        for method, path in itertools.product(("GET", "HEAD", "OPTIONS", "POST", "TRACE"), paths):
            answer = await client.request(method, path, headers={"Cookie": "a=b", "Host": "evil.example.org"})
            assert answer.status_code == 421
            if method != "HEAD":
                refused(answer, 421, "MISDIRECTED_REQUEST")
            own = await client.request(method, path, headers={"Cookie": "a=b", "Host": "localhost:1"})
            plain = await client.request(method, path, headers={"Host": "evil.example.org"})
            assert own.status_code == plain.status_code != 421


async def test_pages_before_a_login_are_served_under_our_hosts_alone(data: pathlib.Path) -> None:
    page = Probe(
        method="GET", path="/shell", permission=PUBLIC, summary="A page", handler=health, browser=True
    )
    async with http_rig(data, routes=(*ROUTES, page)) as rig, rig.client("") as client:
        assert (await client.get("/shell")).status_code == 200
        refused(await client.get("/shell", headers={"Host": "evil.example.org"}), 421, "MISDIRECTED_REQUEST")


async def test_a_foreign_page_changes_nothing(rig: Rig) -> None:
    pages = [
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ]
    for number, page in enumerate(pages):
        async with rig.client("") as stranger, rig.client() as admin:
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                refused(await stranger.request(method, "/api/v1/groups", headers=page), 403, "ORIGIN_REFUSED")
            answer = await stranger.get("/health", headers=page)
            assert answer.status_code == 200, page
            body = {"name": f"lobby-{number}", "command": ["x"]}
            assert (await admin.post("/api/v1/groups", json=body, headers=page)).status_code == 201, page


async def test_our_own_page_is_asked_for_its_credentials_and_nothing_else(rig: Rig) -> None:
    page = {"Origin": rig.url, "Sec-Fetch-Site": "same-origin"}
    async with rig.client("") as client:
        assert (await client.post("/api/v1/groups", json={}, headers=page)).status_code == 401
        assert (await client.post("/api/v1/groups", json={})).status_code == 401  # a script


async def test_it_is_refused_before_a_body_is_read(rig: Rig) -> None:
    for head in ({"Origin": EVIL}, {"Cookie": "a=b"}):
        async with raw_call(
            rig, "POST", "/api/v1/groups", Authorization="Basic x", Content_Length="1000000", **head
        ) as call:
            status, _, body = await call.answer()
            assert (status, body["error"]["code"]) in ((403, "ORIGIN_REFUSED"), (421, "MISDIRECTED_REQUEST"))


async def ticket(rig: Rig) -> str:
    async with rig.client() as client:
        made: str = (await client.post("/api/v1/events/tickets")).json()["ticket"]
        return made


async def test_a_ticket_opens_an_event_stream_for_our_own_pages_alone(rig: Rig) -> None:
    found = await ticket(rig)
    async with rig.client("") as client:
        for page in ({"Origin": EVIL}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "null"}):
            answer = await client.get("/api/v1/events/stream", params={"ticket": found}, headers=page)
            refused(answer, 403, "ORIGIN_REFUSED")
        page = {"Sec-Fetch-Site": "same-origin"}
        async with client.stream(
            "GET", "/api/v1/events/stream", params={"ticket": found}, headers=page
        ) as stream:
            assert stream.status_code == 200  # and none of the refused ones has used the ticket up


async def test_a_ticket_opens_a_websocket_for_our_own_pages_alone(rig: Rig) -> None:
    _, _, path = await talking(rig)
    found = await ticket(rig)
    offered: dict[str, Any] = {"subprotocols": ["corral.console", f"ticket.{found}"]}
    for origin in (EVIL, "null", rig.url.replace("http", "https", 1)):
        with pytest.raises(InvalidStatus) as failed:
            async with socket_to(rig, path, "", origin=origin, **offered):
                pass
        response = failed.value.response
        assert response.status_code == 403
        assert json.loads(response.body)["error"]["code"] == "ORIGIN_REFUSED"
        for name, value in SECURITY_HEADERS:
            assert response.headers.get_all(name.decode()) == [value.decode()]
    async with socket_to(rig, path, "", origin=rig.url, **offered) as opened:
        assert opened.subprotocol == "corral.console"


async def test_a_websocket_with_a_cookie_names_one_of_our_hosts(rig: Rig) -> None:
    _, _, path = await talking(rig)
    head = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13"}
    key = {"Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    target = path.replace("/stream", "/ws")
    async with raw_call(rig, "GET", target, Host="evil.example.org", Cookie="a=b", **head, **key) as call:
        status, headers, body = await call.answer()
    assert (status, body["error"]["code"]) == (421, "MISDIRECTED_REQUEST")
    assert headers["x-frame-options"] == "DENY"


@pytest.fixture
async def listing(data: pathlib.Path) -> AsyncIterator[Rig]:
    async with http_rig(data, browsers=BrowserChecks(origins=[LISTED])) as made:
        yield made


async def test_a_listed_page_may_change_things_and_open_streams(listing: Rig) -> None:
    page = {"Origin": LISTED, "Sec-Fetch-Site": "cross-site"}
    async with listing.client("") as client:
        assert (await client.post("/api/v1/groups", json={}, headers=page)).status_code == 401
        params = {"ticket": await ticket(listing)}
        async with client.stream("GET", "/api/v1/events/stream", params=params, headers=page) as stream:
            assert stream.status_code == 200


SCHEMES = ("", "http://", "https://", "HTTP://", "ftp://", "//", "javascript:")
PLACES = ("localhost", "127.0.0.1", "[::1]", "evil.example.org", "localhost.evil.example.org", "a@localhost", "127.1",
          "0x7f.1", "[::ffff:127.0.0.1]", "xn--a", "x" * 300, "", "..", "%6cocalhost", "localhost%00")  # fmt: skip
PORTS = ("", ":80", ":{port}", ":0", ":99999", ":x", ":", ":-1", ":80:80")
PATHS = ("/", "/health", "//health", "/./health", "/%2e%2e/health", "/api/v1/events/stream", "/api/v1/events/stream?ticket=x",
         "/api/v1/instances/x/console/ws", "/api/v1/groups", "/api/v1/modules/m/x", "/" + "a" * 5000, "*",
         "http://evil.example.org/health", "/%ff%fe", "/health?%00=%zz&&&=;", "/a b", "\\health")  # fmt: skip
UPGRADE = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)
ODD = (
    ("X-A", "\x01"), ("X-A", "é"), ("X A", "b"), ("", "b"), ("Host", "x"), ("Cookie", ""), ("Cookie", ";" * 50),
    ("Origin", "null"), ("Content-Length", "0"), ("Content-Length", "-1"), ("Content-Length", "9" * 30),
    ("Transfer-Encoding", "identity"), ("Connection", "close, cookie"), ("Sec-Fetch-Site", "\xff"),
    ("Authorization", "Bearer"), ("Authorization", "Bearer x y"), ("Last-Event-ID", "é" * 100),
    ("Sec-WebSocket-Protocol", "ticket.," * 50), ("Sec-WebSocket-Version", "0"), ("X-Corral-CSRF", "x"),
)  # fmt: skip


def written(dice: random.Random, port: int) -> bytes:
    """A head that a browser, a script or nobody would send; always with an end."""

    def place() -> str:
        return dice.choice(PLACES) + dice.choice(PORTS).format(port=port)

    headers: list[tuple[str, str]] = [("Host", place()) for _ in range(dice.choice((0, 1, 1, 1, 1, 2)))]
    if dice.random() < 0.6:
        headers.append(("Origin", dice.choice(SCHEMES) + place()))
    if dice.random() < 0.3:
        headers.append(
            ("Sec-Fetch-Site", dice.choice(("same-origin", "same-site", "cross-site", "none", "?")))
        )
    if dice.random() < 0.4:
        headers.append(("Cookie", "corral=x"))
    if dice.random() < 0.3:
        headers += dice.sample(UPGRADE, k=dice.choice((4, 4, 3, 2)))
    headers += dice.choices(ODD, k=dice.choice((0, 0, 1, 2)))
    dice.shuffle(headers)
    method = dice.choice(
        ("GET", "GET", "GET", "POST", "DELETE", "HEAD", "OPTIONS", "BREW", "get", "G T", "PRI")
    )
    version = dice.choice(("HTTP/1.1",) * 8 + ("HTTP/1.0", "HTTP/2.0", "HTTP/9", ""))
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"{method} {dice.choice(PATHS)} {version}\r\n{head}Connection: close\r\n\r\n".encode("latin-1")


async def answered(rig: Rig, sent: bytes) -> bytes:
    """Everything that came back until the server closed."""
    reader, writer = await asyncio.open_connection(*rig.server.address)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(sent)
            async with asyncio.timeout(DEADLINE):
                return await reader.read()
        return b""
    finally:
        writer.transport.abort()


def statuses(sent: bytes, said: bytes) -> Sequence[int]:
    if not said:
        return ()  # cut without an answer: it was no HTTP
    head, _, _ = said.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0].startswith(b"HTTP/1."), (sent, said)
    names = [line.partition(b":")[0].lower() for line in lines[1:]]
    status = int(lines[0].split()[1])
    if status != 101:
        for name, _ in SECURITY_HEADERS:
            assert names.count(name) == 1, (sent, said)
    assert b"set-cookie" not in names
    return (status,)


@pytest.fixture
async def hasty(data: pathlib.Path) -> AsyncIterator[Rig]:
    """One that does not wait long for what is announced and does not come."""
    async with http_rig(
        data,
        limits=msgspec.structs.replace(NO_LIMITS, head_seconds=1, idle_seconds=1, body_pause_seconds=0.1),
    ) as made:
        yield made


@pytest.mark.trap("T64")
@pytest.mark.parametrize("seed", range(2))
async def test_no_head_gets_more_than_a_clear_refusal_or_ends_the_server(hasty: Rig, seed: int) -> None:
    dice, rig = random.Random(seed), hasty
    seen: set[int] = set()
    for _ in range(150):
        sent = written(dice, rig.server.address.port)
        for status in statuses(sent, await answered(rig, sent)):
            seen.add(status)
            assert status < 500, sent
            if b"corral=x" in sent and b"evil" in sent.split(b"\r\n\r\n")[0].partition(b"Host: ")[2][:30]:
                assert status in (400, 421), sent
    assert {400, 401, 403, 404, 421} <= seen
    async with rig.client() as client:
        assert (await client.get("/api/v1/auth/me")).status_code == 200
        assert (await client.get("/api/v1/groups")).json()["items"] == []


@pytest.mark.trap("T64")
async def test_the_same_connection_goes_on_after_refusals_and_loses_no_answer(rig: Rig) -> None:
    cookie = b"GET /health HTTP/1.1\r\nHost: evil.example.org\r\nCookie: a=b\r\n\r\n"
    origin = b"POST /api/v1/groups HTTP/1.1\r\nHost: x\r\nOrigin: null\r\nContent-Length: 2\r\n\r\n{}"
    good = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    said = await answered(rig, (cookie + origin + good) * 5 + last)
    found = [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]
    assert found == [421, 403, 200] * 5 + [200]


async def test_several_hosts_are_refused_whatever_else_is_sent(rig: Rig) -> None:
    said = await answered(rig, b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n")
    assert statuses(b"", said) == (400,)


@pytest.mark.trap("T64")
async def test_a_head_that_is_too_large_and_a_broken_handshake_are_refused_with_our_headers(rig: Rig) -> None:
    long = b"GET /health HTTP/1.1\r\nHost: x\r\nCookie: " + b"a" * HEAD_LIMIT + b"\r\n\r\n"
    assert statuses(b"", await answered(rig, long)) == (400,)
    broken = b"GET /api/v1/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert statuses(b"", await answered(rig, broken)) == (400,)


def test_no_route_of_browsers_asks_for_a_permission() -> None:
    """A page before login cannot have one."""
    assert all(route.permission is PUBLIC for route in ROUTES if route.browser)
    assert not Read(
        method="GET", path="/x", permission=Permission.SELF_READ, summary="x", handler=lambda: None
    ).browser
