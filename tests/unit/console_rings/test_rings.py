"""The controller's rings: always the newest bytes, never more than the bound, whatever comes how."""

from __future__ import annotations

import tracemalloc

import hypothesis
import pytest
from hypothesis import strategies as st

from corral.controller.consoles.pages import page_of, texts_of, whole_characters
from corral.controller.consoles.rings import ConsoleRing, Rings, Run
from corral.controller.consoles.span import ConsoleSpan, MissingBytes, Piece
from corral.domain.ids import Incarnation, InstanceId

KIB = 1024


def read(ring: ConsoleRing, after: int) -> bytes:
    return b"".join(piece.data for piece in ring.span(after, max_bytes=1 << 30).pieces)


def ring_of(rings: Rings, run: Run) -> ConsoleRing:
    ring = rings.writing(run, begin=0)
    assert ring is not None
    return ring


@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 400)), max_size=60), st.integers(1, 64)
)
def test_blocks_that_overlap_repeat_or_come_in_order_make_one_text(
    sendings: list[tuple[int, int]], capacity: int
) -> None:
    source = bytes(number % 251 for number in range(20_000))
    ring = ConsoleRing(begin=0, capacity=capacity)
    for back, more in sendings:
        begin = max(0, ring.end - back)
        ring.append(begin, source[begin : ring.end + more])
    assert read(ring, ring.begin) == source[ring.begin : ring.end]
    assert ring.size == ring.end - ring.begin
    assert ring.begin == 0 or ring.size >= capacity
    for offset in (ring.begin, (ring.begin + ring.end) // 2, ring.end):
        assert read(ring, offset) == source[offset : ring.end]


def test_a_ring_holds_its_capacity_and_little_more() -> None:
    ring = ConsoleRing(begin=0)
    for _ in range(1000):
        ring.append(ring.end, b"x" * 5000, times=[(ring.end, ring.end)])
        assert ring.size <= (256 + 64) * KIB
    assert ring.size >= 256 * KIB
    assert ring.end == 5_000_000


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([b""], 0),
        ([b"begins"], 0),
        ([b"begins", b"\n"], 7),
        ([b"one\ntw", b"o"], 4),
        ([b"one\n", b"x" * 100], 104),
    ],
)
def test_a_follower_that_begins_now_begins_with_the_line_that_has_no_end(
    written: list[bytes], expected: int
) -> None:
    ring = ConsoleRing(begin=0)
    for data in written:
        ring.append(ring.end, data)
    assert ring.open_line(longest=64) == expected


def test_of_a_line_that_ends_in_a_gap_nothing_is_begun() -> None:
    ring = ConsoleRing(begin=0)
    ring.append(0, b"half a line")
    ring.append(20, b"", gaps=[MissingBytes(11, 20, "lost")])
    assert ring.open_line(longest=64) == 20


def test_one_block_larger_than_everything_is_cut() -> None:
    ring = ConsoleRing(begin=0, capacity=KIB)
    ring.append(0, b"x" * 100_000)
    assert (ring.size, ring.end, ring.begin) == (KIB, 100_000, 100_000 - KIB)


def test_a_gap_the_node_explains_stays_inside_and_another_does_not() -> None:
    ring = ConsoleRing(begin=0)
    ring.append(0, b"a\n")
    ring.append(10, b"b\n", gaps=[MissingBytes(2, 10, "disk full")])
    span = ring.span(0, max_bytes=KIB)
    assert [(piece.offset, piece.data) for piece in span.pieces] == [(0, b"a\n"), (10, b"b\n")]
    assert span.gaps == (MissingBytes(2, 10, "disk full"),)
    ring.append(50, b"c\n")
    assert (ring.begin, ring.end, ring.size) == (50, 52, 2), "what came before is the node's to tell"


@hypothesis.given(st.text(max_size=200), st.lists(st.integers(0, 700), max_size=8))
def test_text_in_blocks_is_the_text_however_it_is_cut(text: str, cuts: list[int]) -> None:
    data = text.encode()
    places = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    told, at = "", 0
    for end in places:
        span = ConsoleSpan(
            pieces=(Piece(at, data[at:end]),) if end > at else (),
            times=(),
            gaps=(),
            first_offset=0,
            end_offset=len(data),
            next_offset=end,
        )
        for part in texts_of(span, after=at, final=end == len(data)):
            told, at = told + part.text, part.next_offset
    assert told == text


@hypothesis.given(st.binary(max_size=400), st.integers(1, 20))
def test_pages_hold_every_byte_once(data: bytes, limit: int) -> None:
    at, lines = 0, []
    while at < len(data):
        span = ConsoleSpan(
            pieces=(Piece(at, data[at:]),),
            times=(),
            gaps=(),
            first_offset=0,
            end_offset=len(data),
            next_offset=len(data),
        )
        page = page_of(span, incarnation=Incarnation(1), after=at, limit=limit, final=True)
        assert page.next_offset > at
        lines += [item.line for item in page.items]
        at = page.next_offset
    wanted = data.split(b"\n")
    wanted = wanted[:-1] if not wanted[-1] else wanted
    assert lines == [line.removesuffix(b"\r").decode("utf-8", "replace") for line in wanted]


@hypothesis.given(st.binary(max_size=12))
def test_what_is_held_back_is_at_most_the_beginning_of_one_character(data: bytes) -> None:
    length = whole_characters(data)
    assert len(data) - 3 <= length <= len(data)
    assert length == len(data) or data[length] >= 0xC0


def test_all_rings_together_stay_within_the_bound_and_ended_ones_go_first() -> None:
    live = {(InstanceId(f"live-{number}"), Incarnation(1)) for number in range(4)}
    rings = Rings(is_live=lambda run: run in live, ring_bytes=64 * KIB, total_bytes=512 * KIB)
    runs = [(InstanceId(f"ended-{number}"), Incarnation(1)) for number in range(20)] + sorted(live)
    for _ in range(30):
        for run in runs:
            ring = ring_of(rings, run)
            before = ring.size
            ring.append(ring.end, b"x" * 8 * KIB)
            rings.grown(ring.size - before)
            assert rings.bytes <= 512 * KIB
    held = [rings.find(run) for run in runs]
    assert rings.bytes == sum(ring.size for ring in held if ring is not None)
    assert all(rings.find(run) is not None for run in live)


def test_a_thousand_live_rings_shrink_before_they_are_dropped() -> None:
    rings = Rings(is_live=lambda run: True, ring_bytes=64 * KIB, total_bytes=KIB * KIB)
    for _ in range(3):
        for number in range(200):
            ring = ring_of(rings, (InstanceId(f"i-{number}"), Incarnation(1)))
            before = ring.size
            ring.append(ring.end, b"x" * 8 * KIB)
            rings.grown(ring.size - before)
            assert rings.bytes <= KIB * KIB


def test_an_instance_keeps_the_rings_of_its_latest_runs() -> None:
    rings = Rings(is_live=lambda run: run[1] == 9)
    for incarnation in range(1, 10):
        ring = ring_of(rings, (InstanceId("i"), Incarnation(incarnation)))
        ring.append(0, b"x" * 100)
        rings.grown(100)
    assert rings.runs(InstanceId("i")) == [6, 7, 8, 9]
    assert rings.bytes == 400
    rings.forget(InstanceId("i"))
    assert (rings.bytes, len(rings)) == (0, 0)


@pytest.mark.trap("T67")
def test_a_run_older_than_those_that_are_kept_gets_no_ring_and_takes_none_away() -> None:
    rings = Rings(is_live=lambda run: run[1] == 5)
    for incarnation in (2, 3, 4, 5):
        rings.writing((InstanceId("i"), Incarnation(incarnation)), begin=0)
    assert rings.writing((InstanceId("i"), Incarnation(1)), begin=0) is None
    assert rings.runs(InstanceId("i")) == [2, 3, 4, 5]


def test_numbers_that_a_node_makes_up_never_take_the_ring_of_the_present_run() -> None:
    present = (InstanceId("i"), Incarnation(1024))
    rings = Rings(is_live=lambda run: run == present)
    for made_up in range(1100, 1110):
        rings.writing((InstanceId("i"), Incarnation(made_up)), begin=0)
    assert rings.writing(present, begin=0) is not None
    for made_up in range(1200, 1210):
        rings.writing((InstanceId("i"), Incarnation(made_up)), begin=0)
    assert rings.find(present) is not None
    assert len(rings) == 4


def test_what_rings_hold_beside_the_bytes_counts_too() -> None:
    """Short lines now and then: when each came takes more memory than what it says."""
    rings = Rings(is_live=lambda _: True, total_bytes=256 * KIB)
    runs = [(InstanceId(f"i-{number}"), Incarnation(1)) for number in range(20)]
    tracemalloc.start()
    try:
        for moment in range(2000):
            for run in runs:
                ring = ring_of(rings, run)
                before = ring.memory
                ring.append(ring.end, b"tick\n", times=[(ring.end, 1_700_000_000_000 + moment * 60)])
                rings.grown(ring.memory - before)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * 256 * KIB
    kept = [rings.find(run) for run in runs]
    assert rings.bytes == sum(ring.memory for ring in kept if ring is not None)


def test_a_time_that_goes_on_is_kept_once() -> None:
    ring = ConsoleRing(begin=0)
    for _ in range(100):
        ring.append(ring.end, b"line\n", times=[(ring.end, 1_700_000_000_000)])
    assert len(ring.span(0, max_bytes=KIB).times) == 1


@hypothesis.given(
    st.lists(
        st.tuples(
            st.sampled_from(("write", "drop", "forget")),
            st.sampled_from("ab"),
            st.integers(1, 6),
            st.sampled_from(("n1", "n2")),
        ),
        max_size=40,
    )
)
def test_the_rings_of_a_writer_are_those_that_a_walk_finds(steps: list[tuple[str, str, int, str]]) -> None:
    rings = Rings(is_live=lambda run: run[1] == 6)
    for step, id, incarnation, writer in steps:
        run = (InstanceId(id), Incarnation(incarnation))
        if step == "write":
            rings.writing(run, begin=0, writer=writer)
        elif step == "drop":
            rings.drop(run)
        else:
            rings.forget(run[0])
        runs = [(InstanceId(id), each) for id in "ab" for each in rings.runs(InstanceId(id))]
        for writer in ("n1", "n2"):
            written = [(run, ring) for run in runs if (ring := rings.find(run)) and ring.writer == writer]
            assert rings.written_by(writer) == written
