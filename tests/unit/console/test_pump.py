"""What goes into the pipe is what lies in the segments, however small they are and whoever dies."""

from __future__ import annotations

import os
import pathlib
import select
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import corral
from corral.runtimes.console.log import RETENTION, ConsoleGap
from corral.runtimes.keeper import console_layout as layout
from corral.runtimes.keeper.console_pump import HOLD_BELOW, MOVE_BYTES, PIPE_BYTES, Pump

STEP = st.one_of(
    st.tuples(st.just("write"), st.binary(max_size=9000)),
    st.tuples(st.just("line"), st.integers(0, 5000)),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("tear index"), st.integers(1, 15)),
    st.tuples(st.just("empty segment"), st.none()),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=12), segment_bytes=st.integers(1, 20_000))
def test_any_bytes_through_any_segments_and_deaths_read_back_the_same(consoles, steps, segment_bytes):
    console = consoles(segment_bytes=segment_bytes)
    written = b""
    for kind, value in steps:
        if kind == "write":
            console.write(value)
            written += value
        elif kind == "line":
            console.write(b"x" * value + b"\n", drain=False)
            written += b"x" * value + b"\n"
        elif kind == "kill":
            console.kill()
        elif kind == "tear index":
            for path in console.directory.glob("*.idx"):
                with path.open("ab") as file:
                    file.write(b"\xff" * value)
            console.kill()
        else:  # the writer died between making its next segment and filling it
            console.pump.drain()
            (console.directory / layout.segment_name(console.pump.end_offset)).touch()
            console.kill()
    console.pump.drain()
    assert console.everything() == written
    assert console.log.end_offset == console.pump.end_offset == len(written)
    assert console.log.gaps(0, len(written)) == []
    offsets = [stamp.offset for stamp in console.log.times(0, len(written))]
    assert offsets == sorted(offsets)


def test_a_segment_is_named_after_its_first_byte_and_never_larger_than_asked(consoles):
    console = consoles(segment_bytes=5000)
    console.write(os.urandom(23_456))
    segments = sorted(console.directory.glob("*.log"))
    assert [int(path.stem) for path in segments] == [0, 5000, 10_000, 15_000, 20_000]
    assert [path.stat().st_size for path in segments] == [5000, 5000, 5000, 5000, 3456]


@pytest.mark.parametrize("how", ["unlink", "move", "empty"])
def test_a_segment_that_somebody_removes_is_told_and_storing_goes_on(consoles, how):
    console = consoles(segment_bytes=20_000)
    console.write(b"a" * 30_000)
    newest = console.directory / layout.segment_name(20_000)
    if how == "unlink":
        newest.unlink()
    elif how == "move":
        newest.rename(console.directory.parent / "moved")
    else:
        newest.write_bytes(b"")
    console.write(b"b" * 1000)
    assert console.everything() == b"a" * 20_000 + b"b" * 1000
    assert console.log.end_offset == 31_000
    assert console.log.gaps(0, 31_000) == [ConsoleGap(20_000, 30_000, "removed")]


def test_all_segments_and_the_file_of_gaps_are_removed(consoles):
    console = consoles(segment_bytes=20_000)
    console.write(b"a" * 30_000)
    for path in console.directory.iterdir():
        path.unlink()
    console.write(b"b" * 1000)
    assert console.everything() == b"b" * 1000
    assert console.log.gaps(0, 31_000) == [ConsoleGap(0, 30_000, "removed")]


def test_a_segment_that_somebody_cuts_is_told_and_storing_goes_on(consoles):
    console = consoles(segment_bytes=20_000)
    console.write(b"a" * 10_000)
    os.truncate(console.directory / layout.segment_name(0), 4000)
    console.write(b"b" * 1000)
    console.kill()
    console.write(b"c" * 1000)
    assert console.everything() == b"a" * 4000 + b"b" * 1000 + b"c" * 1000
    assert console.log.gaps(0, 12_000) == [ConsoleGap(4000, 10_000, "removed")]


def test_a_removed_segment_of_a_console_that_ends_is_told(consoles):
    console = consoles()
    console.write(b"a" * 1000)
    (console.directory / layout.segment_name(0)).unlink()
    console.pump.close()
    assert console.log.gaps(0, console.log.end_offset) == [ConsoleGap(0, 1000, "removed")]


def test_the_quota_lets_whole_segments_go_the_oldest_first(consoles):
    console = consoles(segment_bytes=1 << 20, quota_bytes=64 * 1024)
    data = os.urandom(1_000_000)
    console.write(data)
    kept = sum(path.stat().st_size for path in console.directory.glob("*.log"))
    assert 32 * 1024 <= kept <= 64 * 1024
    first = console.log.first_offset
    assert console.everything() == data[first:]
    assert console.log.gaps(0, len(data)) == [ConsoleGap(0, first, RETENTION)]
    assert sorted(p.stem for p in console.directory.glob("*.idx")) == sorted(
        p.stem for p in console.directory.glob("*.log")
    )


def test_a_pump_that_takes_over_keeps_to_the_quota_of_the_whole(consoles):
    console = consoles(segment_bytes=1 << 20, quota_bytes=64 * 1024)
    for _ in range(30):
        console.write(os.urandom(20_000))
        console.kill()
    assert sum(path.stat().st_size for path in console.directory.glob("*.log")) <= 64 * 1024


def test_a_quiet_source_moves_nothing_and_a_chatty_one_is_left_alone_for_a_moment(consoles):
    console = consoles(segment_bytes=1 << 20)
    assert console.pump.move() is False
    console.write(b"hello\n", drain=False)
    assert console.pump.move() is True
    console.write(b"world\n", drain=False)
    assert console.pump.move() is True
    assert console.pump.ready_at > 0.0
    console.write(b"x" * HOLD_BELOW, drain=False)
    assert console.pump.move() is True
    assert console.pump.timeout() is None


def test_who_takes_over_and_dies_before_the_loss_is_told_leaves_it_to_the_next(scratch):
    source, sink = os.pipe()
    (scratch / "console").mkdir()

    def taking_over() -> Pump:
        where = str(scratch / "console")
        return Pump(where, source, segment_bytes=4096, quota_bytes=0, taking_over=True)

    died, follower = taking_over(), taking_over()
    assert (died.source_is_fresh, follower.source_is_fresh) == (True, True)
    follower.note_loss()
    follower.size_source()
    last = taking_over()
    assert last.source_is_fresh is False
    for pump in (died, follower, last):
        pump.close()
    os.close(source)
    os.close(sink)


def test_the_end_of_the_last_writer_is_no_byte_and_no_error(scratch):
    source, sink = os.pipe()
    pump = Pump(str(scratch), source, segment_bytes=4096, quota_bytes=0)
    os.write(sink, b"last words")
    os.close(sink)
    pump.drain()
    assert pump.move() is False
    assert pump.end_offset == 10
    pump.close()
    pump.close()
    os.close(source)


def test_a_source_that_is_no_pipe_is_copied(scratch):
    """What a file system without splice answers is what splice answers to two files: EINVAL."""
    (scratch / "source").write_bytes(b"abc\n" * 100_000)
    source = os.open(scratch / "source", os.O_RDONLY)
    (scratch / "console").mkdir()
    pump = Pump(str(scratch / "console"), source, segment_bytes=100_000, quota_bytes=0)
    pump.drain()
    pump.close()
    os.close(source)
    stored = b"".join(path.read_bytes() for path in sorted((scratch / "console").glob("*.log")))
    assert stored == b"abc\n" * 100_000


def test_one_move_is_bounded(scratch):
    """A flood must not keep the shim from its other duties."""
    (scratch / "source").write_bytes(b"x" * (64 * MOVE_BYTES // 4))
    source = os.open(scratch / "source", os.O_RDONLY)
    (scratch / "console").mkdir()
    pump = Pump(str(scratch / "console"), source, segment_bytes=64 << 20, quota_bytes=0)
    assert pump.move() is True
    assert 0 < pump.end_offset <= 8 * MOVE_BYTES
    pump.close()
    os.close(source)


def test_whoever_goes_on_writing_does_not_keep_the_end_from_coming(scratch):
    """A stranger may hold the output of a workload that is gone, and flood it."""
    source, sink = os.pipe()
    floods = [subprocess.Popen(["cat", "/dev/zero"], stdout=sink) for _ in range(4)]
    try:
        pump = Pump(str(scratch), source, segment_bytes=4096, quota_bytes=1 << 14)  # slower than the flood
        for _ in range(10):
            before = pump.end_offset
            select.select([source], [], [])
            pump.drain()
            assert pump.end_offset - before <= PIPE_BYTES + MOVE_BYTES // 4
        pump.close()
    finally:
        for flood in floods:
            flood.kill()
            flood.wait()
        os.close(source)
        os.close(sink)


def test_the_writer_imports_little_and_nothing_but_the_standard_library():
    source = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "import corral.runtimes.keeper.console_pump;"
        "print(*sorted(m for m in sys.modules if m.partition('.')[0] not in sys.stdlib_module_names))"
    )
    root = str(pathlib.Path(corral.__file__).parent.parent)
    output = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source, root], capture_output=True, text=True, check=True
    ).stdout
    assert {m for m in output.split() if not m.startswith("corral")} == {"__main__"}


@pytest.mark.parametrize("length", [0, 1, 63, 64, 100, 4095, 4096])
def test_a_page_of_gaps_of_any_length_is_read_as_far_as_it_goes(length):
    page = bytearray(layout.GAPS_HEADER.ljust(layout.GAPS_BYTES, b"\0"))
    for sequence in range(1, 100):
        record = layout.GapRecord(
            sequence=sequence, from_offset=sequence, to_offset=sequence + 1, began_ms=1, ended_ms=2, reason=1
        )
        page[record.place : record.place + layout.GAP_BYTES] = record.packed()
    found = [record.sequence for record in layout.gap_records(bytes(page[:length]))]
    assert found == sorted(found)
    assert len(found) == max(0, length // layout.GAP_BYTES - 1)
    page[layout.GAP_BYTES + 9] ^= 1
    assert len(layout.gap_records(bytes(page))) == layout.GAP_SLOTS - 1
