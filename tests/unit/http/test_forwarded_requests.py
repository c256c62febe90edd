"""Whose request it is that a proxy passes on."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.server.forwarded_requests import MOST_HOPS, ForwardedRequests, read_entry
from corral.controller.instances.orders import ApiAddress
from corral.controller.term.listen_addresses import certificate_names, first_admin_url
from corral.system.entropy import SystemEntropy
from corral.system.http_config import HttpSection, TlsSection

PROXIES = [ipaddress.ip_network(each) for each in ("127.0.0.1", "10.0.0.0/24", "2001:db8:1::/64")]
PERSON = "198.51.100.7"


async def _nothing(*_: Any) -> Any:
    raise AssertionError("the head alone is looked at")


async def seen(
    *headers: tuple[str, str],
    peer: str | None = "127.0.0.1",
    scheme: str = "http",
    kind: str = "http",
    proxies: list[Any] = PROXIES,
) -> HttpRequest:
    """The request as the rest of the server sees it."""
    found: list[HttpRequest] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        found.append(HttpRequest(scope, receive, send, entropy=SystemEntropy()))

    scope = {
        "type": kind,
        "scheme": scheme,
        "path": "/",
        "query_string": b"",
        "client": (peer, 4711) if peer is not None else None,
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
    }
    await ForwardedRequests(app, proxies=proxies)(scope, _nothing, _nothing)
    assert found[0].scope is scope
    return found[0]


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        ((PERSON,), PERSON),
        (("6.6.6.6, " + PERSON,), PERSON),
        (("6.6.6.6", PERSON), PERSON),
        ((f"6.6.6.6, {PERSON}, 10.0.0.9",), PERSON),
        ((PERSON, "10.0.0.9,10.0.0.8"), PERSON),
        (("10.0.0.9",), "10.0.0.9"),
        ((f"{PERSON}:51234",), PERSON),
        (("[2001:db8::7]:443",), "2001:db8::7"),
        (("2001:DB8:0::7",), "2001:db8::7"),
        ((f"::ffff:{PERSON}",), PERSON),
        ((PERSON + ",::ffff:10.0.0.1",), PERSON),
    ],
)
async def test_the_client_is_the_last_address_that_is_no_proxy(chain: tuple[str, ...], client: str) -> None:
    asked = await seen(*(("X-Forwarded-For", each) for each in chain))
    assert asked.address == client


@pytest.mark.parametrize("peer", [PERSON, "10.0.1.1", "127.0.0.2", "2001:db8:2::1", "", None])
async def test_nobody_else_is_believed(peer: str | None) -> None:
    asked = await seen(("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Proto", "https"), peer=peer)
    assert asked.address == (peer or "")
    assert not asked.is_secure


async def test_without_proxies_nobody_is_believed() -> None:
    asked = await seen(("X-Forwarded-For", PERSON), ("X-Forwarded-Proto", "https"), proxies=[])
    assert (asked.address, asked.is_secure) == ("127.0.0.1", False)


@pytest.mark.parametrize("peer", ["::ffff:127.0.0.1", "10.0.0.200", "2001:db8:1::abcd"])
async def test_a_proxy_is_known_by_its_network_in_either_form(peer: str) -> None:
    assert (await seen(("X-Forwarded-For", PERSON), peer=peer)).address == PERSON


@pytest.mark.parametrize(
    "text",
    ["", " ", "unknown", "_hidden", "localhost", "1.2.3", "1.2.3.4.5", "1.2.3.04", "0x7f.1", "256.1.1.1", "1.2.3.4:", "1.2.3.4:x",
     "1.2.3.4:123456", "[1.2.3.4", "[::1", "::1]", "fe80::1%eth0", "[fe80::1%\n]", "1.2.3.4\x00", "1.2.3.4 5", "::1::", "\u00b9.1.1.1",
     '"1.2.3.4"', "for=1.2.3.4", "1" * 65, ":" * 40],
)  # fmt: skip
async def test_what_is_no_address_is_not_taken_for_one(text: str) -> None:
    assert read_entry(text) == ""
    assert (await seen(("X-Forwarded-For", text))).address == "127.0.0.1"
    assert (await seen(("X-Forwarded-For", f"{PERSON}, {text}, 10.0.0.9"))).address == "10.0.0.9"
    assert (await seen(("X-Forwarded-For", f"{text}, {PERSON}"))).address == PERSON


async def test_what_a_client_sends_before_hides_nothing_however_long_it_is() -> None:
    for claim in ("x" * 60_000, "1.1.1.1," * 7_000, ","):
        assert (await seen(("X-Forwarded-For", f"{claim}, {PERSON}"))).address == PERSON


async def test_only_so_many_proxies_are_followed() -> None:
    chain = [PERSON, *(f"10.0.0.{each}" for each in range(MOST_HOPS))]
    assert (await seen(("X-Forwarded-For", ",".join(chain)))).address == "10.0.0.0"
    assert (await seen(("X-Forwarded-For", ",".join([PERSON, *chain[2:]])))).address == PERSON


@pytest.mark.parametrize(
    ("values", "own", "secure"),
    [
        (("https",), "http", True),
        (("HTTPS",), "http", True),
        (("wss",), "http", True),
        (("http",), "https", False),
        (("https, http",), "http", False),
        (("http", "https"), "http", True),
        (("https,",), "http", False),
        (("tls",), "http", False),
        (("tls",), "https", True),
        (("",), "https", True),
        ((), "https", True),
        ((), "http", False),
    ],
)
async def test_the_nearest_proxy_says_whether_there_is_tls(
    values: tuple[str, ...], own: str, secure: bool
) -> None:
    headers = [("X-Forwarded-Proto", value) for value in values]
    assert (await seen(*headers, scheme=own)).is_secure is secure
    socket = {"http": "ws", "https": "wss"}[own]
    asked = await seen(*headers, scheme=socket, kind="websocket")
    assert asked.is_secure is secure
    assert asked.scope["scheme"] == ("wss" if secure else "ws")


async def test_other_headers_about_a_client_are_not_read() -> None:
    asked = await seen(
        ("Forwarded", f"for={PERSON};proto=https"), ("X-Real-IP", PERSON), ("X-Forwarded-Host", "x.example")
    )
    assert (asked.address, asked.is_secure) == ("127.0.0.1", False)


@pytest.mark.parametrize(
    "name", ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Via"]
)
async def test_a_request_that_was_passed_on_is_known_as_such_whoever_did_it(name: str) -> None:
    assert (await seen((name, "?"), peer=PERSON)).is_forwarded
    assert not (await seen(("X-Request-Id", "?"), peer=PERSON)).is_forwarded


def test_the_first_administrator_is_sent_to_the_proxy_if_that_has_tls() -> None:
    own = "127.0.0.1:8480"
    secure = HttpSection(public_url="https://panel.example.org")
    assert first_admin_url(secure, own) == "https://panel.example.org/first-admin"
    plain = HttpSection(public_url="http://panel.example.org")
    assert first_admin_url(plain, own) == f"http://{own}/first-admin"


def test_instances_trust_the_clusters_authority_where_the_public_url_is_the_controllers_own() -> None:
    """Logins with OpenID Connect need a public URL also without a proxy."""
    tls = TlsSection(mode="cluster")
    for public, advertised, trusted in (
        ("https://panel.example.org:8480", "panel.example.org:8480", True),
        ("https://panel.example.org", "panel.example.org:443", True),
        ("https://panel.example.org", "10.0.0.7:8480", False),
    ):
        http = HttpSection(public_url=public, tls=tls)
        assert ApiAddress.of(http, advertised) == ApiAddress(url=public, cluster_tls=trusted)
        assert "panel.example.org" in certificate_names(http)
