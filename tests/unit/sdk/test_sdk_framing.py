"""Frames: whatever arrives in whatever pieces, and whatever is none."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.sdk.protocol.frames import (
    MAX_FRAME,
    Answer,
    BadFrame,
    Call,
    Chunk,
    FrameReader,
    FrameTooLarge,
    Notice,
    encode_body,
    encode_frame,
)

MESSAGES = [
    Call(1, "hook.on_load", encode_body({"values": {}}), 2000),
    Answer(2, encode_body(None)),
    Chunk(3, b"x" * 1000, True),
    Notice("log", encode_body({"message": "ö"})),
]


@given(st.lists(st.integers(1, 700), max_size=30))
def test_messages_arrive_whole_however_they_are_cut(sizes):
    stream = b"".join(encode_frame(message) for message in MESSAGES)
    reader, got = FrameReader(), []
    for size in sizes:
        piece, stream = stream[:size], stream[size:]
        got += reader.feed(piece)
    got += reader.feed(stream)
    assert [msgspec.msgpack.encode(one) for one in got] == [msgspec.msgpack.encode(one) for one in MESSAGES]


@pytest.mark.parametrize(
    "data",
    [
        (MAX_FRAME + 1).to_bytes(4, "little"),
        b"\xff\xff\xff\xff",
        b"\x01\x00\x00\x00\xc1",
        b"\x03\x00\x00\x00abc",
        encode_frame(Answer(1, encode_body(1))).replace(b"answer", b"anwser"),
        len(b"\x91" * 5000).to_bytes(4, "little") + b"\x91" * 5000,
    ],
)
def test_what_is_no_frame_is_told_at_once(data):
    with pytest.raises(BadFrame):
        FrameReader().feed(data)


def test_a_message_that_is_too_large_is_not_sent():
    with pytest.raises(FrameTooLarge):
        encode_frame(Chunk(1, b"x" * MAX_FRAME))


def test_a_frame_with_a_text_that_is_none_is_a_bad_frame():
    frame = bytearray(encode_frame(Notice("m", encode_body(None))))
    frame[frame.index(b"\xa1m") + 1] = 0xFF
    with pytest.raises(BadFrame):
        FrameReader().feed(bytes(frame))
