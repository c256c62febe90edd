"""Where a download may go."""

from __future__ import annotations

import pytest

from corral.daemon.cache.download_targets import check_host, is_public, parse_target, redirected
from corral.errors import Code, Rejected


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b:1::1",
        "fec0::1",
        "192.0.0.8",
        "192.0.0.9",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "239.255.255.255",
        "240.0.0.1",
        "64:ff9b::c000:8",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:101:101::1",
        "3fff::1",
        "5f00::1",
        "4000::1",
    ],
)
def test_an_address_that_not_everybody_can_reach_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "192.0.1.1", "100.128.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"],
)
def test_an_address_of_the_internet_is_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "url", ["", "x", "file:///etc/passwd", "ftp://a/b", "http://", "http://[::1", "http://a:0/"]
)
def test_anything_but_a_web_address_is_refused(url):
    with pytest.raises(Rejected) as caught:
        parse_target(url)
    assert caught.value.code is Code.ARTIFACT_REFUSED


def test_a_url_is_taken_apart_and_shown_without_its_secrets():
    target = parse_target("https://joe:s%40crit@Example.org:8443/a b/server.jar?token=hush#part")
    assert (target.scheme, target.host, target.port) == ("https", "example.org", 8443)
    assert target.path == "/a%20b/server.jar?token=hush"
    assert target.authorization == "Basic am9lOnNAY3JpdA=="
    assert target.shown == "https://Example.org:8443/a b/server.jar"
    assert target.host_header == "example.org:8443"


def test_a_line_break_in_a_url_cannot_become_a_header():
    assert "\r" not in parse_target("http://example.org/a%0d%0aX-Evil: 1").path
    assert "\r\n" not in parse_target("http://example.org/a?b=\u010d\u010a").path


def test_a_redirect_may_be_relative_and_keeps_credentials_at_home():
    start = parse_target("http://joe:pw@example.org/a/b?x=1")
    assert redirected(start, "../c").path == "/c"
    assert redirected(start, "../c").authorization
    assert not redirected(start, "http://other.org/").authorization
    assert not redirected(start, "https://example.org/").authorization


def test_a_redirect_from_https_to_http_is_refused():
    with pytest.raises(Rejected):
        redirected(parse_target("https://example.org/"), "http://example.org/")


@pytest.mark.parametrize(
    ("host", "fine"),
    [
        ("cdn.example.org", True),
        ("a.b.mirror.net", True),
        ("CDN.Example.ORG.", True),
        ("example.org", False),
        ("mirror.net", False),
        ("evilmirror.net", False),
        ("cdn.example.org.evil.com", False),
    ],
)
def test_only_hosts_on_the_list_are_asked(host, fine):
    target = parse_target(f"https://{host}/x")
    allowed = ("cdn.example.org", "*.mirror.net")
    if fine:
        check_host(target, allowed)
    else:
        with pytest.raises(Rejected) as caught:
            check_host(target, allowed)
        assert caught.value.code is Code.ARTIFACT_REFUSED
