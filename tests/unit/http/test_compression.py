"""Which requests accept gzip, and that compressing is bounded: nobody waits for it, and it changes no answer."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.controller.http.messages.compression import AT_ONCE, ON_LOOP, SMALLEST, Compression, accepts_gzip
from corral.controller.http.messages.request import HttpRequest, Message
from corral.controller.http.messages.responses import ApiResponse
from corral.system.entropy import SystemEntropy

LARGE = b"x" * (ON_LOOP + 1)


async def nothing() -> Message:
    raise AssertionError("nothing is read")


async def swallow(_: Message) -> None: ...


def request(accept: str | None = "gzip") -> HttpRequest:
    headers = [(b"accept-encoding", accept.encode())] if accept is not None else []
    scope: Any = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": headers}
    return HttpRequest(scope, nothing, swallow, entropy=SystemEntropy())


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("br, gzip;q=0.5", True),
        ("gzip; q=1.000", True),
        ("*", True),
        ("br;q=1, *;q=0.1", True),
        (None, False),
        ("", False),
        ("identity", False),
        ("br, deflate, zstd", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("*;q=0", False),
        ("gzip;q=nan", False),
        ("gzip;q=-1", False),
        ("gzip;q=٠.5", False),
        ("gzip;level=9", False),
        ("gzipped", False),
        (", " * 2000 + "gzip", False),
    ],
)
def test_gzip_is_sent_to_those_who_accept_it(header: str | None, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


@given(st.text())
def test_no_header_breaks_anything(header: str) -> None:
    assert accepts_gzip(header) in (True, False)


async def test_an_answer_is_compressed_if_it_may_be_and_is_worth_it() -> None:
    compression = Compression()
    for body in (b"y" * SMALLEST, LARGE):
        answer = await compression.applied(request(), ApiResponse(body=body, compressible=True))
        assert gzip.decompress(answer.body) == body
        assert (b"content-encoding", b"gzip") in answer.headers
        assert (b"vary", b"Accept-Encoding") in answer.headers
    plain = ApiResponse(body=LARGE)
    assert await compression.applied(request(), plain) is plain
    tagged = ApiResponse(body=LARGE, compressible=True, headers=((b"etag", b'"1"'),))
    assert await compression.applied(request(), tagged) is tagged, "the tag names these very bytes"
    for asked, body in ((request("br"), LARGE), (request(None), LARGE), (request(), b"y" * (SMALLEST - 1))):
        answer = await compression.applied(asked, ApiResponse(body=body, compressible=True))
        assert answer.body == body
        assert answer.headers == ((b"vary", b"Accept-Encoding"),)


async def test_what_would_not_become_shorter_is_sent_as_it_is() -> None:
    body = gzip.compress(SystemEntropy().secret(SMALLEST * 2))
    answer = await Compression().applied(request(), ApiResponse(body=body, compressible=True))
    assert answer.body == body


async def test_a_few_are_compressed_at_once_and_the_others_do_not_wait() -> None:
    compression = Compression()
    answers = await asyncio.gather(
        *(compression.applied(request(), ApiResponse(body=LARGE, compressible=True)) for _ in range(20))
    )
    compressed = [each for each in answers if each.body != LARGE]
    assert len(compressed) == AT_ONCE
    again = await compression.applied(request(), ApiResponse(body=LARGE, compressible=True))
    assert again.body != LARGE, "the places are free again"


async def test_a_place_is_taken_as_long_as_the_thread_works_also_when_the_caller_has_gone() -> None:
    compression = Compression()
    slow = ApiResponse(body=SystemEntropy().secret(1 << 20) * 8, compressible=True)
    gone = [asyncio.create_task(compression.applied(request(), slow)) for _ in range(AT_ONCE)]
    await asyncio.sleep(0)
    for each in gone:
        each.cancel()
    await asyncio.sleep(0)
    meanwhile = await compression.applied(request(), ApiResponse(body=LARGE, compressible=True))
    assert meanwhile.body == LARGE
    await asyncio.wait(gone)
    again = await compression.applied(request(), ApiResponse(body=LARGE, compressible=True))
    assert again.body != LARGE
