"""Tests of reading /proc: on trees that are made up, and on this very process."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from process_observer.proc import Process, Snapshot, read_process, usage_of

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


def put(
    proc: pathlib.Path, pid: int, parent: int, *, born: int = 100, name: str = "java", **more: object
) -> None:
    """A process of two threads, three pages, and 10 ticks in each of the four counts."""
    session, state = more.get("session", 1), more.get("state", "S")
    before = (
        f"{pid} ({name}) {state} {parent} 1 {session} 0 -1 0 0 0 0 0 10 10 10 10 20 0 2 0 {born} 4096 3 0"
    )
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{before} 0 0\n")
    if "io" in more:
        (proc / str(pid) / "io").write_text(str(more["io"]))


def process(proc: pathlib.Path, pid: int) -> Process:
    found = read_process(pid, proc=proc)
    assert found is not None
    return found


def pids(tree: list[Process]) -> list[int]:
    return sorted(each.pid for each in tree)


@pytest.mark.parametrize("name", ["java", "a b", "x) R 1 (", "((", "ends with )"])
def test_a_program_s_name_does_not_confuse_what_follows(tmp_path: pathlib.Path, name: str) -> None:
    put(tmp_path, 7, 5, name=name)
    assert process(tmp_path, 7) == Process(
        pid=7, parent=5, session=1, born=100, cpu_ticks=40, threads=2, resident_bytes=3 * PAGE
    )


def test_what_is_gone_or_only_waits_to_be_waited_for_is_no_process(tmp_path: pathlib.Path) -> None:
    put(tmp_path, 7, 5, state="Z")
    (tmp_path / "8").mkdir()
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "stat").write_text("")
    assert [read_process(pid, proc=tmp_path) for pid in (6, 7, 8, 9)] == [None] * 4


def test_a_tree_has_descendants_and_what_was_left_in_the_session(tmp_path: pathlib.Path) -> None:
    put(tmp_path, 1, 0, born=1)
    put(tmp_path, 10, 1, session=10)
    put(tmp_path, 11, 10, session=10)
    put(tmp_path, 12, 11, session=12)  # made a session of its own
    put(tmp_path, 13, 1, session=10)  # its parent has ended
    put(tmp_path, 14, 13, session=14)
    put(tmp_path, 20, 1, session=20)
    snapshot = Snapshot.read(proc=tmp_path)
    assert pids(snapshot.tree_of(process(tmp_path, 10))) == [10, 11, 12, 13, 14]
    assert pids(snapshot.tree_of(process(tmp_path, 20))) == [20]


def test_a_number_that_was_given_to_another_process_is_not_taken_for_the_first(
    tmp_path: pathlib.Path,
) -> None:
    put(tmp_path, 10, 1, born=100, session=10)
    first = process(tmp_path, 10)
    put(tmp_path, 9, 10, born=50)  # older than its parent: the one it had was another
    assert pids(Snapshot.read(proc=tmp_path).tree_of(first)) == [10]
    (tmp_path / "10" / "stat").unlink()
    (tmp_path / "10").rmdir()
    put(tmp_path, 10, 1, born=900)
    assert Snapshot.read(proc=tmp_path).tree_of(first) == []


def test_everything_is_added_up_and_what_may_not_be_seen_is_left_out(tmp_path: pathlib.Path) -> None:
    counts = "rchar: 1\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 9\n"
    put(tmp_path, 10, 1, io=counts)
    put(tmp_path, 11, 10, io=counts)
    put(tmp_path, 12, 10)
    tree = Snapshot.read(proc=tmp_path).tree_of(process(tmp_path, 10))
    usage = usage_of(tree, proc=tmp_path)
    assert (usage.cpu_seconds, usage.resident_bytes) == (120 / TICKS, 9 * PAGE)
    assert (usage.threads, usage.processes) == (6, 3)
    assert (usage.read_bytes, usage.written_bytes) == (8192, 1024)
    alone = usage_of([process(tmp_path, 12)], proc=tmp_path)
    assert (alone.read_bytes, alone.written_bytes) == (None, None)


@pytest.mark.parametrize("io", ["", "nothing", "read_bytes: many\nwrite_bytes: 1\n", "read_bytes: 1\n"])
def test_counts_that_cannot_be_read_are_left_out(tmp_path: pathlib.Path, io: str) -> None:
    put(tmp_path, 10, 1, io=io)
    assert usage_of([process(tmp_path, 10)], proc=tmp_path).read_bytes is None


def test_the_real_proc_is_understood() -> None:
    me = read_process(os.getpid())
    assert me is not None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        tree = Snapshot.read().tree_of(me)
        assert {os.getpid(), child.pid} <= {each.pid for each in tree}
        usage = usage_of(tree)
        assert usage.processes == len(tree) >= 2
        assert usage.cpu_seconds > 0
        assert usage.resident_bytes > 1_000_000
        assert usage.threads >= usage.processes
    finally:
        child.communicate(b"\n")
