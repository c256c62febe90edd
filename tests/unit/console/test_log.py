"""Reading a console, whatever is in it and whatever is not."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.runtimes.console.lines import DISPLAY_BYTES, pieces
from corral.runtimes.console.log import UNKNOWN, ConsoleGap, ConsoleLog
from corral.runtimes.keeper import console_layout as layout


def test_a_console_that_is_not_there_is_empty(scratch):
    with ConsoleLog(scratch / "nowhere") as log:
        assert (log.first_offset, log.end_offset) == (0, 0)
        assert log.read(0, 100).data == b""
        assert log.tail(10) == []
        assert log.gaps(0, 10) == []


def test_reading_goes_on_from_segment_to_segment(consoles):
    console = consoles(segment_bytes=4096)
    data = os.urandom(10_000)
    console.write(data)
    block = console.log.read(4000, 1000)
    assert (block.offset, block.data) == (4000, data[4000:4096])
    assert console.log.read(block.end, 1000).data == data[4096:5096]
    assert console.log.read(10_000, 1000).data == b""
    assert console.log.read(99_999, 1000).data == b""


def test_reading_on_finds_what_is_added_and_each_new_segment(consoles):
    console = consoles(segment_bytes=4096)
    data, found = os.urandom(50_000), b""
    for start in range(0, len(data), 1000):
        console.write(data[start : start + 1000])
        while block := console.log.read_on(len(found), 700).data:
            found += block
    while block := console.log.read(len(found), 700).data:  # a segment begun in the moment of a look
        found += block
    assert found == data
    assert console.log.read_on(len(found), 700).data == b""


def test_a_reader_whose_place_was_given_up_goes_on_behind_the_gap(consoles):
    console = consoles(segment_bytes=4096, quota_bytes=16384)
    console.write(b"a" * 4096)
    assert console.log.read(0, 10).data == b"a" * 10
    console.write(b"b" * 50_000)
    console.log.release_old()
    block = console.log.read(10, 100)
    assert block.gap_before == ConsoleGap(10, block.offset, "retention")
    assert block.offset == console.log.first_offset
    assert block.data == b"b" * 100


def test_a_hole_without_a_record_is_a_gap_of_unknown_cause(consoles):
    console = consoles(segment_bytes=4096)
    console.write(b"a" * 4096 + b"b" * 4096 + b"c" * 10)
    (console.directory / layout.segment_name(4096)).unlink()
    assert console.log.gaps(0, 10_000) == [ConsoleGap(4096, 8192, UNKNOWN)]
    assert console.log.read(4096, 100).offset == 8192
    assert console.everything() == b"a" * 4096 + b"c" * 10


def test_a_segment_that_was_given_up_empty_and_begun_again_is_found(consoles):
    console = consoles()
    console.write(b"")
    path = console.directory / layout.segment_name(0)
    path.touch()
    assert console.log.read(0, 10).data == b""
    path.unlink()
    console.write(b"here\n")
    assert console.log.read(0, 10).data == b"here\n"


def test_each_line_has_the_time_at_which_it_came(consoles):
    console = consoles(segment_bytes=1 << 20)
    before = time.time_ns() // 1_000_000
    console.write(b"one\ntwo\n")
    console.pump._segments._stamped_at = 0.0  # 50 ms have passed
    console.write(b"three\n")
    lines = list(console.log.lines(0, console.log.end_offset))
    assert [(line.offset, line.text) for line in lines] == [(0, "one"), (4, "two"), (8, "three")]
    assert before <= lines[0].timestamp_ms == lines[1].timestamp_ms <= lines[2].timestamp_ms
    assert [stamp.offset for stamp in console.log.times(5, 14)] == [5, 8]
    assert [stamp.offset for stamp in console.log.times(0, 8)] == [0]
    assert [stamp.offset for stamp in console.log.times(9, 14)] == [9]


def test_times_are_found_among_many(consoles):
    console = consoles(segment_bytes=1 << 24)
    for number in range(1000):
        console.pump._segments._stamped_at = 0.0
        console.write(b"%03d\n" % number)
    index = console.log.times(0, 4000)
    assert [stamp.offset for stamp in index] == list(range(0, 4000, 4))
    for start in (0, 3, 4, 1999, 2000, 3999, 17):
        found = ConsoleLog(console.directory)
        with found:
            stamps = found.times(start, start + 6)
        assert stamps[0].offset == start
        assert stamps[0].timestamp_ms == index[start // 4].timestamp_ms
        assert [s.offset for s in stamps[1:]] == [o for o in range(0, 4000, 4) if start < o < start + 6]


def test_the_tail_is_the_last_lines_without_the_middle_of_one(consoles):
    console = consoles()
    console.write(b"".join(b"line %d\n" % number for number in range(5000)))
    tail = console.log.tail(3)
    assert [line.text for line in tail] == ["line 4997", "line 4998", "line 4999"]
    assert [line.text for line in console.log.tail(100, max_bytes=25)] == ["line 4998", "line 4999"]
    console.write(b"no end")
    assert [line.text for line in console.log.tail(2)] == ["line 4999", "no end"]
    assert console.log.tail(0) == []


@pytest.mark.trap("T17")
def test_a_line_of_ten_megabytes_and_bytes_that_are_no_text_are_kept_and_shown(consoles):
    console = consoles(segment_bytes=3_000_000)
    hostile = b"\xff\xfe\xc3 \x1b[31mred\x1b[0m \x00 \xf0\x9f\n"
    long = b"x" * 10_000_000
    console.write(hostile + long + b"\n" + hostile)
    assert console.everything() == hostile + long + b"\n" + hostile
    lines = list(console.log.lines(0, console.log.end_offset))
    assert lines[0].text == lines[-1].text == hostile[:-1].decode("utf-8", "replace")
    middle = lines[1:-1]
    assert "".join(line.text for line in middle) == long.decode()
    assert max(len(line.text) for line in middle) == DISPLAY_BYTES
    assert console.log.tail(1)[0].text == lines[-1].text
    assert len(console.log.tail(1000, max_bytes=100_000)) <= 8


@given(data=st.binary(max_size=500), offset=st.integers(0, 1 << 40))
def test_pieces_are_the_bytes_in_order(data, offset):
    found = list(pieces(data, offset))
    assert b"".join(piece for _, piece in found) == data
    assert [at for at, _ in found] == [offset + sum(len(p) for _, p in found[:n]) for n in range(len(found))]
    assert all(b"\n" not in piece[:-1] for _, piece in found)
