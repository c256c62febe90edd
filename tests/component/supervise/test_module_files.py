"""`ctx.files` on a node: what modules may do in the directories of instances, and what they may not."""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import stat
import subprocess
import sys
import threading
from typing import Any

import msgspec
import pytest

from corral.daemon.modules.file_operations import ModuleFiles
from corral.daemon.prepare.working_directories import WorkingDirectories
from corral.domain.modules.manifest import Manifest
from corral.errors import CorralError
from corral.modules.services.host_operations import OperationTable
from corral.sdk.files import Files
from corral.sdk.protocol.instance_messages import WriteFile
from corral.sdk.protocol.messages import WRITE_FILE
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing import workloads
from corral.testing.bench_storage import BenchScope
from corral.testing.small_disk import small_disk
from corral.testing.waiting import eventually

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2
_BIND = 4096
_HERE, _EXCHANGE = -100, 2


class Scope(BenchScope, frozen=True, kw_only=True):
    closed: bool = False


class Link:
    """A module's link to the operations, its bodies packed as they travel."""

    def __init__(self, files: ModuleFiles, module_id: str = "ours") -> None:
        self._table = OperationTable(files.operations())
        manifest = Manifest(manifest_version=1, id=module_id, version="1.0.0")
        self._scope: Any = Scope(module_id=module_id, manifest=manifest)

    async def call(self, method: str, body: object, answer: type, *, deadline: float = 30.0) -> Any:
        raw = msgspec.Raw(msgspec.msgpack.encode(body))
        said = msgspec.msgpack.encode(await self._table.serve(self._scope, method, raw))
        return msgspec.msgpack.decode(said, type=answer)

    def notify(self, method: str, body: object) -> None: ...


def files_in(root: pathlib.Path) -> Files:
    found = ModuleFiles(directory_of={"one": root}.get, writers=KeyedLocks(), clock=SystemClock())
    return Files(Link(found), here=True)


@pytest.fixture
def root(scratch):
    root = scratch / "running" / "one"
    root.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(root, 12_345, 12_346)
    return root


async def code_of(call) -> str:
    with pytest.raises(CorralError) as caught:
        await call
    return caught.value.code.name


async def test_files_are_written_read_listed_and_removed(root):
    files = files_in(root)
    await files.write("one", "conf/deep/a.txt", b"first")
    await files.write("one", "conf/deep/a.txt", b" and more", append=True)
    await files.write("one", "new.log", b"line\n", append=True)
    assert await files.read("one", "conf/deep/a.txt", offset=6, length=3) == b"and"
    assert await files.read("one", "conf/deep/a.txt", offset=99) == b""
    walked = [(entry.path, entry.kind, entry.size) for entry in await files.walk("one")]
    assert walked == [
        ("conf", "directory", 0),
        ("conf/deep", "directory", 0),
        ("conf/deep/a.txt", "file", 14),
        ("new.log", "file", 5),
    ]
    assert [entry.path for entry in await files.walk("one", "conf", limit=1)] == ["conf/deep"]
    assert await code_of(files.remove("one", "conf/deep")) == "PATH_REFUSED"
    assert await files.remove("one", "conf/deep/a.txt")
    assert await files.remove("one", "conf/deep")
    assert not await files.remove("one", "conf/deep/a.txt")
    assert await code_of(files.read("one", "conf/deep/a.txt")) == "NOT_FOUND"
    assert await code_of(files.walk("two")) == "NOT_FOUND"


async def test_what_is_written_belongs_to_the_instances_user_and_keeps_its_mode(root):
    files = files_in(root)
    (root / "tool").write_bytes(b"old")
    (root / "tool").chmod(0o4750)
    before = (root / "tool").open("rb")
    await files.write("one", "tool", b"new")
    await files.write("one", "sub/new", b"x")
    assert before.read() == b"old"
    before.close()
    owner = (root.stat().st_uid, root.stat().st_gid)
    for name, mode in (("tool", 0o750), ("sub/new", 0o644), ("sub", 0o750)):
        found = (root / name).stat()
        assert stat.S_IMODE(found.st_mode) == mode, name
        if os.geteuid() == 0:
            assert (found.st_uid, found.st_gid) == owner, name
    assert sorted(os.listdir(root)) == ["sub", "tool"]


@pytest.mark.trap("T26")
async def test_nothing_outside_is_read_written_listed_or_removed(root, scratch):
    outside = scratch / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "way").symlink_to(outside)
    (root / "link").symlink_to(outside / "secret")
    os.mkfifo(root / "fifo")
    os.link(outside / "secret", root / "twin")
    files = files_in(root)
    for path in ("way/secret", "link", "fifo", "../outside/secret", str(outside / "secret")):
        assert await code_of(files.read("one", path)) == "PATH_REFUSED", path
        assert await code_of(files.write("one", path, b"x")) == "PATH_REFUSED", path
        assert await code_of(files.write("one", path, b"x", append=True)) == "PATH_REFUSED", path
    for path in ("way/secret", "../outside/secret", "way/new/file", "."):
        assert await code_of(files.remove("one", path)) == "PATH_REFUSED", path
    assert await code_of(files.write("one", "way/new/file", b"x")) == "PATH_REFUSED"
    assert await code_of(files.walk("one", "way")) == "PATH_REFUSED"
    assert await code_of(files.write("one", "twin", b"x", append=True)) == "PATH_REFUSED"
    await files.write("one", "twin", b"mine")  # in its place, not into it
    assert {entry.path: entry.kind for entry in await files.walk("one")} == {
        "fifo": "other",
        "link": "link",
        "twin": "file",
        "way": "link",
    }
    assert await files.remove("one", "link")
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


@pytest.mark.trap("T26")
async def test_a_directory_that_became_a_link_is_not_entered(root, scratch):
    outside = scratch / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root.rmdir()
    root.symlink_to(outside)
    files = files_in(root)
    for call in (
        files.read("one", "secret"),
        files.write("one", "secret", b"x"),
        files.write("one", "secret", b"x", append=True),
        files.walk("one"),
        files.remove("one", "secret"),
    ):
        with pytest.raises(CorralError):
            await call
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


@pytest.mark.trap("T26")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of two users")
async def test_nothing_is_added_to_the_file_of_another_user(root):
    """It may be a link to a file elsewhere whose name here is gone before its names are counted."""
    (root / "theirs").write_bytes(b"theirs")
    files = files_in(root)
    assert await code_of(files.write("one", "theirs", b"x", append=True)) == "PATH_REFUSED"
    assert (root / "theirs").read_bytes() == b"theirs"
    await files.write("one", "theirs", b"mine")
    await files.write("one", "theirs", b" too", append=True)
    assert (root / "theirs").read_bytes() == b"mine too"


@pytest.mark.trap("T26")
async def test_nothing_outside_is_touched_while_names_are_swapped(root, scratch):
    outside = scratch / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"theirs")
    inside, link = root / "dir", root / "swap"
    inside.mkdir()
    link.symlink_to(outside)
    files, over = files_in(root), threading.Event()

    def swap() -> None:
        while not over.is_set():
            assert _LIBC.renameat2(_HERE, bytes(inside), _HERE, bytes(link), _EXCHANGE) == 0

    swapping = threading.Thread(target=swap)
    swapping.start()
    refused = done = 0
    try:
        for n in range(300):
            calls = (
                files.write("one", "dir/file", b"ours"),
                files.write("one", "dir/file", b"ours", append=True),
                files.write("one", f"dir/made-{n}/file", b"ours"),
                files.remove("one", "dir/file"),
            )
            for call in calls:
                try:
                    await call
                    done += 1
                except CorralError:
                    refused += 1
    finally:
        over.set()
        swapping.join()
    assert refused
    assert done
    assert os.listdir(outside) == ["file"]
    assert (outside / "file").read_bytes() == b"theirs"


async def test_a_body_that_is_too_large_is_refused_by_the_host_too(root):
    link = Link(ModuleFiles(directory_of={"one": root}.get, writers=KeyedLocks(), clock=SystemClock()))
    body = WriteFile(instance_id="one", path="a", content=bytes(1_048_577))
    assert await code_of(link.call(WRITE_FILE, body, object)) == "BODY_TOO_LARGE"
    assert os.listdir(root) == []


@pytest.fixture
def disk(scratch):
    with small_disk(scratch / "disk", size="2m") as mount:
        yield mount


async def test_on_a_full_disk_the_old_file_stays_whole(disk):
    files = files_in(disk)
    await files.write("one", "kept", b"old")
    await files.write("one", "filler", bytes(1_048_576))
    assert await code_of(files.write("one", "kept", b"n" * 1_048_576)) == "DISK_FULL"
    assert await code_of(files.write("one", "kept", b"n" * 1_048_576, append=True)) == "DISK_FULL"
    assert (disk / "kept").read_bytes() == b"old"
    assert sorted(os.listdir(disk)) == ["filler", "kept"]


WRITER = """
import pathlib, sys
from corral.daemon.orders.instance_file_writes import write_file

root = pathlib.Path(sys.argv[1])
while True:
    for letter in b"ab":
        write_file(root, "deep/file", bytes([letter]) * 2**20)
"""


async def test_a_daemon_that_is_killed_while_it_writes_leaves_nothing_behind(root, scratch):
    directories = WorkingDirectories(scratch, entropy=SystemEntropy())
    directories.open()
    staging = scratch / "running" / ".staging"

    def unfinished() -> list[str]:
        return [name for name in os.listdir(staging) if name.startswith(".corral-")]

    with subprocess.Popen([sys.executable, "-c", WRITER, str(root)]) as writer:
        try:
            await eventually((root / "deep" / "file").exists)

            def caught() -> bool:
                """Held still in the middle of a write."""
                writer.send_signal(signal.SIGSTOP)
                os.waitpid(writer.pid, os.WUNTRACED)
                if unfinished():
                    return True
                writer.send_signal(signal.SIGCONT)
                return False

            await eventually(caught)
        finally:
            writer.kill()
    assert unfinished()
    assert os.listdir(root) == ["deep"]
    assert os.listdir(root / "deep") == ["file"]
    assert (root / "deep" / "file").read_bytes() in (b"a" * 2**20, b"b" * 2**20)
    directories.open()  # the next daemon
    assert not staging.exists()
    await files_in(root).write("one", "deep/file", b"c")
    assert (root / "deep" / "file").read_bytes() == b"c"


async def test_what_is_mounted_into_a_directory_is_written_to_as_well(root):
    with small_disk(root / "disk", size="2m") as mount:
        await files_in(root).write("one", "disk/file", b"old")
        await files_in(root).write("one", "disk/file", b"new")
        assert os.listdir(mount) == ["file"]
        assert (mount / "file").read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
async def test_the_same_disk_mounted_a_second_time_is_written_to_as_well(root, scratch):
    """Nothing can be moved there, though it is the same file system."""
    mount, elsewhere = root / "bound", scratch / "elsewhere"
    mount.mkdir()
    elsewhere.mkdir()
    if _LIBC.mount(bytes(elsewhere), bytes(mount), None, _BIND, None):
        pytest.skip(f"cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        await files_in(root).write("one", "bound/file", b"x")
        assert os.listdir(elsewhere) == ["file"]
    finally:
        assert _LIBC.umount2(bytes(mount), _DETACH) == 0


async def test_the_files_of_a_real_instance_are_there_until_its_directory_goes(node):
    finder = node.supervision.supervisor.instances.directory_of
    files = Files(
        Link(ModuleFiles(directory_of=finder, writers=KeyedLocks(), clock=SystemClock())), here=True
    )
    assert await code_of(files.walk("one")) == "NOT_FOUND"
    await node.start("one", workloads.shell("echo hello > said; exec sleep 3600"))
    await files.write("one", "ours", b"x")
    assert {entry.path for entry in await files.walk("one")} >= {"ours"}
    await node.stop("one", force=True)
    await node.settled("one")
    directory = finder("one")
    assert directory is not None
    if directory.exists():
        assert await files.read("one", "ours") == b"x"
    else:
        assert await code_of(files.read("one", "ours")) == "NOT_FOUND"
