"""What a window shows of a console."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from corral.runtimes.keeper.console_layout import segment_name
from corral.runtimes.sessions.console_tail import BEGIN_BYTES, BEHIND_BYTES, ConsoleTail, Tamed


@pytest.fixture
def tail(tmp_path: pathlib.Path) -> Iterator[ConsoleTail]:
    tail = ConsoleTail(str(tmp_path))
    yield tail
    tail.close()


def put(directory: pathlib.Path, first: int, content: bytes) -> None:
    with (directory / segment_name(first)).open("ab") as segment:
        segment.write(content)


def all_of(tail: ConsoleTail) -> tuple[bytes, int]:
    shown, missing = b"", 0
    while True:
        piece, left_out = tail.read()
        missing += left_out
        if not piece:
            return shown, missing
        shown += piece


def test_bytes_come_in_order_across_segments(tmp_path: pathlib.Path, tail: ConsoleTail) -> None:
    assert tail.read() == (b"", 0)
    put(tmp_path, 0, b"one ")
    assert all_of(tail) == (b"one ", 0)
    put(tmp_path, 0, b"two ")
    put(tmp_path, 8, b"three ")
    put(tmp_path, 14, b"four")
    assert all_of(tail) == (b"two three four", 0)
    assert all_of(tail) == (b"", 0)


def test_a_new_window_begins_near_the_end(tmp_path: pathlib.Path, tail: ConsoleTail) -> None:
    put(tmp_path, 0, b"x" * BEGIN_BYTES + b"y" * BEGIN_BYTES)
    assert all_of(tail) == (b"y" * BEGIN_BYTES, 0)


def test_who_falls_behind_goes_on_near_the_end_and_knows_what_is_missing(
    tmp_path: pathlib.Path, tail: ConsoleTail
) -> None:
    put(tmp_path, 0, b"seen")
    all_of(tail)
    put(tmp_path, 0, b"x" * BEHIND_BYTES + b"y" * BEGIN_BYTES)
    assert all_of(tail) == (b"y" * BEGIN_BYTES, BEHIND_BYTES)


def test_a_segment_whose_time_is_over_is_passed_over(tmp_path: pathlib.Path, tail: ConsoleTail) -> None:
    put(tmp_path, 0, b"seen")
    all_of(tail)
    (tmp_path / segment_name(0)).unlink()
    put(tmp_path, 100, b"new")
    assert all_of(tail) == (b"new", 0)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"plain \xc3\xbc\ttext\r\n", b"plain \xc3\xbc\ttext\r\n"),
        (b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m"),
        (b"\x1b[6n", b"^[[6n"),
        (b"\x1b]0;title\x07", b"^[]0;title^G"),
        (b"\x00\x7f", b"^@^?"),
        (b"\xc2\x9b6n", b"?6n"),
        (b"\xff\xfe", b"\xff\xfe"),
    ],
)
def test_only_colours_reach_a_terminal(printed: bytes, shown: bytes) -> None:
    assert Tamed().text(printed) + Tamed().text(b"") == shown
    one_by_one = Tamed()
    assert b"".join(one_by_one.text(bytes([byte])) for byte in printed) == shown


def test_an_escape_code_without_end_is_shown_at_last() -> None:
    tamed = Tamed()
    assert tamed.text(b"\x1b[" + b"1;" * 100) == b"^[[" + b"1;" * 100
