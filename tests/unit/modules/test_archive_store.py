"""The shelf: archives by digest, trees that are whole or made again, nothing left behind."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from packed_modules import FILES, archive_with, zipped

from corral.errors import Code, CorralError, Rejected, Retryable
from corral.modules.archive.archive_store import ArchiveStore
from corral.modules.archive.unpacked_tree import unpack
from corral.system.trees.removal import remove_tree

MAX = 1024 * 1024
DATA = zipped(FILES)
SHA = hashlib.sha256(DATA).hexdigest()


async def blocks(data: bytes, size: int = 100) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "artifacts"
    remove_tree(tmp_path / "artifacts")  # sealed: pytest cannot remove it by itself


@pytest.fixture
def shelf(place: Path) -> ArchiveStore:
    return ArchiveStore(place, max_bytes=MAX)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_an_archive_is_kept_under_its_digest(shelf: ArchiveStore, place: Path) -> None:
    path = await shelf.put(blocks(DATA), expect=SHA)
    assert path == shelf.path(SHA) == place / f"{SHA}.zip"
    assert path.read_bytes() == DATA
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert shelf.held() == {SHA}


async def test_a_file_is_copied_and_stays(shelf: ArchiveStore, tmp_path: Path) -> None:
    source = tmp_path / "up.cmod"
    source.write_bytes(DATA)
    await shelf.put(source, expect=SHA)
    await shelf.put(source, expect=SHA)
    assert source.exists()
    assert shelf.path(SHA).read_bytes() == DATA


@pytest.fixture(params=["same", "other"])
def source(request: pytest.FixtureRequest, place: Path, tmp_path: Path) -> Iterator[Path]:
    """Where an archive came in: on the shelf's file system, or on another one."""
    if request.param == "same":
        yield tmp_path / "in.zip"
        return
    elsewhere = next(
        (
            path
            for path in (Path("/dev/shm"), Path("/var/tmp"))
            if path.stat().st_dev != tmp_path.stat().st_dev
        ),
        None,
    )
    if elsewhere is None:
        pytest.skip("there is one file system only")
    with tempfile.TemporaryDirectory(dir=elsewhere, prefix="corral-") as directory:
        yield Path(directory) / "in.zip"


async def test_an_archive_that_came_in_is_moved_to_its_place(
    shelf: ArchiveStore, place: Path, source: Path
) -> None:
    for _ in range(2):  # once more when it is there already
        source.write_bytes(DATA)
        path = await shelf.take(source, expect=SHA)
        assert path.read_bytes() == DATA
        assert stat.S_IMODE(path.stat().st_mode) == 0o400
        assert not source.exists()
    assert names(place) == sorted([path.name, "unpacked"])


async def test_what_came_in_with_another_digest_stays_where_it_is(
    shelf: ArchiveStore, place: Path, source: Path
) -> None:
    source.write_bytes(DATA + b"x")
    with pytest.raises(Rejected) as refused:
        await shelf.take(source, expect=SHA)
    assert refused.value.code is Code.DIGEST_MISMATCH
    assert source.read_bytes() == DATA + b"x"
    assert names(place) == ["unpacked"]


async def test_who_judges_an_archive_sees_it_proven_and_before_it_is_unpacked(
    shelf: ArchiveStore, place: Path
) -> None:
    await shelf.put(blocks(DATA), expect=SHA)
    seen: list[bytes] = []

    def verify(archive: Path) -> None:
        seen.append(archive.read_bytes())
        raise Rejected(Code.SIGNATURE_VERIFICATION_FAILED, "not this one")

    with pytest.raises(Rejected) as refused:
        await shelf.unpacked(SHA, verify=verify)
    assert refused.value.code is Code.SIGNATURE_VERIFICATION_FAILED
    assert seen == [DATA]
    assert list((place / "unpacked").iterdir()) == []
    shelf.path(SHA).chmod(0o600)
    shelf.path(SHA).write_bytes(DATA + b"x")
    with pytest.raises(Rejected) as refused:
        await shelf.unpacked(SHA, verify=verify)
    assert refused.value.code is Code.DIGEST_MISMATCH
    assert seen == [DATA]


async def test_another_digest_keeps_nothing(shelf: ArchiveStore, place: Path, tmp_path: Path) -> None:
    source = tmp_path / "up.cmod"
    source.write_bytes(DATA + b"x")
    for given in (blocks(DATA + b"x"), source):
        with pytest.raises(Rejected) as refused:
            await shelf.put(given, expect=SHA)
        assert refused.value.code is Code.DIGEST_MISMATCH
    assert names(place) == ["unpacked"]
    assert shelf.held() == set()


async def test_an_endless_archive_is_cut_off(shelf: ArchiveStore, place: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(64 * 1024)

    with pytest.raises(Rejected) as refused:
        await shelf.put(endless(), expect=SHA)
    assert refused.value.code is Code.ARCHIVE_TOO_LARGE
    assert names(place) == ["unpacked"]


async def test_a_cancelled_transfer_leaves_nothing(shelf: ArchiveStore, place: Path) -> None:
    arrived = asyncio.Event()

    async def stalled() -> AsyncIterator[bytes]:
        yield DATA[:50]
        arrived.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(shelf.put(stalled(), expect=SHA))
    await arrived.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert names(place) == ["unpacked"]
    await shelf.put(blocks(DATA), expect=SHA)  # its turn was given back


async def test_a_damaged_archive_is_replaced_by_a_good_one(shelf: ArchiveStore) -> None:
    path = await shelf.put(blocks(DATA), expect=SHA)
    path.chmod(0o644)
    path.write_bytes(DATA[:-1])
    with pytest.raises(Rejected) as refused:
        await shelf.unpacked(SHA)
    assert refused.value.code is Code.DIGEST_MISMATCH
    await shelf.put(blocks(DATA), expect=SHA)
    assert (await shelf.unpacked(SHA) / "module.yaml").exists()


async def test_a_tree_is_made_once_and_used_again(shelf: ArchiveStore, place: Path) -> None:
    await shelf.put(blocks(DATA), expect=SHA)
    tree = await shelf.unpacked(SHA)
    assert tree == place / "unpacked" / SHA
    made = tree.stat().st_ino
    assert await shelf.unpacked(SHA) == tree
    assert await ArchiveStore(place, max_bytes=MAX).unpacked(SHA) == tree
    assert tree.stat().st_ino == made
    assert names(place / "unpacked") == [SHA]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("harm", ["file", "tree", "added", "replaced by a file", "replaced by a link"])
async def test_a_damaged_tree_is_made_again(
    shelf: ArchiveStore, place: Path, tmp_path: Path, harm: str, restarted: bool
) -> None:
    await shelf.put(blocks(DATA), expect=SHA)
    tree = await shelf.unpacked(SHA)
    if harm == "file":
        (tree / "module.yaml").chmod(0o644)
        (tree / "module.yaml").write_text("id: evil")
        (tree / "module.yaml").chmod(0o444)
    elif harm == "tree":
        remove_tree(tree)
    elif harm == "replaced by a link":
        tree.chmod(0o755)
        tree.rename(tmp_path / "elsewhere")
        (tmp_path / "elsewhere").chmod(0o555)
        tree.symlink_to(tmp_path / "elsewhere")
    elif harm == "added":
        tree.chmod(0o755)
        (tree / "sitecustomize.py").write_text("evil")
        tree.chmod(0o555)
    else:
        remove_tree(tree)
        tree.write_text("a file")
    again = await (ArchiveStore(place, max_bytes=MAX) if restarted else shelf).unpacked(SHA)
    assert not again.is_symlink()
    found = {path.relative_to(again).as_posix() for path in again.rglob("*") if path.is_file()}
    assert found == set(FILES)
    assert (again / "module.yaml").read_bytes() == FILES["module.yaml"]
    assert names(place / "unpacked") == [SHA]
    remove_tree(tmp_path / "elsewhere")


async def test_no_note_beside_a_tree_makes_other_contents_good(shelf: ArchiveStore, place: Path) -> None:
    """Whoever can write here can write whatever we would: only the archive has a digest that was agreed on."""
    await shelf.put(blocks(DATA), expect=SHA)
    tree = await shelf.unpacked(SHA)
    remove_tree(tree)
    with io.BytesIO(archive_with(evil=b"evil")) as other:
        files = unpack(other, tree, max_bytes=MAX)
    note = msgspec.json.encode({"format": 1, "files": files})
    (place / "unpacked" / f"{SHA}.json").write_bytes(note)
    again = await ArchiveStore(place, max_bytes=MAX).unpacked(SHA)
    assert names(again) == sorted({name.partition("/")[0] for name in FILES})


async def test_other_users_may_read_trees_but_neither_list_nor_read_archives(
    shelf: ArchiveStore, place: Path
) -> None:
    """`modules.run_as`: a module that runs as somebody else must be able to import itself."""
    before = os.umask(0o077)
    try:
        archive = await shelf.put(blocks(DATA), expect=SHA)
        tree = await shelf.unpacked(SHA)
    finally:
        os.umask(before)
    sidecar = await shelf.put_sidecar(SHA, "sig", b"sig")
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (place, tree.parent, tree, archive, sidecar)}
    assert modes == {place: 0o711, tree.parent: 0o711, tree: 0o555, archive: 0o400, sidecar: 0o600}


async def test_what_a_crash_left_half_done_is_removed(place: Path) -> None:
    part = place / "unpacked" / ".part-x" / "new" / "deep"
    part.mkdir(parents=True)
    (part / "file").touch(0o444)
    part.chmod(0o555)
    (place / ".part-y").touch()
    half = place / "unpacked" / SHA
    half.mkdir()
    (half / "module.yaml").write_text("half")
    shelf = ArchiveStore(place, max_bytes=MAX)
    await shelf.put(blocks(DATA), expect=SHA)
    tree = await shelf.unpacked(SHA)
    assert (tree / "module.yaml").read_bytes() == FILES["module.yaml"]
    assert names(place) == [f"{SHA}.zip", "unpacked"]
    assert names(place / "unpacked") == [SHA]


async def test_many_at_once_get_the_same_tree(shelf: ArchiveStore, place: Path) -> None:
    await asyncio.gather(*(shelf.put(blocks(DATA), expect=SHA) for _ in range(5)))
    trees = await asyncio.gather(*(shelf.unpacked(SHA) for _ in range(8)))
    assert set(trees) == {place / "unpacked" / SHA}
    assert names(place / "unpacked") == [SHA]


async def test_an_archive_that_is_not_here_is_said_so(shelf: ArchiveStore) -> None:
    with pytest.raises(Rejected) as refused:
        await shelf.unpacked(SHA)
    assert refused.value.code is Code.NOT_FOUND


async def test_what_is_forgotten_is_gone_without_a_trace(shelf: ArchiveStore, place: Path) -> None:
    other = archive_with(x=b"x")
    other_sha = hashlib.sha256(other).hexdigest()
    await shelf.put(blocks(other), expect=other_sha)
    await shelf.put(blocks(DATA), expect=SHA)
    await shelf.put_sidecar(SHA, "sig", b"sig")
    await shelf.put_sidecar(SHA, "cosign-bundle", b"bundle")
    await shelf.unpacked(SHA)
    assert not (place / f"{SHA}.zip.sig").exists()  # the later one took its place
    assert (place / f"{SHA}.zip.cosign.bundle").read_bytes() == b"bundle"
    assert shelf.held() == {SHA, other_sha}
    await shelf.forget(SHA)
    await shelf.forget(SHA)
    assert shelf.held() == {other_sha}
    assert names(place) == [f"{other_sha}.zip", "unpacked"]
    assert names(place / "unpacked") == []


async def test_a_tree_without_its_archive_is_held_too(shelf: ArchiveStore) -> None:
    path = await shelf.put(blocks(DATA), expect=SHA)
    await shelf.unpacked(SHA)
    path.unlink()
    assert shelf.held() == {SHA}
    await shelf.forget(SHA)
    assert shelf.held() == set()


@pytest.mark.parametrize("sha256", ["", "../../etc/passwd", "A" * 64, SHA + "0", SHA[:-1] + "\n"])
async def test_what_is_no_digest_is_refused(shelf: ArchiveStore, sha256: str) -> None:
    for call in (shelf.unpacked, shelf.forget):
        with pytest.raises(CorralError):
            await call(sha256)


async def test_only_known_signatures_are_kept(shelf: ArchiveStore) -> None:
    with pytest.raises(KeyError):
        await shelf.put_sidecar(SHA, "/../x", b"")


async def test_a_disk_that_fails_is_told_as_such(shelf: ArchiveStore, place: Path) -> None:
    await shelf.put(blocks(DATA), expect=SHA)
    shutil.rmtree(place / "unpacked")
    (place / "unpacked").write_text("in the way")
    with pytest.raises(Retryable) as refused:
        await shelf.unpacked(SHA)
    assert refused.value.code is Code.STORAGE_UNAVAILABLE
    (place / "unpacked").unlink()


def test_an_empty_shelf_holds_nothing(shelf: ArchiveStore) -> None:
    assert shelf.held() == set()
