"""Addresses as people write them."""

from __future__ import annotations

import pytest

from corral.errors import Code, Rejected
from corral.system.addresses import Address, parse_address, parse_host


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8480", "127.0.0.1", 8480),
        ("localhost:1", "localhost", 1),
        ("db.example.org.:5432", "db.example.org.", 5432),
        ("[::1]:80", "::1", 80),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
        ("a_b:65535", "a_b", 65535),
    ],
)
def test_a_good_address_is_split_and_written_back_the_same(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":80",
        "host",
        "host:",
        "host:x",
        "host:65536",
        "host:-1",
        "host:٣",
        "::1:80",
        "[::1:80",
        "[nope]:80",
        "-bad:80",
        "a b:80",
        "1.2.3:80",
        "256.1.1.1:80",
        "a..b:80",
        f"{'a' * 300}:80",
    ],
)
def test_a_bad_address_is_refused_with_the_form_to_write(text: str) -> None:
    with pytest.raises(Rejected) as caught:
        parse_address(text, field="http.listen")
    assert caught.value.code is Code.INVALID_FIELD
    assert caught.value.field == "http.listen"
    assert "HOST:PORT" in (caught.value.hint or "")
    assert len(caught.value.message) < 200


def test_port_zero_can_be_listened_on_but_not_dialled() -> None:
    assert parse_address("127.0.0.1:0", any_port=True).port == 0
    with pytest.raises(Rejected, match="port 0 cannot be dialled"):
        parse_address("127.0.0.1:0")


def test_a_host_alone_may_be_a_name_or_an_address_with_or_without_brackets() -> None:
    assert parse_host("play.example.org") == "play.example.org"
    assert parse_host("[::1]") == "::1"
    assert parse_host("::1") == "::1"
    with pytest.raises(Rejected):
        parse_host("play.example.org/x")
