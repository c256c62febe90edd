"""Changes of files by a daemon that is killed at the worst moment: the next one gives the server's save its name."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest

from corral.daemon.orders.file_conditions import FileCondition
from corral.daemon.orders.instance_file_placing import place_file
from corral.daemon.orders.instance_file_writes import staged_bytes
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_exchange import LeftAside
from corral.daemon.prepare.working_directories import STAGING, WorkingDirectories
from corral.system.entropy import SystemEntropy
from corral.system.trees.renames import exchange

CHANGER = """
import hashlib, json, os, pathlib, signal, sys
from corral.daemon.orders.file_conditions import FileCondition
from corral.daemon.orders.instance_file_changes import move_entry, remove_entry
from corral.daemon.orders.instance_file_placing import place_file
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.working_directories import staging_beside
from corral.system.trees.renames import exchange, rename_to_free

def change(root, verb, path, save):
    root = pathlib.Path(root)
    file = root / path

    def server_saves():
        if save == "replaced":
            new = root / "new"
            new.write_bytes(b"save")
            new.rename(file)
        elif save == "written":
            file.write_bytes(b"save")
        elif save == "unseen":
            before = file.stat()
            file.write_bytes(b"save")
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def killed_after(step):
        def stepped(*entries):
            server_saves()
            step(*entries)
            os.kill(os.getpid(), signal.SIGKILL)
        return stepped

    def killed_before(*entries):
        os.kill(os.getpid(), signal.SIGKILL)

    if save == "unseen":
        file.write_bytes(b"read")  # just now: its time would not show another write
    condition = FileCondition(digests=frozenset({hashlib.sha256(b"read").hexdigest()}))
    rename = killed_after(rename_to_free)
    if verb.startswith("write"):
        staged = staging_beside(root) / "staged"
        staged.write_bytes(b"mine")
        swap = killed_before if verb == "write, before" else killed_after(exchange)
        place_file(root, path, staged, "0" * 64, condition=condition, abort=Abort(), exchange=swap)
    elif verb == "delete":
        remove_entry(root, path, recursive=False, condition=condition, abort=Abort(), rename=rename)
    else:
        move_entry(root, path, "to/target", replace=True, condition=condition, abort=Abort(), rename=rename)

for line in sys.stdin:
    if (pid := os.fork()) == 0:
        change(*json.loads(line))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""Loads what changes need, and forks for each."""
OLD = (1, 1)
VERBS = ("write", "delete", "rename")


class Node:
    """A daemon's directories, with one instance that has files."""

    def __init__(self, data: pathlib.Path, changer: subprocess.Popen[str]) -> None:
        self._data = data
        self._changer = changer
        self.root = data / "running" / "lobby-1"
        self.staging = data / "running" / STAGING
        self.start()
        for directory in ("world", "to"):
            (self.root / directory).mkdir(parents=True)
        self.file = self.root / "world" / "level.dat"
        self.file.write_bytes(b"read")
        os.utime(self.file, OLD)
        (self.root / "to" / "target").write_bytes(b"precious")

    def start(self) -> None:
        """A daemon that starts."""
        WorkingDirectories(self._data, entropy=SystemEntropy()).open()

    def kill_amid(self, verb: str, save: str = "replaced") -> None:
        """A daemon that changes a file, and is killed between two calls; the server saves just before the first."""
        assert self._changer.stdin is not None
        assert self._changer.stdout is not None
        self._changer.stdin.write(f"{json.dumps([str(self.root), verb, 'world/level.dat', save])}\n")
        self._changer.stdin.flush()
        assert self._changer.stdout.readline() == f"{-signal.SIGKILL}\n"
        assert [name for name in os.listdir(self.staging) if "intent" in name], "it had begun"

    def save(self, content: bytes) -> None:
        new = self.root / "new"
        new.write_bytes(content)
        new.rename(self.file)

    def contents(self) -> dict[str, bytes]:
        """Of everything but the target of renames, which is as it was."""
        found = {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and not path.is_symlink()
        }
        assert found.pop("to/target") == b"precious"
        return found

    def kept(self) -> tuple[str, bytes]:
        """The only file that was kept beside."""
        [found] = [each for each in self.contents().items() if "corral-kept-" in each[0]]
        return found


@pytest.fixture(scope="module")
def changer() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", CHANGER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def node(scratch: pathlib.Path, changer: subprocess.Popen[str]) -> Node:
    return Node(scratch, changer)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("save", ["replaced", "written"])
def test_a_save_just_before_the_kill_has_its_name_after_the_next_start(node, verb, save):
    node.kill_amid(verb, save)
    assert node.contents().get("world/level.dat") == (b"mine" if verb == "write" else None)
    node.start()
    assert node.contents() == {"world/level.dat": b"save"}
    assert not node.staging.exists()


@pytest.mark.parametrize("verb", ["write", "delete"])
def test_a_save_that_only_its_content_shows_has_its_name_too(node, verb):
    node.kill_amid(verb, "unseen")
    node.start()
    assert node.contents() == {"world/level.dat": b"save"}


@pytest.mark.parametrize("just_written", [False, True])
@pytest.mark.parametrize(
    ("verb", "left"),
    [("write", b"mine"), ("write, before", b"read"), ("delete", None), ("rename", b"read")],
)
def test_what_was_compared_is_replaced_or_removed_by_right_unless_nothing_was_done(
    node, verb, left, just_written
):
    if just_written:
        node.file.write_bytes(b"read")
    node.kill_amid(verb, "none")
    node.start()
    assert node.contents() == ({} if left is None else {"world/level.dat": left})
    assert not node.staging.exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_newer_save_keeps_its_name_and_the_older_one_is_superseded(node, verb):
    node.kill_amid(verb)
    node.save(b"newest")
    node.start()
    assert node.contents() == {"world/level.dat": b"newest"}


def test_a_save_gets_its_name_if_that_is_free_by_now(node):
    node.kill_amid("write")
    node.file.rename(node.root / "world" / "elsewhere")
    node.start()
    assert node.contents() == {"world/level.dat": b"save", "world/elsewhere": b"mine"}


def test_what_the_server_wrote_to_the_new_file_stays_and_its_save_is_kept_beside(node):
    node.kill_amid("write")
    with node.file.open("ab") as file:
        file.write(b", and more")
    node.start()
    assert node.file.read_bytes() == b"mine, and more"
    assert node.kept()[1] == b"save"


def test_a_directory_that_took_the_name_does_not_get_replaced(node):
    node.kill_amid("delete")
    node.file.mkdir()
    node.start()
    assert node.file.is_dir()
    name, content = node.kept()
    assert name.startswith("world/")
    assert content == b"save"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.trap("T26")
def test_a_link_in_place_of_a_directory_is_not_followed_and_the_save_is_kept(node, scratch, verb):
    outside = scratch / "outside"
    outside.mkdir()
    (outside / "level.dat").write_bytes(b"theirs")
    node.kill_amid(verb)
    (node.root / "world").rename(node.root / "moved")
    (node.root / "world").symlink_to(outside)
    node.start()
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"level.dat": b"theirs"}
    name, content = node.kept()
    assert name.startswith("corral-kept-")
    assert content == b"save"


@pytest.mark.trap("T26")
def test_a_link_in_place_of_the_directory_of_a_moved_file_is_not_followed(node, scratch):
    node.kill_amid("rename")
    (node.root / "to").rename(scratch / "outside")
    (node.root / "to").symlink_to(scratch / "outside")
    before = sorted(os.listdir(scratch / "outside"))
    node.start()
    assert sorted(os.listdir(scratch / "outside")) == before
    assert not node.file.exists()


@pytest.mark.trap("T26")
def test_a_link_in_place_of_the_name_is_the_newer_one_and_not_followed(node, scratch):
    (scratch / "outside").write_bytes(b"theirs")
    node.kill_amid("write")
    node.file.unlink()
    node.file.symlink_to(scratch / "outside")
    node.start()
    assert node.file.is_symlink()
    assert (scratch / "outside").read_bytes() == b"theirs"


def rewritten(node: Node, **fields: object) -> None:
    [intent] = node.staging.glob("*intent*")
    intent.write_bytes(msgspec.json.encode({**msgspec.json.decode(intent.read_bytes()), **fields}))


def replaced_tree(node: Node) -> None:
    shutil.copytree(node.root, node.root.with_name("copy"))
    node.root.rename(node.root.with_name("old"))
    node.root.with_name("copy").rename(node.root)


def cut(node: Node) -> None:
    [intent] = node.staging.glob("*intent*")
    os.truncate(intent, 20)


def linked(node: Node) -> None:
    [intent] = node.staging.glob("*intent*")
    intent.rename(node.staging / "other")
    intent.symlink_to("other")


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        linked,
        replaced_tree,
        lambda node: rewritten(node, path="../../outside"),
        lambda node: rewritten(node, path="/etc/level.dat"),
        lambda node: rewritten(node, tree="../lobby-1"),
        lambda node: rewritten(node, tree="gone"),
        lambda node: rewritten(node, aside="../lobby-1/to/target"),
        lambda node: rewritten(node, path=7),
        lambda node: rewritten(node, path="x" * 100_000),
    ],
)
def test_an_intent_that_leads_elsewhere_or_cannot_be_read_is_skipped_and_the_daemon_starts(
    node, damage: Callable[[Node], None]
):
    node.kill_amid("write")
    damage(node)
    node.start()
    assert node.contents() == {"world/level.dat": b"mine"}
    assert not node.staging.exists()


def test_a_save_that_can_be_given_no_name_stays_aside_until_the_next_start(node: Node) -> None:
    """The directory is gone when the save is to be put back, as on a disk that refuses any new name."""
    calls = 0

    def swap(*entries: object) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            node.save(b"save")
            return exchange(*entries)
        node.file.rename(node.root / "moved")
        node.file.parent.rmdir()
        raise OSError(errno.EDQUOT, "no quota")

    condition = FileCondition(digests=frozenset({hashlib.sha256(b"read").hexdigest()}))
    with pytest.raises(LeftAside, match="lies aside"), staged_bytes(node.root, b"mine") as staged:
        place_file(
            node.root, "world/level.dat", staged, "0" * 64, condition=condition, abort=Abort(), exchange=swap
        )
    assert len(os.listdir(node.staging)) == 2, "the save and what was intended"
    node.start()
    assert b"save" in node.contents().values()
    assert not node.staging.exists() or os.listdir(node.staging) == []
