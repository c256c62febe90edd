"""A hostile workload against everything that a root daemon does with its files: nothing outside is touched or read,
nothing waits for ever, and whatever can be done is done."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator

import pytest
from hostile_tree import (
    HOSTILITIES,
    OWN,
    SECRET,
    UID,
    HostileTree,
    closed,
    deep,
    fifos,
    links,
    long_names,
    very_deep,
)
from prepare_bench import plan_of

from corral.daemon.cache.bootstrap_store import ISOLATED, BootstrapKey
from corral.daemon.cache.contents import CacheContents
from corral.daemon.config_files.patches import apply_patches
from corral.daemon.orders.instance_file_writes import remove_file, write_file
from corral.daemon.orders.instance_files import FileWalk, WalkBounds, read_part
from corral.daemon.orders.save_orders import pack
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.static_owners import own_static
from corral.daemon.prepare.static_seeds import Digests, OfferedFile
from corral.daemon.prepare.static_trees import StaticTree
from corral.daemon.prepare.static_updates import StaticUpdate
from corral.daemon.prepare.substitution import substitute_files
from corral.daemon.workload.run_secrets import SecretGuard
from corral.daemon.workload.variable_values import Values
from corral.domain.file_paths import Globs
from corral.domain.groups.group import PatchOp, PatchSpec
from corral.domain.groups.secret_masks import SecretMask
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.clock import SystemClock
from corral.system.trees.entries import has_no_other_name, look_at, open_tree, unreadable
from corral.system.trees.removal import remove
from corral.system.trees.walk import walk

pytestmark = [
    pytest.mark.trap("T62"),
    pytest.mark.system,
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


def swapped(tree: HostileTree, count: int) -> list[tuple[str, str]]:
    """Directories beside links to the outside, and files beside links, FIFOs and other names of outside files:
    pairs of names that are exchanged."""
    precious = tree.outside / "precious"
    for number in range(count):
        tree.file(f"d{number}/precious")
        tree.file(f"d{number}/sub/precious")
        (tree.root / f"s{number}").symlink_to(tree.outside)
    for number in range(count // 2):
        tree.file(f"f{number}")
        other = tree.root / f"x{number}"
        (other.symlink_to, os.mkfifo, other.hardlink_to)[number % 3](other if number % 3 == 1 else precious)
    tree.own()
    directories = [(f"d{number}", f"s{number}") for number in range(count)]
    return [*directories, *((f"f{number}", f"x{number}") for number in range(count // 2))]


@pytest.mark.parametrize("uid", [UID, 0], ids=["by its owner", "by root"])
def test_nothing_outside_is_removed_while_directories_are_swapped_for_links(trees, uid) -> None:
    for _ in range(ROUNDS):
        tree = trees()
        os.close(tree.deep(1_200))
        pairs = swapped(tree, 20)
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


def test_however_many_directories_lie_too_deep_all_are_removed(tree: HostileTree) -> None:
    deepest = tree.deep(999)
    for number in range(10_100):
        os.mkdir(f"d{number}", dir_fd=deepest)
    os.close(deepest)
    assert remove(tree.root) == ""
    assert not tree.root.exists()


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


def keep(tree: HostileTree, *globs: str) -> tuple[CacheContents, pathlib.Path]:
    """What `warmup.paths` of a group would keep of it, and where that lies."""
    key = BootstrapKey(
        group="g", user=ISOLATED, paths=globs, config_format="paper", version="1", digest="d" * 64
    )
    shelves = CacheContents(tree.place / "cache")
    shelves.scan()
    guard = SecretGuard(SecretMask(), frozenset(), put_names=False)
    shelves.bootstraps.copy_aside(key, tree.root, Globs(globs), owner=UID, limit=1 << 30, guard=guard)
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
        pairs = swapped(tree, 60)
        with tree.swapping(*pairs):
            _, kept = keep(tree, "**")
        assert {path.read_bytes() for path in kept.rglob("*") if path.is_file()} <= {OWN}
        tree.check_outside()


# another owner


OTHER = 27202


def owners(root: pathlib.Path) -> set[int]:
    """Of everything in it that has one name alone, by a program that knows nothing of ours."""
    chosen = ["(", "-type", "d", "-o", "-links", "1", ")"]
    found = subprocess.run(["find", str(root), *chosen, "-printf", "%U\\n"], capture_output=True, check=True)
    return {int(uid) for uid in found.stdout.split()}


@pytest.mark.parametrize("hostility", HOSTILITIES, ids=lambda each: each.__name__)
def test_a_static_tree_is_handed_over_whole_and_nothing_besides(tree: HostileTree, hostility) -> None:
    tree.file("plain/file")
    hostility(tree)
    tree.own()
    own_static(tree.root, (OTHER, OTHER))
    assert owners(tree.root) == {OTHER}
    tree.check_outside()


def test_only_files_of_the_former_owner_are_handed_over_and_it_is_written_down(tree: HostileTree) -> None:
    tree.file("plain/file")
    tree.own()
    tree.file("plain/of-root")
    own_static(tree.root, (OTHER, OTHER))
    assert (tree.root / "plain" / "of-root").stat().st_uid == 0
    record = json.loads((tree.place / ".seeds" / "work.owners.json").read_text())
    assert record["value"]["handed_over"] == [{"former": UID, "owner": OTHER, "changed": 2, "left": 1}]
    own_static(tree.root, (OTHER, OTHER))
    assert len(json.loads((tree.place / ".seeds" / "work.owners.json").read_text())["value"]) == 1


def test_a_static_tree_with_hard_linked_files_is_refused_before_anything_changes(tree: HostileTree) -> None:
    """A backup by `cp -al`: half of the world would be the former owner's, and closed to the workload."""
    for name in ("a", "b", "c", "d"):
        tree.file(f"world/{name}").chmod(0o600)
    tree.file("log").chmod(0o600)
    tree.own()
    backup = tree.place / "backup"
    subprocess.run(["cp", "-al", str(tree.root / "world"), str(backup)], check=True)
    with pytest.raises(Rejected, match=r"'world/[abcd]', .* and 1 more have more than one name") as refused:
        own_static(tree.root, (OTHER, OTHER))
    assert (refused.value.code, refused.value.field) == (Code.RUN_AS_REFUSED, "isolate")
    assert "--reflink=auto" in refused.value.hint
    assert "isolate: shared" in refused.value.hint
    assert {path.stat().st_uid for path in (tree.root, *tree.root.rglob("*"))} == {UID}
    for path in backup.iterdir():
        path.unlink()
    own_static(tree.root, (OTHER, OTHER))
    assert {path.stat().st_uid for path in (tree.root, *tree.root.rglob("*"))} == {OTHER}


def test_files_that_everybody_reads_and_nobody_writes_may_have_other_names(tree: HostileTree) -> None:
    """Such as those that are linked out of the cache."""
    tree.file("shared").chmod(0o444)
    tree.own()
    (tree.place / "cached").hardlink_to(tree.root / "shared")
    own_static(tree.root, (OTHER, OTHER))
    assert (tree.root.stat().st_uid, (tree.root / "shared").stat().st_uid) == (OTHER, UID)


@contextlib.contextmanager
def mounted(source: pathlib.Path, target: pathlib.Path) -> Iterator[None]:
    subprocess.run(["mount", "--bind", str(source), str(target)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(target)], check=True)


def test_what_is_mounted_in_a_static_tree_is_not_handed_over_and_counted(tree: HostileTree) -> None:
    """A directory and a file, of the very user whose files are given away."""
    tree.file("maps/here")
    tree.file("motd")
    tree.file("plain")
    tree.own()
    shared = tree.place / "shared"
    (shared / "sub").mkdir(parents=True)
    (shared / "motd").write_bytes(OWN)
    everything = [shared, *shared.rglob("*")]
    for path in everything:
        os.chown(path, UID, UID)
    with mounted(shared, tree.root / "maps"), mounted(shared / "motd", tree.root / "motd"):
        own_static(tree.root, (OTHER, OTHER))
        assert b"maps/sub" in list_all(tree)
    assert {path.stat().st_uid for path in everything} == {UID}
    record = json.loads((tree.place / ".seeds" / "work.owners.json").read_text())
    assert record["value"]["handed_over"] == [{"former": UID, "owner": OTHER, "changed": 1, "left": 2}]


def test_nothing_outside_is_handed_over_while_directories_are_swapped_for_links(trees) -> None:
    for _ in range(ROUNDS):
        tree = trees()
        pairs = swapped(tree, 40)
        with tree.swapping(*pairs):
            own_static(tree.root, (OTHER, OTHER))
        tree.check_outside()


_WITH_FEW_DESCRIPTORS = """
import pathlib, resource, sys
from corral.system.trees.entries import open_tree
from corral.system.trees.owners import hand_over
from corral.system.trees.removal import remove
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
tree = pathlib.Path(sys.argv[1])
with open_tree(tree) as root:
    print(hand_over(root, (1, 1)).changed, end=" ")
print(repr(remove(tree)))
"""


def test_no_level_of_a_tree_costs_a_descriptor(tree: HostileTree) -> None:
    os.close(tree.deep(1_200))
    tree.own()
    ran = subprocess.run(
        [sys.executable, "-c", _WITH_FEW_DESCRIPTORS, str(tree.root)], capture_output=True, text=True
    )
    assert (ran.stdout, ran.returncode) == ("1201 ''\n", 0), ran.stderr


# what a start, an operator or a module does with single files


def refused(work: Callable[[], object]) -> object:
    """What it gave; None when it was refused or found nothing. Anything else is a fault."""
    try:
        return work()
    except (CorralError, FileNotFoundError):
        return None


def pack_all(tree: HostileTree) -> bytes:
    """Saved as a template, a file by file: one that is refused ends the whole."""
    target = tree.place / "saved.tar.gz"
    bodies, guard = b"", SecretGuard(SecretMask({}), frozenset(), put_names=False)
    for globs in (("plain/**",), ("config/**",), ("*",), ("d*/**",), ("**",)):
        with contextlib.suppress(CorralError):
            pack(tree.root, Globs(globs), target, max_bytes=1 << 24, max_files=0, abort=Abort(), guard=guard)
            with tarfile.open(target) as archive:
                bodies += b"".join(archive.extractfile(each).read() for each in archive if each.isfile())
    return bodies


def list_all(tree: HostileTree) -> bytes:
    listed = refused(lambda: FileWalk(WalkBounds(), abort=Abort(), clock=SystemClock()).run(tree.root))
    return b"" if listed is None else listed.SerializeToString()


def read_each(tree: HostileTree) -> bytes:
    found = [refused(lambda path=path: read_part(tree.root, path).content) for path in PATHS]
    return b"".join(body for body in found if body)


def write_each(tree: HostileTree) -> bytes:
    for path in PATHS:
        for append in (True, False):
            refused(lambda path=path, append=append: write_file(tree.root, path, b"new", append=append))
    return b""


def delete_each(tree: HostileTree) -> bytes:
    for path in PATHS:
        refused(lambda path=path: remove_file(tree.root, path))
    return b""


def patch_each(tree: HostileTree) -> bytes:
    """As a start does: a copy of what the world has is patched, and moved in."""
    static = StaticTree(tree.place, "work", plan_of(static=True))
    staged = tree.place / ".staging"
    for path in PATHS:
        remove(staged)
        staged.mkdir(mode=0o700)

        def work(path: str = path) -> None:
            update = StaticUpdate(static, plan_of(static=True), Values(all={}), Digests(tree.place / "key"))
            choice = update.choose({path: OfferedFile(source="new", content="00")})
            update.equal(choice, {path: OfferedFile(source="new", content="00")}, staged)
            static.open_to_change([path])
            static.bring(staged, [path], (UID, UID), Abort())
            apply_patches(
                staged,
                [PatchSpec(file=path, op=PatchOp.REGEX, path="own", value="patched", format="text")],
                values={},
            )
            substitute_files(staged, [path], Values(all={}), abort=Abort(), owner=(UID, UID))
            static.move_in(staged, static.changed_by(staged), (UID, UID))

        refused(work)
    return b""


def test_another_name_is_not_hidden_by_removing_the_one_that_we_came_by(tree: HostileTree) -> None:
    """Of a file of the same user: two names when it is opened, and one when they are counted."""
    of_another = tree.outside / "precious"
    os.chown(of_another, UID, UID)
    name = tree.root / "other-name"
    name.hardlink_to(of_another)
    tree.own()
    with open_tree(tree.root) as here, look_at(here, "other-name") as looked:
        name.unlink()
        assert os.fstat(looked).st_nlink == 1
        assert "more than one name" in unreadable(here, "other-name", looked)
        tree.file("other-name")
        assert not has_no_other_name(here, "other-name", looked)
    with open_tree(tree.root) as here, look_at(here, "other-name") as looked:
        assert has_no_other_name(here, "other-name", looked)


@pytest.mark.parametrize("writable_by", ["its owner", "its group"])
def test_root_reads_no_file_that_the_owner_of_its_directory_may_not(tree: HostileTree, writable_by) -> None:
    """Whatever its count of names is: where it came from nobody knows."""
    for path in ("plain/file", "config/precious"):
        tree.file(path)
    tree.own()
    for path, body, mode in (("plain/file", SECRET, 0o640), ("config/precious", OWN, 0o644)):
        tree.file(path, body).chmod(mode)
        os.chown(tree.root / path, 0, 0)
    if writable_by == "its group":
        os.chown(tree.root / "plain", 0, UID)
        (tree.root / "plain").chmod(0o775)
    assert (read_each(tree), pack_all(tree)) == (OWN, OWN)
    with pytest.raises(Rejected, match="belongs to another user"):
        read_part(tree.root, "plain/file")
    patch_each(tree)
    assert (tree.root / "plain" / "file").read_bytes() == SECRET
    if writable_by == "its group":
        (tree.root / "plain").chmod(0o755)  # nobody but root puts names there
        assert SECRET in read_each(tree)


def test_a_fifo_that_is_swapped_in_is_not_even_opened_to_add_to_it(tree: HostileTree) -> None:
    tree.file("log")
    os.mkfifo(tree.root / "fifo")
    tree.own()
    reading = os.open(tree.root / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writers = select.poll()
    writers.register(reading, select.POLLHUP)  # from the moment on when somebody who opened it has left
    try:
        with tree.swapping(("log", "fifo")):
            for _ in range(3_000):
                refused(lambda: write_file(tree.root, "log", b"", append=True))
        assert writers.poll(0) == []
    finally:
        os.close(reading)


def test_a_directory_that_is_moved_while_it_is_walked_through_is_named_in_utf8(tree: HostileTree) -> None:
    for path in ("a/b\udcff/file", "other/file"):
        tree.file(path)
    with pytest.raises(Retryable, match="was moved") as caught, open_tree(tree.root) as root:
        for found in walk(root):
            if found.path == "a/b\udcff/file":
                (tree.root / "a" / "b\udcff").rename(tree.root / "other" / "moved")
    assert b"'b?'" in str(caught.value).encode()


PATHS = (
    *("plain/file", "link/precious", "file-link", "config/precious", "hard", "fifo", "socket", "zero", "tty"),
    *("dangling", "closed/inner/file", "d/d/d", "f" * 255, "link", "self/plain/file"),
    *(f"d{number}/precious" for number in range(6)),
    *(f"s{number}/sub/precious" for number in range(6)),
    *(f"{kind}{number}" for kind in "fx" for number in range(3)),
)
OPERATIONS = (pack_all, list_all, read_each, write_each, delete_each, patch_each)


WALKS = (pack_all, list_all)


def test_each_operation_does_its_work_on_a_friendly_tree(tree: HostileTree) -> None:
    """Else the refusals below would say nothing."""
    plain = tree.file("plain/file")
    tree.own()
    assert [OWN in pack_all(tree), OWN in read_each(tree), b"plain/file" in list_all(tree)] == [True] * 3
    patch_each(tree)
    assert (plain.read_bytes(), plain.stat().st_uid) == (b"the workload's patched", UID)
    write_each(tree)
    assert plain.read_bytes() == b"new"
    delete_each(tree)
    assert not plain.exists()


@pytest.mark.parametrize(
    ("operation", "hostility"),
    [(work, each) for work in OPERATIONS for each in HOSTILITIES if each is not very_deep or work in WALKS],
    ids=lambda each: each.__name__,
)
def test_nothing_but_the_workloads_own_files_is_read_or_written(tree, hostility, operation) -> None:
    tree.file("plain/file")
    hostility(tree)
    tree.own()
    assert SECRET not in operation(tree)
    tree.check_outside()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.__name__)
def test_swaps_at_full_speed_lead_no_operation_outside(tree, operation) -> None:
    pairs = swapped(tree, 6)
    with tree.swapping(*pairs):
        for _ in range(ROUNDS):
            assert SECRET not in operation(tree)
    tree.check_outside()
