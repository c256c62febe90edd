"""Search with patterns from outside: linear, bounded, line by line."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.errors import Code, Rejected
from corral.runtimes.console import search as searching
from corral.runtimes.console.lines import DISPLAY_BYTES
from corral.runtimes.console.search import Bounds, Pattern, search
from corral.system.threads import to_end
from corral.testing.waiting import eventually


def texts(data: bytes, pattern: str) -> list[bytes]:
    return [hit.data for hit in Pattern(pattern).hits(data, 0)]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_pattern_is_matched_line_by_line(ending):
    data = ending.join([b"start ok", b"error one", b"", b"two error", b"end"]) + ending
    assert texts(data, "error") == [b"error one" + ending, b"two error" + ending]
    assert texts(data, "error$") == [b"two error" + ending]
    assert texts(data, "^error") == [b"error one" + ending]
    assert texts(data, "^$") == [ending]
    assert texts(data, r"ok\s+error") == []
    assert texts(data, "(?i)ERROR ONE") == [b"error one" + ending]
    assert len(texts(data, "x*")) == 5


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.text("ab c\r", max_size=6), st.sampled_from(["\n", "\r\n", "\r\r\n"])), max_size=20
    ),
    st.sampled_from(["a", "^a", "b$", "a.*b", "^$", "[^a]", "a*", "^c*$", r"\s$"]),
)
def test_the_same_lines_match_as_one_by_one(lines, pattern):
    data = "".join(line + end for line, end in lines)
    crlf = "\r\n" in data
    each = data.splitlines(keepends=True) if "\r" not in data else re.findall(r"[^\n]*\n", data)
    ends = (lambda line: line.removesuffix("\n").removesuffix("\r")) if crlf else (lambda line: line[:-1])
    assert texts(data.encode(), pattern) == [
        line.encode() for line in each if re2.search(f"(?m:{pattern})", ends(line))
    ]


def test_places_of_hits_are_those_of_the_console_whatever_the_line_breaks(consoles):
    data = b"".join(b"%d hit%s" % (n, b"\r\n" if n % 3 else b"\n") for n in range(1000))
    for text in (data, data.replace(b"\r\n", b"\n"), data.replace(b"\r", b"").replace(b"\n", b"\r\n")):
        for hit in Pattern("9 hit$").hits(text, 7):
            assert text[hit.offset - 7 :].startswith(hit.data)
            assert text[hit.offset - 8 : hit.offset - 7] in (b"\n", b"")


@pytest.mark.trap("T42")
@pytest.mark.parametrize(
    ("pattern", "line"), [("^zzz$", b"a\r\n"), ("^zzz$", b"\r\n"), ("[^a]z", b"\r\n"), ("[^a]z", b"a\r\nb\n")]
)
def test_a_window_of_a_terminal_is_searched_in_one_pass(pattern, line):
    """Whatever its line breaks are. As much as one search reads; line by line it would take minutes."""
    data = line * ((1 << 20) // len(line))
    for _ in range(searching.MAX_SCAN_BYTES >> 20):
        assert texts(data, pattern) == []


def test_a_search_ends_when_its_time_is_over_and_goes_on_there(consoles):
    console = consoles(segment_bytes=1 << 20)
    console.write(b"".join(b"%07d\r\n" % n for n in range(1_000_000)))
    end = console.log.end_offset
    bounds = Bounds(max_lines=100, max_bytes=1 << 20, over=lambda: True)
    for newest in (False, True):
        found, low, high, pages = [], 0, end, 0
        while low < high:
            page = search(console.log, Pattern("00000$"), low, high, bounds, newest=newest)
            found += [int(hit.data) for hit in page.found]
            low, high = (0, page.next_offset) if newest else (page.next_offset, end)
            pages += 1
        assert sorted(found) == list(range(0, 1_000_000, 100_000))
        assert pages > 3


async def test_a_search_whose_caller_has_gone_ends_at_the_next_piece(consoles):
    console = consoles(segment_bytes=8 << 20)
    console.write(b"miss\r\n" * 1_000_000)
    windows, gone = [], threading.Event()

    def over() -> bool:
        windows.append(1)
        gone.wait(10)
        return False

    bounds = Bounds(max_lines=100, max_bytes=1 << 20, over=over)
    asking = asyncio.create_task(
        to_end(search, console.log, Pattern("hit"), 0, console.log.end_offset, bounds)
    )
    await eventually(lambda: windows)
    asking.cancel()
    await asyncio.sleep(0)
    gone.set()
    await asyncio.wait([asking])
    assert (asking.cancelled(), len(windows)) == (True, 1)


@pytest.mark.trap("T42")
@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "(.*)*b", "(a?){100}a{100}", "^(([a-z])+.)+[A-Z]([a-z])+$"]
)
def test_a_hostile_pattern_is_answered(pattern):
    assert texts(b"a" * 200_000 + b"!\nplain\n", pattern) in ([], [b"a" * DISPLAY_BYTES])


@pytest.mark.trap("T42")
@pytest.mark.parametrize(
    "pattern",
    ["", "x" * 1001, "(", "a)(b", "*", r"(a)\1", "(?=a)", "((a{100}){100}){100}", "[z-a]", "\ud800"],
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern):
    with pytest.raises(Rejected) as caught:
        Pattern(pattern)
    assert caught.value.code is Code.INVALID_PATTERN


def test_forward_and_backward_find_the_first_and_the_last(consoles):
    console = consoles(segment_bytes=50_000)
    lines = [b"%d %s\n" % (n, b"hit" if n % 10 == 0 else b"miss") for n in range(20_000)]
    console.write(b"".join(lines))
    end = console.log.end_offset
    found = search(console.log, Pattern(r"hit$"), 0, end, Bounds(max_lines=3, max_bytes=1 << 20))
    assert [hit.data for hit in found.found] == [b"0 hit\n", b"10 hit\n", b"20 hit\n"]
    more = search(
        console.log, Pattern(r"hit$"), found.next_offset, end, Bounds(max_lines=2, max_bytes=1 << 20)
    )
    assert [hit.data for hit in more.found] == [b"30 hit\n", b"40 hit\n"]
    last = search(console.log, Pattern(r"hit$"), 0, end, Bounds(max_lines=2, max_bytes=1 << 20), newest=True)
    assert [hit.data for hit in last.found] == [b"19980 hit\n", b"19990 hit\n"]
    before = search(
        console.log,
        Pattern(r"hit$"),
        0,
        last.next_offset,
        Bounds(max_lines=1, max_bytes=1 << 20),
        newest=True,
    )
    assert [hit.data for hit in before.found] == [b"19970 hit\n"]
    every = search(console.log, Pattern("hit"), 0, end, Bounds(max_lines=10_000, max_bytes=1 << 20))
    assert len(every.found) == 2000
    assert every.next_offset == end
    few = search(console.log, Pattern("hit"), 0, end, Bounds(max_lines=10_000, max_bytes=100))
    assert sum(len(hit.data) for hit in few.found) <= 100


def test_paging_backward_sees_every_match_once(consoles):
    console = consoles(segment_bytes=1 << 20)
    console.write(b"".join(b"%06d\n" % n for n in range(300_000)))
    seen: list[bytes] = []
    high = console.log.end_offset
    while high > 0:
        page = search(
            console.log, Pattern("00$"), 0, high, Bounds(max_lines=700, max_bytes=1 << 20), newest=True
        )
        seen = [hit.data for hit in page.found] + seen
        high = page.next_offset
        if not page.found:
            break
    assert seen == [b"%06d\n" % n for n in range(0, 300_000, 100)]


def test_a_search_looks_at_no_more_than_its_bound_and_goes_on_there(consoles):
    console = consoles(segment_bytes=32 << 20)
    size = searching.MAX_SCAN_BYTES + (2 << 20)
    with (console.directory / "00000000000000000000.log").open("wb") as file:
        file.truncate(size)
        file.seek(size - 5)
        file.write(b"\nhit\n")
    first = search(console.log, Pattern("hit"), 0, size, Bounds(max_lines=10, max_bytes=1000))
    assert (first.found, first.next_offset) == ((), searching.MAX_SCAN_BYTES)
    rest = search(console.log, Pattern("hit"), first.next_offset, size, Bounds(max_lines=10, max_bytes=1000))
    assert [hit.data for hit in rest.found] == [b"hit\n"]


def test_a_line_at_the_bound_of_a_search_is_found_once_and_as_a_whole(consoles):
    """Forwards and backwards a search stops where a line begins, not within one."""
    console = consoles(segment_bytes=32 << 20)
    bound = searching.MAX_SCAN_BYTES
    size = 2 * bound
    with (console.directory / "00000000000000000000.log").open("wb") as file:
        file.truncate(size)
        file.seek(bound - 10)
        file.write(b"\nthe whole hit\n")
        file.seek(size - 1)
        file.write(b"\n")
    for newest in (False, True):
        found, low, high = [], 0, size
        for _ in range(3):
            page = search(
                console.log,
                Pattern("^the whole hit$|^[a-z ]*hit$"),
                low,
                high,
                Bounds(max_lines=9, max_bytes=99),
                newest=newest,
            )
            found += page.found
            low, high = (0, page.next_offset) if newest else (page.next_offset, size)
        assert [(hit.offset, hit.data) for hit in found] == [(bound - 9, b"the whole hit\n")], newest
