"""Files that get their place in a working directory, and its other changes: compared, whole, and never outside it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pathlib
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator

import pytest

from corral.daemon.orders.file_conditions import FileCondition
from corral.daemon.orders.instance_file_changes import make_directory, move_entry, remove_entry
from corral.daemon.orders.instance_file_placing import WrittenFile, place_file, sync_directory
from corral.daemon.orders.instance_file_unpacking import UnpackBounds, unpack
from corral.daemon.orders.instance_files import FileWalk, WalkBounds, read_part
from corral.daemon.orders.save_orders import pack_directory
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.working_directories import staging_beside
from corral.errors import Code, CorralError, FileChanged, Rejected
from corral.system.clock import SystemClock
from corral.system.trees.removal import remove
from corral.system.trees.renames import exchange
from corral.testing.small_disk import small_disk

ABSENT = FileCondition(absent=True)


@pytest.fixture
def root(scratch: pathlib.Path) -> pathlib.Path:
    directory = scratch / "running" / "lobby-1"
    directory.mkdir(parents=True)
    outside = scratch / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"theirs")
    return directory


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def seen(*contents: bytes) -> FileCondition:
    return FileCondition(digests=frozenset(sha256(content) for content in contents))


def put(
    root: pathlib.Path, path: str, content: bytes, condition: FileCondition | None = None, *, mode: int = 0
) -> WrittenFile:
    staged = staging_beside(root) / "staged"
    staged.write_bytes(content)
    try:
        return place_file(
            root,
            path,
            staged,
            sha256(content),
            condition=condition or FileCondition(),
            abort=Abort(),
            mode=mode,
        )
    finally:
        staged.unlink(missing_ok=True)
        assert os.listdir(staged.parent) == [], "nothing is left aside"


def code(work: Callable[[], object]) -> Code:
    with pytest.raises(CorralError) as caught:
        work()
    return caught.value.code


def all_of(directory: pathlib.Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


# --- writes ---------------------------------------------------------------------------------------
def test_a_directory_is_neither_read_nor_written_as_a_file_and_the_refusal_says_so(
    root: pathlib.Path,
) -> None:
    (root / "world").mkdir()
    for refused in (
        lambda: read_part(root, "world"),
        lambda: put(root, "world", b"x"),
        lambda: put(root, "world", b"x", ABSENT),
        lambda: put(root, "world", b"x", seen(b"y")),
    ):
        with pytest.raises(Rejected) as caught:
            refused()
        assert caught.value.code is Code.PATH_REFUSED
        assert caught.value.message == "'world' is a directory"
        assert "name a file in it: 'world/NAME'" in str(caught.value.hint)


def test_a_file_is_written_only_if_it_is_what_the_writer_has_seen(root):
    assert put(root, "conf/a.yml", b"one", ABSENT) == WrittenFile()
    with pytest.raises(FileChanged) as taken:
        put(root, "conf/a.yml", b"mine", ABSENT)
    assert taken.value.digest == sha256(b"one")
    assert put(root, "conf/a.yml", b"two", seen(b"other", b"one")) == WrittenFile(former=sha256(b"one"))
    with pytest.raises(FileChanged) as lost:
        put(root, "conf/a.yml", b"three", seen(b"one"))
    assert lost.value.digest == sha256(b"two")
    assert put(root, "conf/a.yml", b"two", seen(b"one")).unchanged, "a repetition has nothing left to do"
    for condition in (seen(b"one"), FileCondition(present=True)):
        assert code(lambda condition=condition: put(root, "new/b.yml", b"x", condition)) is Code.FILE_CHANGED
    assert put(root, "conf/a.yml", b"any", FileCondition(present=True)) == WrittenFile()
    assert all_of(root) == {"conf/a.yml": b"any"}
    assert sorted(os.listdir(root)) == ["conf"], "a refused write makes no directories"


def test_a_file_that_replaces_another_keeps_its_mode_and_owner_without_special_bits(root):
    tool = root / "tool"
    tool.write_bytes(b"old")
    tool.chmod(0o4755)
    if os.geteuid() == 0:
        os.chown(root, 1234, 1235)
        os.chown(tool, 4321, 4322)
        tool.chmod(0o4755)
    put(root, "tool", b"new", seen(b"old"))
    put(root, "sub/new", b"x")
    assert stat.S_IMODE(tool.stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "sub/new").stat().st_mode) == 0o644
    if os.geteuid() == 0:
        assert (tool.stat().st_uid, tool.stat().st_gid) == (4321, 4322)
        for made in (root / "sub", root / "sub/new"):
            assert (made.stat().st_uid, made.stat().st_gid) == (1234, 1235), made


@pytest.mark.trap("T26")
def test_a_file_gets_the_mode_that_is_asked_for_and_keeps_it_afterwards(root):
    for content, condition, asked, expected in (
        (b"one", ABSENT, 0o755, 0o755),
        (b"two", None, 0, 0o755),
        (b"two", seen(b"two"), 0o444, 0o444),
    ):
        put(root, "run.sh", content, condition, mode=asked)
        assert stat.S_IMODE((root / "run.sh").stat().st_mode) == expected


def test_no_verb_follows_or_replaces_what_is_no_file_of_the_instance(root, scratch):
    (root / "way").symlink_to(scratch / "outside")
    (root / "link").symlink_to(scratch / "outside" / "secret")
    (root / "gone").symlink_to(scratch / "outside" / "made")
    os.mkfifo(root / "fifo")
    os.link(scratch / "outside" / "secret", root / "twin")
    (root / "own").write_bytes(b"own")
    secret = seen(b"theirs")
    for path in (
        "way/secret",
        "way/new",
        "link",
        "gone",
        "fifo",
        "../outside/secret",
        "/etc/passwd",
        "a\0b",
        ".",
    ):
        for condition in (FileCondition(), ABSENT, FileCondition(present=True), secret):
            refused = code(lambda path=path, condition=condition: put(root, path, b"x", condition))
            assert refused is Code.PATH_REFUSED, (path, condition)
        assert (
            code(lambda path=path: move_entry(root, path, "to", replace=True, abort=Abort()))
            is Code.PATH_REFUSED
        )
        if path not in ("link", "gone", "fifo"):  # their names are the instance's own, and may be removed
            assert code(lambda path=path: gone(root, path, recursive=True)) is Code.PATH_REFUSED
            assert (
                code(lambda path=path: move_entry(root, "own", path, replace=True, abort=Abort()))
                is Code.PATH_REFUSED
            )
        assert code(lambda path=path: make_directory(root, f"{path}/x")) is Code.PATH_REFUSED
        assert code(lambda path=path: unpacked(root, path, "")) is Code.PATH_REFUSED
    assert code(lambda: put(root, "twin", b"x", secret)) is Code.PATH_REFUSED, (
        "what lies elsewhere is not read"
    )
    put(root, "twin", b"mine")
    for path in ("link", "gone", "fifo", "twin", "way"):
        gone(root, path)
    assert all_of(scratch / "outside") == {"secret": b"theirs"}
    assert all_of(root) == {"own": b"own"}


@pytest.mark.trap("T62")
def test_directories_that_are_swapped_for_links_lead_nowhere(root, scratch):
    inside, link = root / "dir", root / "swap"
    inside.mkdir()
    link.symlink_to(scratch / "outside")
    here = os.open(root, os.O_RDONLY)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            assert exchange(here, "dir", here, "swap")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(150):
            for work in (
                lambda: put(root, "dir/secret", b"x"),
                lambda: put(root, "dir/secret", b"y", seen(b"x", b"theirs")),
                lambda number=number: move_entry(
                    root, "dir/secret", f"dir/{number}", replace=True, abort=Abort()
                ),
                lambda: gone(root, "dir/secret", recursive=True),
                lambda number=number: make_directory(root, f"dir/made-{number}"),
            ):
                with contextlib.suppress(CorralError, FileNotFoundError):
                    work()
    finally:
        over.set()
        swapping.join()
        os.close(here)
    assert all_of(scratch / "outside") == {"secret": b"theirs"}
    assert sorted(os.listdir(scratch / "outside")) == ["secret"]


class Meanwhile(Abort):
    """Does something at the n-th look: 1, when the file is open, 2, when it was read."""

    def __init__(self, look: int, work: Callable[[], object]) -> None:
        super().__init__()
        self._left = look
        self._work = work

    def check(self) -> None:
        self._left -= 1
        if not self._left:
            self._work()


@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize("how", ["replaced", "written", "removed", "linked"])
@pytest.mark.trap("T26")
def test_what_the_server_does_to_a_file_between_comparison_and_rename_is_kept(root, scratch, look, how):
    file, staged = root / "level.dat", staging_beside(root) / "staged"
    file.write_bytes(b"seen")
    staged.write_bytes(b"mine")
    os.utime(file, (1, 1))

    def change() -> None:
        if how == "written":
            file.write_bytes(b"server's")
            return
        file.unlink()
        if how == "replaced":
            file.write_bytes(b"server's")
        elif how == "linked":
            file.symlink_to(scratch / "outside" / "secret")

    with pytest.raises((FileChanged, Rejected)):
        place_file(
            root, "level.dat", staged, sha256(b"mine"), condition=seen(b"seen"), abort=Meanwhile(look, change)
        )
    if how in ("replaced", "written"):
        assert file.read_bytes() == b"server's"
    else:
        assert file.is_symlink() == (how == "linked")
    assert all_of(scratch / "outside") == {"secret": b"theirs"}
    assert os.listdir(staged.parent) == []


@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize("verb", ["delete", "rename"])
def test_what_the_server_saves_before_a_file_is_moved_or_deleted_is_kept(root, look, verb):
    file = root / "level.dat"
    for how in ("replaced", "written"):
        file.write_bytes(b"seen")
        os.utime(file, (1, 1))

        def save(how: str = how) -> None:
            if how == "replaced":
                file.unlink()
            file.write_bytes(b"server's")

        abort = Meanwhile(look, save)
        with pytest.raises(FileChanged):
            if verb == "delete":
                remove_entry(root, "level.dat", recursive=False, condition=seen(b"seen"), abort=abort)
            else:
                move_entry(root, "level.dat", "to", replace=False, condition=seen(b"seen"), abort=abort)
        assert all_of(root) == {"level.dat": b"server's"}, how
        assert os.listdir(staging_beside(root)) == []


def test_a_directory_that_was_replaced_by_a_new_start_is_not_written_to_in_vain(root):
    staged = staging_beside(root) / "staged"
    staged.write_bytes(b"x")

    def replace() -> None:
        root.rename(root.parent / "old")
        root.mkdir()

    (root / "a").write_bytes(b"seen")
    refused = code(
        lambda: place_file(
            root, "a", staged, sha256(b"x"), condition=seen(b"seen"), abort=Meanwhile(1, replace)
        )
    )
    assert refused is Code.NOT_FOUND
    assert os.listdir(root) == []


# --- other changes --------------------------------------------------------------------------------
def gone(
    root: pathlib.Path, path: str, *, recursive: bool = False, condition: FileCondition | None = None
) -> None:
    aside = remove_entry(
        root, path, recursive=recursive, condition=condition or FileCondition(), abort=Abort()
    )
    assert remove(aside) == ""


def test_names_are_moved_within_the_tree_and_replace_only_files_by_files(root):
    def move(path: str, target: str, *, replace: bool = False, condition: FileCondition | None = None) -> str:
        return move_entry(
            root, path, target, replace=replace, condition=condition or FileCondition(), abort=Abort()
        )

    put(root, "a", b"a")
    put(root, "dir/b", b"b")
    assert move("a", "dir/a", condition=seen(b"a")) == sha256(b"a")
    with pytest.raises(Rejected) as taken:
        move("dir/a", "dir/b")
    assert (taken.value.code, "--replace" in str(taken.value.hint)) == (Code.ALREADY_EXISTS, True)
    assert code(lambda: move("dir/a", "dir/c", condition=seen(b"z"))) is Code.FILE_CHANGED
    move("dir/a", "dir/b", replace=True)
    assert all_of(root) == {"dir/b": b"a"}
    move("dir", "moved")
    put(root, "file", b"f")
    for path, target in (("moved", "file"), ("file", "moved")):
        assert code(lambda path=path, target=target: move(path, target, replace=True)) is Code.ALREADY_EXISTS
    assert code(lambda: move("moved", "moved/in/itself")) is Code.PATH_REFUSED
    assert code(lambda: move("file", "nowhere/file")) is Code.NOT_FOUND
    with pytest.raises(FileNotFoundError):
        move("missing", "x")
    assert all_of(root) == {"moved/b": b"a", "file": b"f"}


def test_directories_are_made_with_those_above_and_deleted_whole_only_when_asked(root):
    assert make_directory(root, "a/b/c")
    assert not make_directory(root, "a/b/c")
    put(root, "a/b/c/file", b"x")
    assert code(lambda: make_directory(root, "a/b/c/file")) is Code.PATH_REFUSED
    assert code(lambda: gone(root, "a")) is Code.PATH_REFUSED
    assert code(lambda: gone(root, "a/b/c/file", condition=seen(b"y"))) is Code.FILE_CHANGED
    gone(root, "a/b/c/file", condition=seen(b"x"))
    gone(root, "a/b/c")
    gone(root, "a", recursive=True)
    with pytest.raises(FileNotFoundError):
        gone(root, "a")
    assert os.listdir(root) == []


# --- archives -------------------------------------------------------------------------------------
def unpacked(root: pathlib.Path, path: str, target: str, *, replace: bool = False, **bounds: int) -> int:
    given = UnpackBounds(
        size=bounds.get("size", 100_000_000), entries=bounds.get("entries", 100), room=lambda _: None
    )
    try:
        return unpack(root, path, target, replace=replace, bounds=given, abort=Abort())
    finally:
        assert os.listdir(staging_beside(root)) == []


def tar(root: pathlib.Path, *entries: tuple[tarfile.TarInfo, bytes]) -> None:
    with tarfile.open(root / "a.tar.gz", "w:gz") as archive:
        for entry, content in entries:
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def entry(name: str, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def test_archives_are_unpacked_whole_or_not_at_all(root):
    tar(root, (entry("./bin/tool", mode=0o700), b"t"), (entry("readme"), b"r"))
    with zipfile.ZipFile(root / "b.zip", "w") as archive:
        archive.writestr("readme", b"zip")
        archive.writestr("empty/", b"")
    assert unpacked(root, "a.tar.gz", "plugins/x") == 2
    assert (root / "plugins/x/bin/tool").read_bytes() == b"t"
    assert stat.S_IMODE((root / "plugins/x/bin/tool").stat().st_mode) == 0o755
    assert code(lambda: unpacked(root, "b.zip", "plugins/x")) is Code.ALREADY_EXISTS
    assert not (root / "plugins/x/empty").exists()
    unpacked(root, "b.zip", "plugins/x", replace=True)
    assert (root / "plugins/x/readme").read_bytes() == b"zip"
    assert (root / "plugins/x/empty").is_dir()
    assert code(lambda: unpacked(root, "plugins/x/readme", "")) is Code.ARCHIVE_INVALID


@pytest.mark.trap("T26")
def test_hostile_archives_are_refused_and_nothing_of_them_stays(root, scratch):
    bomb = io.BytesIO()
    with tarfile.open(fileobj=bomb, mode="w:gz") as archive:
        large = tarfile.TarInfo("zeros")
        large.size = 64 * 1024 * 1024
        archive.addfile(large, io.BytesIO(bytes(large.size)))
    for name, entries, expected in (
        ("slip", [(entry("../outside/secret"), b"x")], Code.PATH_REFUSED),
        ("absolute", [(entry("/tmp/x"), b"x")], Code.PATH_REFUSED),
        ("link", [(entry("l", type=tarfile.SYMTYPE, linkname="/etc"), b"")], Code.PATH_REFUSED),
        ("hard link", [(entry("h", type=tarfile.LNKTYPE, linkname="own"), b"")], Code.PATH_REFUSED),
        ("device", [(entry("d", type=tarfile.FIFOTYPE), b"")], Code.PATH_REFUSED),
        ("twice", [(entry("a"), b"x"), (entry("A"), b"y")], Code.PATH_REFUSED),
        ("many", [(entry(f"f{number}"), b"x") for number in range(101)], Code.ARCHIVE_TOO_LARGE),
        ("large", [(entry("ok"), b"x"), (entry("large"), b"x" * 2000)], Code.ARCHIVE_TOO_LARGE),
        ("bomb", None, Code.ARCHIVE_TOO_LARGE),
    ):
        if entries is None:
            (root / "a.tar.gz").write_bytes(bomb.getvalue())
        else:
            tar(root, *entries)
        size = 1000 if name == "large" else 100_000_000
        assert code(lambda size=size: unpacked(root, "a.tar.gz", "to", size=size)) is expected, name
        assert os.listdir(root) == ["a.tar.gz"], name
    tar(root, (entry("way/secret"), b"x"))
    (root / "way").symlink_to(scratch / "outside")
    assert code(lambda: unpacked(root, "a.tar.gz", "", replace=True)) is Code.PATH_REFUSED
    assert all_of(scratch / "outside") == {"secret": b"theirs"}


@pytest.mark.parametrize("replace", [True, False])
def test_an_archive_is_unpacked_only_if_nothing_is_in_the_way_of_any_of_its_entries(root, scratch, replace):
    (root / "a.txt").write_bytes(b"old")
    (root / "zdir").mkdir()
    (root / "zfile").write_bytes(b"file")
    (root / "zlink").symlink_to(scratch / "outside")
    for name in ("zdir", "zfile/below", "zlink", "zlink/below"):
        tar(root, (tarfile.TarInfo("a.txt" if replace else "b.txt"), b"new"), (tarfile.TarInfo(name), b"new"))
        with pytest.raises(Rejected, match="nothing was"):
            unpacked(root, "a.tar.gz", "", replace=replace)
        assert (root / "a.txt").read_bytes() == b"old", name
        assert sorted(os.listdir(root)) == ["a.tar.gz", "a.txt", "zdir", "zfile", "zlink"]
    directory = tarfile.TarInfo("zfile")
    directory.type = tarfile.DIRTYPE
    tar(root, (tarfile.TarInfo("a.txt"), b"new"), (directory, b""))
    assert code(lambda: unpacked(root, "a.tar.gz", "", replace=True)) is Code.PATH_REFUSED
    assert (root / "a.txt").read_bytes() == b"old"


@pytest.mark.parametrize("last", [entry("many"), entry("link", type=tarfile.SYMTYPE), entry("../out")])
def test_an_archive_that_is_refused_at_its_end_makes_no_file(root, last):
    tar(root, *((entry(f"{number}"), b"") for number in range(4)), (last, b""))
    most: list[int] = []

    class Watching(Abort):
        def check(self) -> None:
            most.append(sum(len(os.listdir(each)) for each in staging_beside(root).iterdir()))

    bounds = UnpackBounds(size=1000, entries=4, room=lambda _: None)
    with pytest.raises(Rejected):
        unpack(root, "a.tar.gz", "", replace=False, bounds=bounds, abort=Watching())
    assert max(most) == 0


def test_an_archive_that_fails_midway_says_how_much_of_it_was_unpacked(root):
    tar(root, *((tarfile.TarInfo(name), b"new") for name in ("a", "b", "c")))

    class Late(Abort):
        """Puts something in the way when the first file is in place."""

        def check(self) -> None:
            if (root / "a").exists():
                (root / "b").mkdir(exist_ok=True)

    bounds = UnpackBounds(size=1000, entries=100, room=lambda _: None)
    with pytest.raises(
        Rejected, match=r"1 of 3 files and directories of 'a.tar.gz' were unpacked"
    ) as refused:
        unpack(root, "a.tar.gz", "", replace=True, bounds=bounds, abort=Late())
    assert refused.value.code is Code.MAY_HAVE_ARRIVED, "neither done nor undone"
    assert "nothing" not in str(refused.value)
    assert all_of(root)["a"] == b"new"
    assert os.listdir(staging_beside(root)) == []


def test_a_directory_is_packed_without_what_is_no_file_of_its_own(root, scratch):
    put(root, "world/region/r.0", b"r")
    (root / "world/empty").mkdir()
    (root / "world/link").symlink_to(scratch / "outside" / "secret")
    os.mkfifo(root / "world/fifo")
    os.link(scratch / "outside" / "secret", root / "world/twin")
    target = scratch / "packed"

    def packed(path: str, size: int = 10**9, files: int = 100) -> None:
        pack_directory(
            root, path, target, max_bytes=size, max_files=files, room=lambda _: None, abort=Abort()
        )

    packed("world")
    with tarfile.open(target) as archive:
        assert sorted(archive.getnames()) == ["empty", "region", "region/r.0"]
    packed("")
    with tarfile.open(target) as archive:
        assert "world/region/r.0" in archive.getnames()
    put(root, "world/big", b"x" * 5000)
    assert code(lambda: packed("world", size=4000)) is Code.ARCHIVE_TOO_LARGE
    assert code(lambda: packed("world", files=2)) is Code.ARCHIVE_TOO_LARGE
    (root / "way").symlink_to(scratch / "outside")
    assert code(lambda: packed("way")) is Code.PATH_REFUSED


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_move_into_a_directory_that_is_missing_names_the_directory(root: pathlib.Path) -> None:
    (root / "own").write_bytes(b"own")
    with pytest.raises(Rejected, match="no directory 'no/such'") as refused:
        move_entry(root, "own", "no/such/place", replace=False, abort=Abort())
    assert (refused.value.code, refused.value.field) == (Code.NOT_FOUND, "to")
    with pytest.raises(FileNotFoundError):
        move_entry(root, "nothing", "no/such/place", replace=False, abort=Abort())
    assert (root / "own").read_bytes() == b"own"


def test_nothing_is_made_deeper_than_what_can_be_packed(root: pathlib.Path, scratch: pathlib.Path) -> None:
    deepest = "/".join(["d"] * 200)
    assert make_directory(root, deepest)
    put(root, f"{deepest}/file", b"deep")
    target = scratch / "packed"
    pack_directory(root, "", target, max_bytes=10**6, max_files=300, room=lambda _: None, abort=Abort())
    with tarfile.open(target) as archive:
        assert f"{deepest}/file" in archive.getnames()
    listed = FileWalk(WalkBounds(), abort=Abort(), clock=SystemClock()).run(root)
    assert [entry.path for entry in listed.entries][-1] == f"{deepest}/file"
    assert not listed.truncated
    assert code(lambda: make_directory(root, f"{deepest}/d")) is Code.PATH_REFUSED
    assert code(lambda: put(root, f"{deepest}/d/file", b"deeper")) is Code.PATH_REFUSED
    assert not (root / deepest / "d").exists()

    make_directory(root, "/".join(["e"] * 100))
    for moved, at in (("e", f"{deepest}/e"), ("e", "/".join(["d"] * 101) + "/e"), ("d", "e/d")):
        assert code(lambda: move_entry(root, moved, at, replace=False, abort=Abort())) is Code.PATH_REFUSED  # noqa: B023
    move_entry(root, "e", "/".join(["d"] * 100) + "/e", replace=False, abort=Abort())
    assert (root / "/".join([*["d"] * 100, *["e"] * 100])).is_dir()

    other = scratch / "running" / "lobby-2"
    other.mkdir()
    (other / "deep.tar.gz").write_bytes(target.read_bytes())
    assert code(lambda: unpacked(other, "deep.tar.gz", "one-more", entries=300)) is Code.PATH_REFUSED
    assert os.listdir(other) == ["deep.tar.gz"]
    assert unpacked(other, "deep.tar.gz", "", entries=300) == 201
    assert (other / deepest / "file").read_bytes() == b"deep"


@pytest.mark.parametrize("replace", [False, True])
def test_an_archive_with_padding_without_end_is_refused_and_not_read_through(
    root: pathlib.Path, replace: bool
) -> None:
    """A sparse file of terabytes costs a workload nothing."""
    entry = tarfile.TarInfo("a")
    tar(root, (entry, b"small"))
    os.truncate(root / "a.tar.gz", 1 << 42)
    assert code(lambda: unpacked(root, "a.tar.gz", "", replace=replace)) is Code.ARCHIVE_INVALID
    assert not (root / "a").exists()


def test_on_a_full_disk_nothing_is_moved_by_its_digest_that_could_not_be_put_back(
    scratch: pathlib.Path,
) -> None:
    """Were the daemon killed then, a save of the server would be lost with it."""
    with small_disk(scratch / "disk", size="128k") as disk:
        root = disk / "running" / "lobby-1"
        root.mkdir(parents=True)
        put(root, "world", b"save")
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        for work in (
            lambda: move_entry(root, "world", "moved", replace=False, abort=Abort(), condition=seen(b"save")),
            lambda: remove_entry(root, "world", recursive=False, abort=Abort(), condition=seen(b"save")),
        ):
            with pytest.raises(OSError, match="No space left"):
                work()
            assert os.listdir(root) == ["world"]
        gone = remove_entry(root, "world", recursive=False, abort=Abort())
        assert (os.listdir(root), gone.read_bytes()) == ([], b"save"), "without a digest it needs no room"


def test_a_change_that_the_disk_does_not_confirm_is_in_doubt() -> None:
    reading, writing = os.pipe()  # which cannot be synchronised
    try:
        with pytest.raises(Rejected) as unknown:
            sync_directory(reading, "a")
    finally:
        os.close(reading)
        os.close(writing)
    assert unknown.value.code is Code.MAY_HAVE_ARRIVED
