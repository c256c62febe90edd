"""Secrets never reach a log."""

from __future__ import annotations

import json

import pytest

from corral.system.log_mask import MASK, HiddenValues, is_secret_name, mask_field, mask_fields, mask_text

API_TOKEN = "corral_k3V9x2Qm6X5paLr8tB0cDw"
RUN_TOKEN = "cw1.WyJsb2JieS0xIiwxMDI0LDFd.pK3-_x9aB3"
JOIN_TOKEN = "corral-join-1." + "aB3_-" * 60


@pytest.mark.parametrize(
    "name",
    ["token", "join_token", "apiToken", "X-Auth-Token", "password", "DB_PASSWORD", "client-secret",
     "Authorization", "set-cookie", "private_key", "api_key", "cluster_key", "credentials", "passphrase"],
)  # fmt: skip
def test_a_telling_name_hides_its_value(name: str) -> None:
    assert is_secret_name(name)
    assert mask_field(name, "hush") == MASK


@pytest.mark.parametrize(
    "name",
    ["token_id", "token_name", "tokens_count", "secret_path", "key", "node", "monkey", "", "tokenizer"],
)
def test_a_harmless_name_does_not(name: str) -> None:
    assert not is_secret_name(name)
    assert mask_field(name, "seen") == "seen"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"used {API_TOKEN} here", API_TOKEN),
        (f"run corral daemon --join {JOIN_TOKEN}", JOIN_TOKEN),
        (f"CORRAL_INSTANCE_TOKEN={RUN_TOKEN}", RUN_TOKEN[4:]),
        ("Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
        ("authorization: basic dXNlcjpwdw==", "dXNlcjpwdw=="),
        ('"WebSocket /api/v1/events/stream?after=1-2&ticket=hush-hush" 403', "hush-hush"),
        ("/api/v1/events/stream%3FTicket%253Dhush-hush", "hush-hush"),
        ("BeArEr abcdef0123456789", "abcdef0123456789"),
        ("bEARER\tabcdef0123456789", "abcdef0123456789"),
        ("bASIc dXNlcjpwdw==", "dXNlcjpwdw=="),
        ("at HTTPS://Me:hush-hush@host/", "hush-hush"),
        ("at PostgreSQL://:hush-hush@host", "hush-hush"),
        ("see corral_http_requests.corral_k3V9x2Qm6X5paLr8tB0cDw", "k3V9x2Qm6X5paLr8tB0cDw"),
        ("connect postgresql://me:hush-hush@db:5432/x failed", "hush-hush"),
        ("-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\n-----END EC PRIVATE KEY-----", "MHcCAQ"),
        ("-----BEGIN PRIVATE KEY-----\nMHcCAQ cut", "MHcCAQ"),
    ],
)
def test_a_credential_in_a_text_is_hidden_wherever_it_stands(text: str, secret: str) -> None:
    masked = mask_text(text)
    assert secret not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "text",
    [
        "corral_http_request_seconds_bucket",
        "http://127.0.0.1:8480/api",
        "see corral.example.org",
        "node.online",
    ],
)
def test_an_ordinary_text_stays_as_it_is(text: str) -> None:
    assert mask_text(text) == text


@pytest.mark.parametrize(
    "piece",
    ["a.", "a+a-", "corral_", "corral_a", "corral-join-1", "cw1.", "cw1.a", "ticket", "ticket=", "bearer ", "basic\n", "x://", "x://a:",
     "http", "-----BEGIN ", "-----BEGIN PRIVATE KEY", "PRIVATE KEY", "A", "/", "@", ":"],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "://", "PRIVATE KEY", "!bearer x"])
def test_a_long_text_of_a_stranger_is_masked_in_one_pass(piece: str, end: str) -> None:
    """Expressions that began at every piece anew would take minutes here."""
    text = f"x://me:hush@h {piece * (200_000 // len(piece))}{end}"
    assert mask_text(text).startswith(f"x://me:{MASK}@h {piece[:4]}"[:18])


def test_nested_values_are_searched_by_name_and_by_look() -> None:
    fields = mask_fields({"request": {"headers": [{"cookie": "hush"}], "body": API_TOKEN, "n": 1}})
    assert "hush" not in fields["request"]
    assert API_TOKEN not in fields["request"]
    assert "'n': 1" in fields["request"]


def test_a_value_that_contains_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert "..." in mask_field("loop", loop)


def test_a_long_value_is_cut() -> None:
    assert len(mask_field("text", "x" * 100_000)) == 4096


@pytest.mark.trap("T77")
def test_what_was_read_as_a_secret_is_in_no_text():
    values = HiddenValues()
    values.add("hunter2")
    values.add("hunter2-longer")
    values.add("BEGIN\nMIIEvQIB\nx\nEND!")
    values.add("abc")
    assert values.hide("a hunter2-longer, hunter2 and MIIEvQIB") == "a ***, *** and ***"
    assert values.hide("abc x") == "abc x"
    quoted = "pa\\ss'w\"ord"
    values.add(quoted)
    for text in (repr(quoted), json.dumps(quoted), str(FileNotFoundError(2, "No such file", f"/x/{quoted}"))):
        assert "***" in values.hide(text)
    for number in range(3000):
        values.add(f"value-{number}")
    assert values.hide("value-2999") == "***"
    assert values.hide("hunter2") == "hunter2", "the newest are kept"
