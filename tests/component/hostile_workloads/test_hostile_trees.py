"""A hostile workload against everything that a root daemon does with its files: nothing outside is touched or read,
nothing waits for ever, and whatever can be done is done."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from hostile_tree import HOSTILITIES, OWN, UID, HostileTree, closed, deep, fifos, links, long_names, very_deep

from corral.daemon.cache.bootstraps import ISOLATED, BootstrapKey
from corral.daemon.cache.shelves import Shelves
from corral.domain.file_paths import Globs
from corral.errors import Rejected
from corral.system.trees.removal import remove

pytestmark = [
    pytest.mark.trap("T62"),
    pytest.mark.timeout(60),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root owns files of others"),
]
ROUNDS = 12


@pytest.fixture
def tree(scratch):
    made = HostileTree(scratch / "tree")
    yield made
    made.close()


@pytest.fixture
def trees(scratch):
    """As many as a test needs, one after the other."""
    made: list[HostileTree] = []

    def another() -> HostileTree:
        made.append(HostileTree(scratch / f"tree-{len(made)}"))
        return made[-1]

    yield another
    for each in made:
        each.close()


@pytest.fixture(autouse=True)
def place(scratch: pathlib.Path) -> None:
    """Trees lie where users other than root can pass through."""
    scratch.chmod(0o755)


# removal


@pytest.mark.parametrize("hostility", HOSTILITIES, ids=lambda each: each.__name__)
def test_whatever_a_workload_left_is_removed(tree: HostileTree, hostility) -> None:
    tree.file("plain/file")
    hostility(tree)
    tree.own()
    assert remove(tree.root) == ""
    assert not tree.root.exists()
    tree.check_outside()


def swapped_directories(tree: HostileTree, count: int) -> list[tuple[str, str]]:
    """Directories with files, beside links to the outside by whose names they are exchanged."""
    for number in range(count):
        tree.file(f"d{number}/precious")
        tree.file(f"d{number}/sub/precious")
        (tree.root / f"s{number}").symlink_to(tree.outside)
    tree.own()
    return [(f"d{number}", f"s{number}") for number in range(count)]


@pytest.mark.parametrize("uid", [UID, 0], ids=["by its owner", "by root"])
def test_nothing_outside_is_removed_while_directories_are_swapped_for_links(trees, uid) -> None:
    for _ in range(ROUNDS):
        tree = trees()
        tree.deep(1_200)
        pairs = swapped_directories(tree, 20)
        with tree.swapping(*pairs, uid=uid):
            left = remove(tree.root)
        tree.check_outside()
        if uid:  # root can change even what root has taken; others cannot
            assert (left, tree.root.exists()) == ("", False)


def test_a_descriptor_from_before_changes_nothing_in_a_directory_that_is_being_removed(tree) -> None:
    """What a removal has taken, its former owner cannot write to: it ends however fast somebody else writes."""
    tree.file("inner/file")
    tree.own()
    with tree.filling("inner"):
        assert remove(tree.root) == ""


def test_a_removal_that_cannot_end_says_what_is_left(tree) -> None:
    tree.file("mounted/file")
    tree.file("other/file")
    kept = tree.root / "mounted"
    subprocess.run(["mount", "--bind", str(tree.outside), str(kept)], check=True)
    try:
        assert "mounted" in remove(tree.root)
        assert [path.name for path in tree.root.iterdir()] == ["mounted"]
    finally:
        subprocess.run(["umount", str(kept)], check=True)
    tree.check_outside()


_AS_ANOTHER = """
import os, pathlib, sys
from corral.system.trees.removal import remove
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
print(remove(pathlib.Path(sys.argv[2])))
"""


@pytest.mark.parametrize("hostility", [closed, deep, links, fifos], ids=lambda each: each.__name__)
def test_a_daemon_that_is_not_root_removes_what_is_closed_to_itself(tree, hostility) -> None:
    hostility(tree)
    tree.own()
    os.chown(tree.place, UID, UID)
    ran = subprocess.run(
        [sys.executable, "-c", _AS_ANOTHER, str(UID), str(tree.root)], capture_output=True, text=True
    )
    assert (ran.stdout, ran.returncode) == ("\n", 0), ran.stderr
    assert not tree.root.exists()
    tree.check_outside()


# first-run results


def keep(tree: HostileTree, *globs: str) -> tuple[Shelves, pathlib.Path]:
    """What `warmup.paths` of a group would keep of it, and where that lies."""
    key = BootstrapKey(
        group="g", user=ISOLATED, paths=globs, config_format="paper", version="1", digest="d" * 64
    )
    shelves = Shelves(tree.place / "cache")
    shelves.scan()
    shelves.bootstraps.copy_aside(key, tree.root, Globs(globs), owner=UID, limit=1 << 30)
    shelves.bootstraps.put(key, now_ms=1)
    return shelves, shelves.bootstraps.tree(key)


@pytest.mark.parametrize("hostility", HOSTILITIES, ids=lambda each: each.__name__)
def test_first_run_results_hold_nothing_but_the_workloads_own_files(tree: HostileTree, hostility) -> None:
    tree.file("plain/file")
    hostility(tree)
    tree.own()
    if hostility in (deep, very_deep, long_names):
        with pytest.raises(Rejected, match=r"nested deeper|longer than"):
            keep(tree, "**")
    else:
        _, kept = keep(tree, "**")
        bodies = [path.read_bytes() for path in kept.rglob("*") if path.is_file()]
        assert (kept / "plain" / "file").read_bytes() == OWN
        assert set(bodies) <= {OWN, b""}
    tree.check_outside()


@pytest.mark.trap("T76")
def test_first_run_results_are_not_taken_from_a_directory_of_another_user(tree: HostileTree) -> None:
    tree.file("plain/file")
    with pytest.raises(Rejected, match="does not belong to the user"):
        keep(tree, "**")


def test_no_secret_becomes_a_first_run_result_while_directories_are_swapped_for_links(trees) -> None:
    for _ in range(ROUNDS):
        tree = trees()
        pairs = swapped_directories(tree, 60)
        with tree.swapping(*pairs):
            _, kept = keep(tree, "**")
        assert {path.read_bytes() for path in kept.rglob("*") if path.is_file()} <= {OWN}
        tree.check_outside()
