"""Frames of streams: the same however the bytes are cut, and bounded."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.client.event_frames import FrameParser, FrameTooLarge

STREAM = "id: 1-1\nevent: A\ndata: ä\ndata: b\n\n: note\nid: 1-2\n\r\nignored\ndata:x\r\n\r\nevent: C\n\ndata: cut".encode()


def frames(*pieces: bytes, limit: int = 1000) -> list[tuple[str | None, str, str]]:
    parser = FrameParser(limit=limit)
    return [(frame.id, frame.event, frame.data) for piece in pieces for frame in parser.feed(piece)]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_pieces_do_not_matter_and_a_cut_frame_is_none(cuts):
    places = sorted({0, len(STREAM), *cuts})
    found = frames(*(STREAM[a:b] for a, b in itertools.pairwise(places)))
    assert found == [("1-1", "A", "ä\nb"), ("1-2", "", ""), (None, "", "x")]


@pytest.mark.parametrize(
    "content",
    [b"data: " + b"x" * 100, b"data: xxxxxxxxx\n" * 20, b"x" * 101, b"data:\n" * 20, b"event: a\n" * 20],
)
def test_a_frame_is_bounded(content):
    with pytest.raises(FrameTooLarge):
        frames(content, limit=90)
    assert frames(b": note\n" * 100 + b"data: x\n\n" * 100, limit=90) == [(None, "", "x")] * 100


@pytest.mark.parametrize("id", ["é", "a\0b", "a\tb", "x" * 256])
def test_an_id_that_no_header_may_have_is_passed_over(id):
    assert frames(f"id: 1-1\nid: {id}\ndata: x\n\n".encode()) == [("1-1", "", "x")]


def test_many_small_pieces_of_a_long_line_are_not_searched_again_and_again():
    parser = FrameParser(limit=10_000_000)
    for _ in range(20_000):
        assert not list(parser.feed(b"x" * 400))
    assert parser._scanned == 8_000_000
