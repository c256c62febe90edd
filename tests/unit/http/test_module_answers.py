"""What a module may say on our origin, and what it may not."""

from __future__ import annotations

import pytest

from corral.controller.http.pipeline.module_answers import (
    DOCUMENT_POLICY,
    MAX_HEADERS,
    PLAIN_POLICY,
    checked,
    public_failure,
)
from corral.errors import Code, Rejected, Retryable
from corral.modules.process.call_failures import CallOverrun, ModuleBusy, ModuleRaised
from corral.sdk.protocol.messages import RouteAnswer


def sent(*headers: tuple[str, str], status: int = 200, body: bytes = b"x") -> dict[bytes, bytes]:
    found = checked("m", RouteAnswer(status=status, headers=headers, body=body))
    return {**dict(found.headers), b"content-type": found.content_type}


@pytest.mark.parametrize("status", [-1, 0, 99, 100, 101, 199, 600, 1000, 2**40])
def test_a_status_that_ends_no_request_is_refused(status: int) -> None:
    with pytest.raises(Rejected, match="status") as caught:
        checked("m", RouteAnswer(status=status))
    assert caught.value.code is Code.MODULE_FAILED


@pytest.mark.parametrize(
    "header",
    [
        ("x-a", "a\r\nSet-Cookie: b=c"),
        ("x-a", "a\nb"),
        ("x-a", "a\rb"),
        ("x-a", "a\x00b"),
        ("x-a", "\x7f"),
        ("x-a", "snow\u2603"),
        ("x-a\r\nset-cookie", "b=c"),
        ("x a", "a"),
        ("", "a"),
        ("größe", "a"),
        ("x-a:", "a"),
    ],
)
def test_a_header_that_could_become_two_is_refused(header: tuple[str, str]) -> None:
    with pytest.raises(Rejected, match="malformed header"):
        sent(header)


@pytest.mark.parametrize(
    "name",
    [
        "Set-Cookie", "Set-Cookie2", "Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Trailer", "TE",
        "Proxy-Authenticate", "Content-Length", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials",
        "Strict-Transport-Security", "Clear-Site-Data", "Service-Worker-Allowed", "Refresh", "Alt-Svc", "Server",
        "X-Request-Id", "X-Frame-Options", "X-Content-Type-Options", "X-Accel-Redirect", "X-Sendfile",
        "Referrer-Policy", "WWW-Authenticate", "Date",
    ],
)  # fmt: skip
def test_what_speaks_for_the_origin_or_the_connection_is_left_out(name: str) -> None:
    assert set(sent((name, "a"))) == {b"content-type", b"content-security-policy"}


def test_a_policy_is_ours_and_its_own_is_left_out() -> None:
    assert sent(("Content-Security-Policy", "default-src *"))[b"content-security-policy"] == PLAIN_POLICY
    for kind in (
        "text/html",
        "TEXT/HTML; charset=utf-8",
        "application/xhtml+xml",
        "image/svg+xml",
        "text/xml",
    ):
        policy = sent(("Content-Type", kind))[b"content-security-policy"]
        assert policy == DOCUMENT_POLICY
        assert policy.startswith(b"sandbox;")


def test_what_speaks_of_the_answer_alone_is_passed_on() -> None:
    found = sent(
        ("ETag", '"1"'), ("Cache-Control", "max-age=5"), ("X-Mine", " yes "), ("Content-Type", "text/csv")
    )
    assert found[b"etag"] == b'"1"'
    assert found[b"cache-control"] == b"max-age=5"
    assert found[b"x-mine"] == b"yes"
    assert found[b"content-type"] == b"text/csv"


def test_an_answer_without_a_type_is_bytes() -> None:
    assert sent()[b"content-type"] == b"application/octet-stream"
    assert sent(("Content-Type", "  "))[b"content-type"] == b"application/octet-stream"


def test_too_many_headers_and_too_large_ones_are_refused() -> None:
    with pytest.raises(Rejected, match="too many"):
        sent(*[("x-a", "a")] * (MAX_HEADERS + 1))
    with pytest.raises(Rejected, match="too many"):
        sent(("x-a", "a" * 20_000))


@pytest.mark.parametrize("status", [204, 205, 304])
def test_an_answer_that_has_no_body_loses_it(status: int) -> None:
    found = checked("m", RouteAnswer(status=status, body=b"x", streamed=True))
    assert (found.body, found.streamed) == (b"", False)


def test_a_failure_is_told_without_what_the_exception_said() -> None:
    raised = ModuleRaised(
        "m", "route", kind="ValueError", message="geheim", traceback="geheim", hint="geheim"
    )
    told = public_failure("m", "GET /x", raised)
    assert told.code is Code.MODULE_FAILED
    assert "ValueError" in told.message
    assert "geheim" not in str(told)


def test_a_deadline_says_that_it_may_have_been_done() -> None:
    told = public_failure("m", "POST /x", CallOverrun("m", "route", 1.0))
    assert isinstance(told, Retryable)
    assert (told.code, "look before" in (told.hint or "")) == (Code.MODULE_TIMEOUT, True)
    busy = ModuleBusy("m")
    assert public_failure("m", "x", busy) is busy
