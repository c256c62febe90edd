"""Walks through a working directory and reads of its files: bounded, in order, and never outside it."""

from __future__ import annotations

import hashlib
import os
import pathlib
import socket
import threading

import pytest

from corral.daemon.orders.instance_files import FileWalk, WalkBounds, read_part
from corral.daemon.prepare.abort import Abort, Aborted
from corral.domain.file_paths import DEFAULT_BYTES, DEFAULT_ENTRIES, LEVELS, MOST_BYTES
from corral.errors import Code, CorralError, Rejected
from corral.system.clock import SystemClock


@pytest.fixture
def root(scratch: pathlib.Path) -> pathlib.Path:
    directory = scratch / "running" / "lobby-1"
    directory.mkdir(parents=True)
    (scratch / "secret").write_bytes(b"geheim")
    return directory


def walk(root, path="", after=b"", *, clock=None, abort=None, **bounds):
    walker = FileWalk(WalkBounds(**bounds), abort=abort or Abort(), clock=clock or SystemClock())
    return walker.run(root, path, after)


def paths(tree) -> list[str]:
    return [entry.path for entry in tree.entries]


def kinds(tree) -> dict[str, str]:
    return {entry.path: entry.kind for entry in tree.entries}


def fill(root: pathlib.Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())


def refused(work, *args, **more) -> Code:
    with pytest.raises(CorralError) as caught:
        work(*args, **more)
    return caught.value.code


# --- walks ----------------------------------------------------------------------------------------
def test_a_walk_names_everything_a_directory_before_what_is_in_it(root):
    fill(root, "b/y", "b/x/deep", "a", "b-c", "c/1")
    (root / "empty").mkdir()
    tree = walk(root)
    assert paths(tree) == ["a", "b", "b/x", "b/x/deep", "b/y", "b-c", "c", "c/1", "empty"]
    assert (tree.truncated, tree.next) == (False, b"")
    by_path = {entry.path: entry for entry in tree.entries}
    assert (by_path["b"].is_dir, by_path["b"].kind, by_path["b"].size_bytes) == (True, "directory", 0)
    assert (by_path["a"].is_dir, by_path["a"].kind, by_path["a"].size_bytes) == (False, "file", 1)
    assert by_path["a"].modified_at_ms == (root / "a").stat().st_mtime_ns // 1_000_000


def test_a_walk_of_a_directory_tells_paths_from_the_working_directory_on(root):
    fill(root, "logs/old/1", "logs/new", "other")
    assert paths(walk(root, "logs")) == ["logs/new", "logs/old", "logs/old/1"]
    assert paths(walk(root, "logs/old")) == ["logs/old/1"]


def test_an_empty_directory_has_nothing_to_tell(root):
    tree = walk(root)
    assert (paths(tree), tree.truncated, tree.next) == ([], False, b"")


def test_links_are_named_and_never_followed(root, scratch):
    (root / "out").symlink_to(scratch)
    (root / "file-out").symlink_to(scratch / "secret")
    (root / "loop").symlink_to(".")
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
        assert kinds(walk(root)) == {
            "dangling": "link",
            "file-out": "link",
            "loop": "link",
            "out": "link",
            "pipe": "other",
            "socket": "other",
        }


@pytest.mark.parametrize("path", ["..", "../..", "a/../..", "/etc", "a//b", "./a", "a/", "a\0b"])
def test_a_path_that_is_none_is_refused(root, path):
    fill(root, "a/b")
    assert refused(walk, root, path) is Code.PATH_REFUSED
    assert refused(read_part, root, path) is Code.PATH_REFUSED


def test_a_walk_beneath_a_link_or_a_file_is_refused(root, scratch):
    fill(root, "file", "real/x")
    (root / "out").symlink_to(scratch)
    (root / "within").symlink_to("real")
    for path in ("out", "out/running", "within", "file", "file/x"):
        assert refused(walk, root, path) is Code.PATH_REFUSED, path
    with pytest.raises(FileNotFoundError):
        walk(root, "nowhere")


def test_the_working_directory_itself_may_not_be_a_link(root, scratch):
    (scratch / "alias").symlink_to(root)
    with pytest.raises(NotADirectoryError):
        walk(scratch / "alias")
    fill(root, "a")
    with pytest.raises(NotADirectoryError):
        read_part(scratch / "alias", "a")


def test_a_walk_goes_on_where_it_ended_and_names_each_entry_once(root):
    fill(root, *(f"{a}/{b}/{c}" for a in "abc" for b in "xyz" for c in "123"), "m", "z")
    whole = paths(walk(root))
    for entries in (1, 2, 3, 7, len(whole)):
        told, after = [], b""
        for _ in range(len(whole) + 1):
            tree = walk(root, after=after, entries=entries)
            assert len(tree.entries) <= entries
            told += paths(tree)
            after = tree.next
            assert tree.truncated is bool(after)
            if not after:
                break
        assert told == whole, entries


def test_a_walk_beneath_a_path_goes_on_too(root):
    fill(root, "a/1", "a/2/x", "a/3", "b")
    first = walk(root, "a", entries=2)
    assert paths(first) == ["a/1", "a/2"]
    assert paths(walk(root, "a", first.next)) == ["a/2/x", "a/3"]


def test_a_walk_goes_on_although_what_it_ended_at_is_gone(root):
    fill(root, "a/1", "a/2", "a/3", "b")
    first = walk(root, entries=3)
    assert paths(first)[-1] == "a/2"
    (root / "a/2").unlink()
    assert paths(walk(root, after=first.next)) == ["a/3", "b"]
    for name in ("1", "3"):
        (root / "a" / name).unlink()
    (root / "a").rmdir()
    assert paths(walk(root, after=first.next)) == ["b"]


def test_a_huge_directory_is_told_in_part(root):
    (root / "many").mkdir()
    for number in range(DEFAULT_ENTRIES + 500):
        (root / "many" / f"{number:05}").touch()
    tree = walk(root)
    assert len(tree.entries) == DEFAULT_ENTRIES
    assert tree.truncated
    assert paths(tree)[-1] == f"many/{DEFAULT_ENTRIES - 2:05}"
    rest = walk(root, after=tree.next)
    assert len(rest.entries) == 501
    assert not rest.truncated


def test_an_answer_is_never_larger_than_its_bytes_whatever_files_are_called(root):
    for number in range(1500):
        (root / f"{number:04}{'n' * 240}").touch()
    tree = walk(root, entries=10_000)
    assert tree.truncated
    assert MOST_BYTES // 2 < tree.ByteSize() <= MOST_BYTES + 4096
    rest = walk(root, after=tree.next, entries=10_000)
    assert len(tree.entries) + len(rest.entries) == 1500


def test_a_walk_goes_only_so_deep(root):
    deep = "/".join(["d"] * (LEVELS + 3))
    (root / deep).mkdir(parents=True)
    tree = walk(root)
    assert paths(tree)[-1] == "/".join(["d"] * LEVELS)
    assert (tree.truncated, tree.next) == (True, b"")
    shallow = walk(root, depth=2)
    assert paths(shallow) == ["d", "d/d"]
    assert paths(walk(root, depth=10_000)) == paths(tree)


def test_a_directory_with_more_than_the_threshold_is_counted_instead(root):
    fill(root, *(f"many/{n}" for n in range(5)), "few/1", "few/2")
    tree = walk(root, summarize=3)
    assert paths(tree) == ["few", "few/1", "few/2", "many"]
    assert [(entry.summary, entry.child_count) for entry in tree.entries][-1] == (True, 5)
    assert not any(entry.summary or entry.child_count for entry in walk(root).entries)


def test_names_that_are_no_text_are_shown_as_well_as_they_can_be(root):
    for name in (b"a\xff", b"a\xfe", b"b"):
        (root / os.fsdecode(name)).touch()
    first = walk(root, entries=1)
    assert paths(first) == ["a\N{REPLACEMENT CHARACTER}"]
    assert len(walk(root, after=first.next).entries) == 2


class HurryingClock(SystemClock):
    """A second passes with every look at it."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 1.0
        return self._seconds


def test_a_walk_whose_time_is_up_tells_what_it_has(root):
    fill(root, *(f"{n:02}" for n in range(20)))
    tree = walk(root, clock=HurryingClock(), seconds=8.5)
    assert 0 < len(tree.entries) < 20
    assert (tree.truncated, tree.next) == (True, paths(tree)[-1].encode())
    assert paths(tree) + paths(walk(root, after=tree.next)) == [f"{n:02}" for n in range(20)]


def test_a_walk_that_has_no_time_at_all_says_so(root):
    fill(root, "a")
    assert refused(walk, root, clock=HurryingClock(), seconds=0.5) is Code.TIMEOUT


def test_a_walk_that_nobody_waits_for_ends(root):
    fill(root, "a")
    abort = Abort()
    abort.set()
    with pytest.raises(Aborted):
        walk(root, abort=abort)


# --- reads ----------------------------------------------------------------------------------------
def test_a_file_is_read_from_an_offset_on(root):
    (root / "log").write_bytes(bytes(range(256)) * 4)
    part = read_part(root, "log", offset=250, length=10)
    assert part.content == bytes([*range(250, 256), 0, 1, 2, 3])
    assert (part.total_size_bytes, part.truncated) == (1024, True)
    end = read_part(root, "log", offset=1020, length=100)
    assert (len(end.content), end.truncated) == (4, False)
    for offset in (1024, 5000, 2**63 - 1):
        behind = read_part(root, "log", offset=offset)
        assert (behind.content, behind.total_size_bytes, behind.truncated) == (b"", 1024, False)


def test_the_tail_of_a_file_is_its_last_bytes(root):
    (root / "log").write_bytes(b"0123456789")
    part = read_part(root, "log", length=4, tail=True)
    assert (part.content, part.total_size_bytes, part.truncated) == (b"6789", 10, True)
    whole = read_part(root, "log", length=40, tail=True)
    assert (whole.content, whole.truncated) == (b"0123456789", False)


def test_a_read_is_bounded_whatever_is_asked_for(root):
    (root / "big").write_bytes(bytes(MOST_BYTES + 10))
    assert len(read_part(root, "big").content) == DEFAULT_BYTES
    assert len(read_part(root, "big", length=2**31 - 1).content) == MOST_BYTES
    assert len(read_part(root, "big", length=-5).content) == DEFAULT_BYTES
    assert refused(read_part, root, "big", offset=-1) is Code.INVALID_FIELD


def test_only_regular_files_are_read_and_none_makes_us_wait(root, scratch):
    fill(root, "dir/file")
    (root / "out").symlink_to(scratch / "secret")
    (root / "within").symlink_to("dir/file")
    (root / "way").symlink_to("dir")
    os.mkfifo(root / "pipe")
    for path in ("dir", "out", "within", "way/file", "pipe", "dir/file/x"):
        assert refused(read_part, root, path) is Code.PATH_REFUSED, path
    for path in ("nothing", "dir/nothing", "no/thing"):
        with pytest.raises(FileNotFoundError):
            read_part(root, path)
    assert read_part(root, "dir/file").content == b"dir/file"


def test_whatever_is_swapped_meanwhile_nothing_outside_is_read_or_listed(root, scratch):
    """A workload changes a directory for a link and back as fast as it can."""
    outside = scratch / "outside"
    fill(outside, "inner/file")
    (outside / "inner/file").write_bytes(b"geheim")
    fill(root, "inner/file")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (root / "inner").rename(root / "aside")
            (root / "inner").symlink_to(outside / "inner")
            (root / "inner").unlink()
            (root / "aside").rename(root / "inner")

    (outside / "inner/only-outside").touch()
    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[bytes | str] = set()
    try:
        for _ in range(1500):
            try:
                seen.add(read_part(root, "inner/file").content)
                seen.update(paths(walk(root)))
            except (Rejected, FileNotFoundError):
                continue
    finally:
        stop.set()
        swapping.join()
    assert b"geheim" not in seen
    assert not any("only-outside" in str(each) for each in seen)


# --- digests --------------------------------------------------------------------------------------
def test_files_up_to_a_size_are_read_for_their_digests_and_whether_they_are_text(root, scratch):
    contents = {
        "text": "größe\n".encode(),
        "empty": b"",
        "nul": b"a\0b",
        "cut": b"caf\xc3",
        "large": b"x" * 101,
    }
    for name, content in contents.items():
        (root / name).write_bytes(content)
    os.link(scratch / "secret", root / "twin")
    (root / "link").symlink_to(scratch / "secret")
    os.mkfifo(root / "fifo")
    (root / "text").chmod(0o640)
    found = {entry.path: entry for entry in walk(root, digests=100).entries}
    read = {name: found[name].sha256 for name in found if found[name].sha256}
    assert read == {
        name: hashlib.sha256(contents[name]).hexdigest() for name in ("text", "empty", "nul", "cut")
    }
    assert {name for name in read if found[name].binary} == {"nul", "cut"}
    assert found["text"].mode == 0o640
    assert all(not entry.sha256 for entry in walk(root).entries)


def test_one_level_is_all_that_was_asked_for(root):
    fill(root, "a/b/c", "d")
    tree = walk(root, depth=1)
    assert (paths(tree), tree.truncated) == (["a", "d"], False)
    assert paths(walk(root, depth=2)) == ["a", "a/b", "d"]


def test_one_entry_is_looked_at_and_has_no_digest_if_that_takes_too_long(root, scratch):
    fill(root, "a/b")
    (root / "way").symlink_to(scratch)

    def look(path: str, **bounds: float) -> list[tuple[str, str, bool]]:
        walker = FileWalk(WalkBounds(**bounds), abort=Abort(), clock=SystemClock())
        return [(each.path, each.kind, bool(each.sha256)) for each in walker.look(root, path).entries]

    assert look("a/b", digests=100) == [("a/b", "file", True)]
    assert look("a/b", digests=100, seconds=-1) == [("a/b", "file", False)]
    assert look("a") == [("a", "directory", False)]
    assert look("way") == [("way", "link", False)]
    assert refused(look, "way/secret") is Code.PATH_REFUSED
    assert refused(look, "") is Code.PATH_REFUSED
    with pytest.raises(FileNotFoundError):
        look("nothing")
