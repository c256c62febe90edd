"""Writes on condition of a digest while the server saves to the same name: its newest save is never lost, and a write is
acknowledged only if it took the place of what its writer had seen."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import select
import subprocess
import sys
from collections.abc import Callable

import pytest

from corral.daemon.orders.file_conditions import FileCondition
from corral.daemon.orders.instance_file_changes import Rename, move_entry, remove_entry
from corral.daemon.orders.instance_file_placing import WrittenFile, place_file
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_exchange import EXCHANGES, Exchange
from corral.daemon.prepare.working_directories import staging_beside
from corral.errors import Code, FileChanged, Rejected
from corral.system.trees.renames import exchange, rename_to_free

Work = Callable[[], object]


@pytest.fixture
def root(scratch: pathlib.Path) -> pathlib.Path:
    directory = scratch / "running" / "lobby-1"
    directory.mkdir(parents=True)
    return directory


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def seen(content: bytes, **bounds: int) -> FileCondition:
    return FileCondition(digests=frozenset({sha256(content)}), **bounds)


def put(
    root: pathlib.Path, content: bytes, condition: FileCondition, swap: Exchange = exchange
) -> WrittenFile:
    staged = staging_beside(root) / "staged"
    staged.write_bytes(content)
    try:
        return place_file(
            root,
            "level.dat",
            staged,
            sha256(content),
            condition=condition,
            abort=Abort(),
            durable=False,
            exchange=swap,
        )
    finally:
        assert os.listdir(staged.parent) == [], "nothing is left aside"


class Before:
    """Does something of the server's just before each of the first exchanges, one after another."""

    def __init__(self, *works: Work) -> None:
        self._works = list(works)

    def __call__(self, source: int, name: str, target: int, other: str, /) -> bool:
        if self._works:
            self._works.pop(0)()
        return exchange(source, name, target, other)


class Server:
    """Saves by rename, as servers do."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.file = root / "level.dat"

    def save(self, content: bytes) -> Work:
        def save() -> None:
            new = self.root / "level.dat_new"
            new.write_bytes(content)
            new.rename(self.file)

        return save

    def write_in_place(self, content: bytes) -> Work:
        return lambda: self.file.write_bytes(content)


def contents(root: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir()}


@pytest.mark.parametrize("saves", [1, 2, 3, 4, 7])
@pytest.mark.trap("T26")
def test_the_newest_of_several_saves_between_two_calls_has_the_name_in_the_end(root, saves):
    server = Server(root)
    server.save(b"read")()
    between = [server.save(b"save %d" % number) for number in range(1, saves + 1)]
    with pytest.raises(FileChanged):
        put(root, b"mine", seen(b"read"), Before(*between))
    assert contents(root) == {"level.dat": b"save %d" % saves}


@pytest.mark.parametrize("saves", [2, 3, 4])
@pytest.mark.trap("T26")
def test_a_write_that_the_server_overtook_with_the_same_bytes_is_not_acknowledged(root, saves):
    server = Server(root)
    server.save(b"read")()
    with pytest.raises(FileChanged):
        put(root, b"mine", seen(b"read"), Before(*[server.save(b"read")] * saves))
    assert contents(root) == {"level.dat": b"read"}


@pytest.mark.trap("T26")
def test_a_write_is_tried_again_when_the_server_saved_the_same_bytes_once(root):
    server = Server(root)
    server.save(b"read")()
    assert put(root, b"mine", seen(b"read"), Before(server.save(b"read"))) == WrittenFile(
        former=sha256(b"read")
    )
    assert contents(root) == {"level.dat": b"mine"}


def test_a_server_that_saves_between_any_two_calls_loses_nothing_and_holds_up_nobody(root):
    server = Server(root)
    server.save(b"read")()
    saved = 0

    def swap(source: int, name: str, target: int, other: str, /) -> bool:
        nonlocal saved
        saved += 1
        server.save(b"save %d" % saved)()
        return exchange(source, name, target, other)

    with pytest.raises(FileChanged, match="corral-kept-") as refused:
        put(root, b"mine", seen(b"read"), swap)
    assert saved == EXCHANGES + 1
    held = contents(root)
    kept = next(name for name in held if name.startswith("corral-kept-"))
    assert kept in str(refused.value)
    assert held == {"level.dat": b"save %d" % (saved - 1), kept: b"save %d" % saved}


@pytest.mark.parametrize("how", ["removed", "moved", "written", "made a directory"])
def test_what_the_server_does_before_its_save_is_put_back_is_kept(root, how):
    server = Server(root)
    server.save(b"read")()

    def meanwhile() -> None:
        if how == "removed":
            server.file.unlink()
        elif how == "moved":
            server.file.rename(root / "level.dat_old")
        elif how == "written":
            with server.file.open("ab") as file:
                file.write(b", and more")
        else:
            server.file.unlink()
            server.file.mkdir()
            (server.file / "world").write_bytes(b"x")

    with pytest.raises(FileChanged) as refused:
        put(root, b"mine", seen(b"read"), Before(server.save(b"save"), meanwhile))
    if how == "removed":
        assert contents(root) == {}
    elif how == "moved":
        assert contents(root) == {"level.dat_old": b"mine", "level.dat": b"save"}
    elif how == "written":
        held = contents(root)
        assert held.pop("level.dat") == b"save"
        [(kept, content)] = held.items()
        assert kept in str(refused.value)
        assert content == b"mine, and more"
    else:
        assert (server.file / "world").read_bytes() == b"x"


def test_a_directory_that_takes_the_name_before_the_exchange_gets_it_back(root):
    server = Server(root)
    server.save(b"read")()

    def replace() -> None:
        server.file.unlink()
        server.file.mkdir()

    with pytest.raises(Rejected):
        put(root, b"mine", seen(b"read"), Before(replace))
    assert server.file.is_dir()


@pytest.mark.trap("T26")
def test_a_write_in_place_with_the_time_of_the_one_before_is_noticed(root):
    server = Server(root)
    server.save(b"one")()
    modified = server.file.stat().st_mtime_ns

    def write() -> None:
        server.file.write_bytes(b"two")
        os.utime(server.file, ns=(modified, modified))

    with pytest.raises(FileChanged):
        put(root, b"mine", seen(b"one"), Before(write))
    assert contents(root) == {"level.dat": b"two"}


# --- moves and removals ---------------------------------------------------------------------------
class Meanwhile(Abort):
    """Does something when the file has been read."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._looks = 0
        self._work = work

    def check(self) -> None:
        self._looks += 1
        if self._looks == 2:
            self._work()


def after(*works: Work) -> Rename:
    """A rename just before which the server does something, and just after it something else."""

    def rename(source: int, name: str, target: int, new_name: str, /) -> None:
        works[0]()
        rename_to_free(source, name, target, new_name)
        for work in works[1:]:
            work()

    return rename


@pytest.mark.parametrize("verb", ["move", "move over", "delete"])
@pytest.mark.parametrize("how", ["replaced", "written", "replaced twice"])
@pytest.mark.trap("T26")
def test_a_file_that_was_saved_before_its_move_or_removal_stays_and_so_does_the_target(root, verb, how):
    server = Server(root)
    server.save(b"read")()
    os.utime(server.file, (1, 1))
    there = {"target": b"precious"} if verb == "move over" else {}
    for name, content in there.items():
        (root / name).write_bytes(content)
    works = (
        [server.write_in_place(b"save")]
        if how == "written"
        else [server.save(b"save"), server.save(b"newest")][: 2 if how == "replaced twice" else 1]
    )
    rename = after(*works)
    with pytest.raises(FileChanged, match="nothing was written") as refused:
        if verb == "delete":
            remove_entry(
                root, "level.dat", recursive=False, condition=seen(b"read"), abort=Abort(), rename=rename
            )
        else:
            move_entry(
                root,
                "level.dat",
                "target",
                replace=verb == "move over",
                condition=seen(b"read"),
                abort=Abort(),
                rename=rename,
            )
    held = contents(root)
    assert "corral-kept-" not in str(refused.value), "what the server replaced itself is not kept"
    assert held.pop("level.dat") == (b"newest" if how == "replaced twice" else b"save")
    assert held == there
    assert os.listdir(staging_beside(root)) == []


def test_a_file_that_its_server_writes_in_place_is_kept_when_it_begins_a_new_one_meanwhile(root):
    server = Server(root)
    server.save(b"read")()
    os.utime(server.file, (1, 1))
    rename = after(server.write_in_place(b"read, and more"), server.write_in_place(b"a line"))
    with pytest.raises(FileChanged, match="corral-kept-") as refused:
        remove_entry(
            root, "level.dat", recursive=False, condition=seen(b"read"), abort=Abort(), rename=rename
        )
    held = contents(root)
    assert held.pop("level.dat") == b"a line"
    [(kept, content)] = held.items()
    assert kept in str(refused.value)
    assert content == b"read, and more"


def test_a_file_goes_back_when_the_target_is_taken_at_the_last_moment(root):
    Server(root).save(b"read")()
    rename = after((lambda: None), (root / "target").mkdir)
    with pytest.raises(Rejected) as refused:
        move_entry(
            root, "level.dat", "target", replace=False, condition=seen(b"read"), abort=Abort(), rename=rename
        )
    assert refused.value.code is Code.ALREADY_EXISTS
    assert (root / "level.dat").read_bytes() == b"read"
    assert sorted(os.listdir(root)) == ["level.dat", "target"]


def test_a_file_that_was_compared_replaces_the_target(root):
    Server(root).save(b"read")()
    (root / "target").write_bytes(b"old")
    digest = move_entry(root, "level.dat", "target", replace=True, condition=seen(b"read"), abort=Abort())
    assert digest == sha256(b"read")
    assert contents(root) == {"target": b"read"}


# --- bounds ---------------------------------------------------------------------------------------
class Reads(Abort):
    """Counts the blocks that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def check(self) -> None:
        self.count += 1


def test_a_file_that_is_too_large_is_not_read_to_be_compared(root):
    large = root / "level.dat"
    large.touch()
    os.truncate(large, 1 << 40)
    condition = seen(b"x", max_bytes=1 << 30)
    reads = Reads()
    for work in (
        lambda: put(root, b"mine", condition),
        lambda: move_entry(root, "level.dat", "to", replace=False, condition=condition, abort=reads),
        lambda: remove_entry(root, "level.dat", recursive=False, condition=condition, abort=reads),
    ):
        with pytest.raises(Rejected) as refused:
            work()
        assert refused.value.code is Code.BODY_TOO_LARGE
    with pytest.raises(FileChanged) as taken:
        put(root, b"mine", FileCondition(absent=True, max_bytes=1 << 50))
    assert taken.value.digest == ""
    assert reads.count == 0
    assert os.listdir(root) == ["level.dat"]


def test_a_file_that_is_removed_is_not_read_to_its_end(root):
    file = root / "level.dat"
    file.touch()
    os.truncate(file, 64 << 20)
    reads = Meanwhile(file.unlink)
    with pytest.raises(FileChanged, match="not there"):
        remove_entry(root, "level.dat", recursive=False, condition=seen(b"x", max_bytes=1 << 30), abort=reads)
    assert reads._looks == 2


# --- at full speed --------------------------------------------------------------------------------
SAVER = """
import os, sys
new, file, count, number = *sys.argv[1:3], int(sys.argv[3]), 0
for _ in sys.stdin:
    for _ in range(number % count + 1):
        number += 1
        made = os.open(new, os.O_WRONLY | os.O_CREAT)
        os.write(made, b"server %d" % number)
        os.close(made)
        os.rename(new, file)
    print(number, flush=True)
"""
ROUNDS, BURST = 1500, 60


def slow_exchange(source: int, name: str, target: int, other: str, /) -> bool:
    """Takes long enough for some saves, and so meets them often."""
    for _ in range(300):
        os.stat(other, dir_fd=target)
    return exchange(source, name, target, other)


@pytest.mark.system
@pytest.mark.parametrize("swap", [exchange, slow_exchange])
@pytest.mark.trap("T26")
def test_a_server_that_saves_all_the_time_keeps_its_newest_save_or_finds_ours(root, swap):
    (root / "level.dat").write_bytes(b"server 0")
    command = [sys.executable, "-c", SAVER, str(root / "new"), str(root / "level.dat"), str(BURST)]
    written: set[bytes] = set()
    numbers = range(ROUNDS * BURST)
    digests = frozenset(
        sha256(b"%s %d" % (who, number)) for who in (b"server", b"editor") for number in numbers
    )
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for _ in range(ROUNDS):
            server.stdin.write(b"\n")
            with contextlib.suppress(FileChanged, Rejected):  # one that is replaced just now is not read
                while not select.select([server.stdout], [], [], 0)[0]:
                    mine = b"editor %d" % len(written)
                    put(root, mine, FileCondition(digests=digests), swap)
                    written.add(mine)
            newest = b"server %d" % int(server.stdout.readline())
            assert (root / "level.dat").read_bytes() in written | {newest}
        server.stdin.close()
    assert os.listdir(root) == ["level.dat"], "nothing had to be kept beside it"
