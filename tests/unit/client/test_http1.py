"""The parser of answers: the same however the bytes are cut into pieces, and bounded."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.client.http1 import MAX_HEAD, AnswerFault, AnswerParser

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nX-A: 2\r\n\r\nhello"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x\r\nlo\r\n0\r\nT: x\r\n\r\n"


def parsed(*pieces: bytes) -> tuple[AnswerParser, bytes]:
    parser, body = AnswerParser(), b""
    for piece in pieces:
        parser.feed(piece)
        body += parser.take()
    return parser, body


@given(st.sampled_from([LENGTH, CHUNKS]), st.lists(st.integers(0, 100), max_size=12))
def test_pieces_do_not_matter(answer, cuts):
    places = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    parser, body = parsed(*(answer[a:b] for a, b in itertools.pairwise(places)))
    assert body == b"hello"
    assert parser.complete
    assert parser.reusable


@given(st.sampled_from([LENGTH, CHUNKS]), st.integers(0, 100))
def test_what_is_cut_is_not_whole(answer, cut):
    parser, _ = parsed(answer[: min(cut, len(answer) - 1)])
    assert not parser.complete
    with pytest.raises(AnswerFault):
        parser.end()


@given(st.binary(max_size=300))
def test_anything_is_an_answer_or_a_fault(content):
    parser = AnswerParser()
    try:
        parser.feed(content)
        parser.end()
    except AnswerFault:
        assert not parser.complete


def test_headers_of_one_name_are_joined_and_found_by_any_case():
    parser, _ = parsed(LENGTH)
    assert parser.head is not None
    assert parser.head.get("x-a") == parser.head.get("X-A") == "1, 2"
    assert parser.head.get("other") == ""


def test_a_body_without_a_length_ends_with_the_connection_and_is_not_kept():
    parser, body = parsed(b"HTTP/1.1 200 OK\r\n\r\nabc")
    assert not parser.complete
    parser.end()
    assert (body, parser.complete, parser.reusable) == (b"abc", True, False)


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"HTTP/1.1 204 X\r\n\r\n", True),
        (b"HTTP/1.1 204 X\r\nConnection: close\r\n\r\n", False),
        (b"HTTP/1.0 204 X\r\n\r\n", False),
        (b"HTTP/1.0 204 X\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_a_connection_is_kept_as_the_answer_says(head, kept):
    assert parsed(head)[0].reusable is kept


def test_bytes_after_the_answer_spoil_the_connection():
    parser, body = parsed(LENGTH + b"HTTP/1.1 200 OK\r\n")
    assert body == b"hello"
    assert not parser.reusable


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * MAX_HEAD,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 100 X\r\n\r\n" * 20,
        b"HTTP/1.1 2000 X\r\n\r\n",
        b"HTTP/2 200 X\r\n\r\n",
        b"HTTP/1.1 200 X\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 X\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 X\r\nX : y\r\n\r\n",
        b"HTTP/1.1 200 X\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"T: x\r\n" * MAX_HEAD,
    ],
)
def test_what_is_not_well_formed_or_too_large_is_a_fault(answer):
    with pytest.raises(AnswerFault):
        parsed(answer)
