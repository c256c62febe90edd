"""What `Host` and `Origin` headers mean, and which of them are ours."""

from __future__ import annotations

import random
import socket
from typing import Any

import pytest

from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.pipeline.browser_checks import (
    AllowedHosts,
    BrowserChecks,
    HostAndPort,
    Origin,
    read_host,
    read_origin,
)
from corral.errors import Code, Rejected
from corral.system.entropy import SystemEntropy
from corral.system.http_config import HttpSection

OWN = "http://localhost:8480"
LISTED = "https://panel.example.org"


async def _nothing(*_: Any) -> Any:
    raise AssertionError("the head alone is looked at")


def request(
    *headers: tuple[str, str],
    method: str = "GET",
    scheme: str = "http",
    kind: str = "http",
    server: str = "127.0.0.1",
) -> HttpRequest:
    scope = {
        "type": kind,
        "scheme": scheme,
        "method": method,
        "path": "/",
        "query_string": b"",
        "server": (server, 8480),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
    }
    return HttpRequest(scope, _nothing, _nothing, entropy=SystemEntropy())


def verdict(checks: BrowserChecks, asked: HttpRequest, **of_route: bool) -> Code | None:
    try:
        checks.check(asked, **of_route)
    except Rejected as refused:
        return refused.code
    return None


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("localhost", HostAndPort("localhost", None)),
        ("LocalHost.:80", HostAndPort("localhost", 80)),
        ("[::1]:8480", HostAndPort("::1", 8480)),
        ("[0:0:0:0:0:0:0:1]", HostAndPort("::1", None)),
        ("[::ffff:127.0.0.1]", HostAndPort("127.0.0.1", None)),
        ("10.0.0.7:65535", HostAndPort("10.0.0.7", 65535)),
    ],
)
def test_a_host_is_read_in_one_form(text: str, meaning: HostAndPort) -> None:
    assert read_host(text) == meaning


@pytest.mark.parametrize(
    "text",
    ["", ":80", "a b", "localhost:", "localhost:65536", "localhost:-1", "localhost:8480:1", "::1", "[::1", "[]", "[x]",
     "user@localhost", "localhost/", "localhost,evil", "127.0.0.1.", "127.1", "0x7f.0.0.1", "127.0.0.01", "a..b", "-a",
     "[fe80::1%eth0]", "localhost\x00", "ünicode", "a" * 300, "localhost\t:80", "*"],
)  # fmt: skip
def test_what_is_no_host_is_none_and_no_other_one(text: str) -> None:
    assert read_host(text) is None


def test_an_origin_has_the_port_of_its_scheme() -> None:
    assert read_origin("http://localhost") == Origin("http", "localhost", 80)
    assert read_origin("https://[::1]:8480") == Origin("https", "::1", 8480)
    for text in (
        "null",
        "",
        "*",
        "localhost",
        "ftp://localhost",
        "http://",
        "http://localhost/",
        "http://a@localhost",
    ):
        assert read_origin(text) is None


def test_by_default_the_addresses_of_the_listener_and_of_the_machine_itself_are_allowed() -> None:
    hosts = AllowedHosts.of(
        HttpSection(
            listen="10.0.0.7:8480", advertise="panel.example.org:443", public_url="https://proxy.example.org"
        )
    )
    for host in (
        "proxy.example.org",
        "10.0.0.7",
        "panel.example.org",
        "PANEL.example.org.:1",
        "localhost:9",
        "127.0.0.1",
        "[::1]",
    ):
        assert hosts.admits(request(("Host", host)))
    for host in ("10.0.0.8", "example.org", "localhost.example.org", "127.0.0.2", socket.gethostname()):
        assert not hosts.admits(request(("Host", host), server="10.0.0.8"))


@pytest.mark.parametrize("listen", ["0.0.0.0:8480", "[::]:8480"])
def test_a_wildcard_allows_the_name_of_the_machine_and_the_address_that_was_reached(listen: str) -> None:
    hosts = AllowedHosts.of(HttpSection(listen=listen))
    assert hosts.admits(request(("Host", f"{socket.gethostname()}:8480")))
    assert hosts.admits(request(("Host", "10.0.0.7:8480"), server="10.0.0.7"))
    assert hosts.admits(request(("Host", "10.0.0.7:8480"), server="::ffff:10.0.0.7"))
    assert hosts.admits(request(("Host", "[2001:db8::1]"), server="2001:db8:0::1"))
    for host in ("10.0.0.8", "evil.example.org", "0.0.0.0", "[::]"):
        assert not hosts.admits(request(("Host", host), server="10.0.0.7"))


def test_listed_hosts_take_the_place_of_the_default() -> None:
    hosts = AllowedHosts.of(HttpSection(listen="0.0.0.0:8480", allowed_hosts=("panel.example.org",)))
    assert hosts.admits(request(("Host", "panel.example.org")))
    assert not hosts.admits(request(("Host", "localhost")))
    assert not hosts.admits(request(("Host", "10.0.0.7"), server="10.0.0.7"))


def test_a_cookie_and_a_page_of_ours_need_an_allowed_host_and_nothing_else_does() -> None:
    checks, cookie = BrowserChecks(), ("Cookie", "a=b")
    for hosts in ([("Host", "evil.example.org")], [], [("Host", "localhost"), ("Host", "evil.example.org")]):
        assert verdict(checks, request(*hosts)) is None
        assert verdict(checks, request(*hosts, cookie)) is Code.MISDIRECTED_REQUEST
        assert verdict(checks, request(*hosts), browser=True) is Code.MISDIRECTED_REQUEST
        bearer = ("Authorization", "Bearer x")
        assert verdict(checks, request(*hosts, cookie, bearer)) is Code.MISDIRECTED_REQUEST
    assert verdict(checks, request(("Host", "localhost:1"), cookie), browser=True) is None


UNSAFE: list[dict[str, Any]] = [
    {"method": "POST"},
    {"method": "PATCH"},
    {"method": "BREW"},
    {"kind": "websocket", "scheme": "ws"},
]


@pytest.mark.parametrize("how", UNSAFE)
@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Origin": OWN}, True),
        ({"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": LISTED, "Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "http://localhost"}, False),
        ({"Origin": "http://localhost:8481"}, False),
        ({"Origin": "https://localhost:8480"}, False),
        ({"Origin": "http://evil.example.org"}, False),
        ({"Origin": LISTED + ":8443"}, False),
        ({"Origin": OWN, "Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": OWN, "Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "SAME-SITE "}, False),
        ({"Sec-Fetch-Site": "elsewhere"}, False),
        ({"Origin": "http://evil.example.org", "Authorization": "Bearer x"}, True),
        ({"Origin": "http://evil.example.org", "Authorization": "Basic x"}, False),
        ({"Origin": "http://evil.example.org", "Authorization": "Bearer "}, False),
    ],
)
def test_what_changes_something_or_opens_a_stream_comes_from_a_page_of_ours(
    how: dict[str, Any], headers: dict[str, str], allowed: bool
) -> None:
    asked = request(("Host", "localhost:8480"), *headers.items(), **how)
    assert verdict(BrowserChecks(origins=[LISTED]), asked) is (None if allowed else Code.ORIGIN_REFUSED)


def test_reading_is_free_of_it_unless_it_is_a_stream() -> None:
    checks, foreign = BrowserChecks(), ("Origin", "http://evil.example.org")
    for method in ("GET", "HEAD", "OPTIONS"):
        assert verdict(checks, request(foreign, method=method)) is None
        assert verdict(checks, request(foreign, method=method), stream=True) is Code.ORIGIN_REFUSED


def test_a_page_under_a_name_that_was_rebound_to_this_machine_is_not_ours() -> None:
    checks, host = BrowserChecks(), ("Host", "evil.example.org:8480")
    for page in (("Origin", "http://evil.example.org:8480"), ("Sec-Fetch-Site", "same-origin")):
        assert verdict(checks, request(host, page, method="POST")) is Code.ORIGIN_REFUSED


def test_two_origins_are_none_of_ours() -> None:
    for first, second in ((OWN, "http://evil.example.org"), (LISTED, LISTED)):
        asked = request(("Host", "localhost:8480"), ("Origin", first), ("Origin", second), method="POST")
        assert verdict(BrowserChecks(origins=[LISTED]), asked) is Code.ORIGIN_REFUSED


def test_over_tls_our_origin_is_https() -> None:
    for scheme, kind in (("https", "http"), ("wss", "websocket")):
        for origin, allowed in (("https://localhost", True), ("http://localhost", False)):
            asked = request(
                ("Host", "localhost"), ("Origin", origin), method="POST", scheme=scheme, kind=kind
            )
            assert (verdict(BrowserChecks(), asked) is None) is allowed


def test_no_text_of_a_header_breaks_the_checks_or_passes_for_ours() -> None:
    random_texts = random.Random(46)
    parts = ["localhost", "127.0.0.1", "[::1]", ":", "8480", ".", "@", "/", "\\", "#", "http://", "https://", "null", " ", "\t",
             "\xa0", "é", "%", "*", ",", "evil.example.org", "[", "]", "-", "_", "0", "x" * 300]  # fmt: skip
    checks = BrowserChecks(origins=[LISTED])
    ours = {f"http://{host}:8480" for host in ("localhost", "127.0.0.1", "[::1]")}
    for _ in range(5000):
        text = "".join(random_texts.choices(parts, k=random_texts.randrange(1, 6)))
        asked = request(("Host", "localhost:8480"), ("Origin", text), method="POST")
        if verdict(checks, asked) is None:
            assert text.strip().replace(".:", ":").replace(":08480", ":8480") in ours
        cookie = request(("Host", text), ("Cookie", "a=b"))
        if verdict(checks, cookie) is None:
            assert not {"@", "/", ",", " ", "\\"} & set(text.strip())
            assert "evil" not in text
