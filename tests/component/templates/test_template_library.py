"""Trees in and out of the store, whatever they are and however they come."""

from __future__ import annotations

import asyncio
import io
import os
import pathlib
import zipfile
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library_cases import a_library, a_version, archive_of, blobs_in, sha256, tree_in

from corral.domain.templates import PIECE, decode_manifest
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.store.port import Store
from corral.testing.archives import in_chunks, tar_gz, zipped

FILES = {"server.properties": b"port=%PORT%\n", "plugins/a.jar": os.urandom(300_000), "empty": b""}


async def test_an_archive_comes_out_as_it_went_in(store: Store, scratch: pathlib.Path) -> None:
    library = a_library(store, scratch)
    files = {**FILES, "large": os.urandom(2 * PIECE + 5), "logs/": b""}
    intake = await library.intake_archive(in_chunks(tar_gz(files, modes={"plugins/a.jar": 0o555})))
    archive = await archive_of(library, intake)
    assert (sha256(archive), len(archive)) == (intake.hash, intake.archive_size)
    found = tree_in(archive)
    assert {path: content for path, (content, _) in found.items()} == files
    assert found["plugins/a.jar"][1] == 0o555
    assert (intake.files, intake.size) == (4, sum(map(len, files.values())))
    anew = a_library(store, scratch)  # which remembers no hash
    again = await anew.intake_archive(in_chunks(zipped(files, modes={"plugins/a.jar": 0o555})))
    assert again == intake
    assert await anew.intake_archive(in_chunks(archive), known=[a_version(intake)]) == intake


async def test_what_is_stored_is_whole(store: Store, scratch: pathlib.Path) -> None:
    library = a_library(store, scratch)
    intake = await library.intake_archive(in_chunks(tar_gz(FILES)))
    stored = b"".join([part async for part in store.blobs.read_blob(intake.digest)])
    assert decode_manifest(stored) == intake.manifest
    named = {digest for file in intake.manifest.files for digest in file.blobs}
    assert await blobs_in(store) == {intake.digest, *named}
    assert list((scratch / "uploads").iterdir()) == []


async def test_what_is_no_archive_is_refused_long_before_its_end(
    sqlite: Store, scratch: pathlib.Path
) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while taken < 50:
            taken += 1
            yield b"nothing of the kind " * 50_000

    with pytest.raises(Rejected, match=r"neither tar\.gz nor zip"):
        await a_library(sqlite, scratch).intake_archive(endless())
    assert taken <= 3
    assert list((scratch / "uploads").iterdir()) == []


async def test_a_single_file_is_read_put_and_removed(store: Store, scratch: pathlib.Path) -> None:
    library = a_library(store, scratch)
    first = await library.intake_archive(in_chunks(tar_gz(FILES)))
    large = os.urandom(PIECE + 100)
    second = await library.with_file(first.manifest, "config/x", in_chunks(large), mode=0o700)
    file, content = await library.open_file(a_version(second), "config/x")
    assert (file.mode, file.size, len(file.pieces)) == (0o755, len(large), 2)
    assert b"".join([block async for block in content]) == large
    assert tree_in(await archive_of(library, second))["config/x"] == (large, 0o755)
    third = await library.without_file(second.manifest, "config/x")
    assert third == first
    with pytest.raises(Rejected) as refused:
        await library.open_file(a_version(third), "config/x")
    assert refused.value.code is Code.NOT_FOUND
    diff = await library.diff(a_version(first), a_version(second))
    assert [added.path for added in diff.added] == ["config/x"]
    assert not diff.removed
    assert not diff.changed


async def test_one_tree_is_laid_over_another(sqlite: Store, scratch: pathlib.Path) -> None:
    library = a_library(sqlite, scratch)
    base = await library.intake_archive(in_chunks(tar_gz({"a": b"1", "b": b"1"})))
    saved = await library.intake_archive(in_chunks(tar_gz({"b": b"2", "c/d": b"2"})))
    both = await library.overlaid(base.manifest, saved.manifest)
    found = {path: content for path, (content, _) in tree_in(await archive_of(library, both)).items()}
    assert found == {"a": b"1", "b": b"2", "c/d": b"2"}


async def test_a_zip_export_can_be_taken_in_again(store: Store, scratch: pathlib.Path) -> None:
    library = a_library(store, scratch)
    intake = await library.intake_archive(in_chunks(tar_gz({**FILES, "logs/": b""})))
    data = await archive_of(library, intake, "zip")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
    assert await library.intake_archive(in_chunks(data)) == intake


async def test_an_unknown_format_is_refused_with_the_known_ones(sqlite: Store, scratch: pathlib.Path) -> None:
    library = a_library(sqlite, scratch)
    intake = await library.intake_archive(in_chunks(tar_gz({})))
    with pytest.raises(Rejected) as refused:
        await archive_of(library, intake, "rar")
    assert refused.value.hint == "known: tar.gz, zip"


@pytest.mark.trap("T26")
@pytest.mark.parametrize("path", ["../x", "/x", "a\\b", "a//b", ".", "", "x\0y"])
async def test_a_single_file_may_not_lead_astray(sqlite: Store, scratch: pathlib.Path, path: str) -> None:
    library = a_library(sqlite, scratch)
    intake = await library.intake_archive(in_chunks(tar_gz(FILES)))
    with pytest.raises(Rejected) as refused:
        await library.with_file(intake.manifest, path, in_chunks(b"x"))
    assert refused.value.code is Code.PATH_REFUSED


@pytest.mark.trap("T26")
async def test_an_upload_beyond_the_limit_is_refused_before_it_has_arrived(
    sqlite: Store, scratch: pathlib.Path
) -> None:
    library = a_library(sqlite, scratch, max_bytes=1_000_000, max_files=1)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            yield b"\x1f\x8b" + bytes(65534)

    with pytest.raises(Rejected) as refused:
        await library.intake_archive(endless())
    assert refused.value.code is Code.ARCHIVE_TOO_LARGE
    empty = await library.intake_archive(in_chunks(tar_gz({})))
    with pytest.raises(Rejected) as refused:
        await library.with_file(empty.manifest, "x", endless())
    assert refused.value.code is Code.ARCHIVE_TOO_LARGE
    assert sent < 4_000_000


async def test_a_refused_archive_leaves_no_file_and_no_manifest(sqlite: Store, scratch: pathlib.Path) -> None:
    library = a_library(sqlite, scratch)
    with pytest.raises(Rejected):
        await library.intake_archive(in_chunks(tar_gz({"fine": b"x", "../bad": b"y"})))
    assert await blobs_in(sqlite) <= {sha256(b"x")}  # contents may be there until they are collected
    assert list((scratch / "uploads").iterdir()) == []


async def test_an_uploader_that_goes_away_leaves_nothing(sqlite: Store, scratch: pathlib.Path) -> None:
    library = a_library(sqlite, scratch)

    async def broken() -> AsyncIterator[bytes]:
        yield tar_gz(FILES)[:5000]
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        await library.intake_archive(broken())
    assert await blobs_in(sqlite) == set()


async def test_an_intake_can_be_cancelled_at_any_moment(store: Store, scratch: pathlib.Path) -> None:
    library = a_library(store, scratch)
    data = tar_gz({str(number): os.urandom(100_000) for number in range(60)})
    for delay in (0, 0.002, 0.01, 0.03, 0.06, 0.1):
        work = asyncio.create_task(library.intake_archive(in_chunks(data)))
        await asyncio.sleep(delay)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    intake = await library.intake_archive(in_chunks(data))
    assert sha256(await archive_of(library, intake)) == intake.hash


async def test_many_uploads_at_once_share_what_is_equal(store: Store, scratch: pathlib.Path) -> None:
    library = a_library(store, scratch)
    shared = {f"lib/{number}": os.urandom(2000) for number in range(200)}
    archives = [tar_gz({**shared, "own": str(number).encode()}) for number in range(6)]
    intakes = await asyncio.gather(*(library.intake_archive(in_chunks(data)) for data in archives))
    assert len({intake.hash for intake in intakes}) == 6
    assert len(await blobs_in(store)) == 200 + 6 + 6
    for intake in intakes:
        assert sha256(await archive_of(library, intake)) == intake.hash


async def test_contents_that_left_the_store_are_told_and_not_served(
    sqlite: Store, scratch: pathlib.Path
) -> None:
    library = a_library(sqlite, scratch)
    intake = await library.intake_archive(in_chunks(tar_gz(FILES)))
    await sqlite.blobs.delete_blob(sha256(FILES["server.properties"]))
    with pytest.raises(CorralError):
        await archive_of(library, intake)
    for anew in (library, a_library(sqlite, scratch)):
        with pytest.raises(Retryable) as refused:
            await anew.overlaid(intake.manifest, intake.manifest)
        assert refused.value.code is Code.TEMPLATE_UNAVAILABLE


names = st.text(
    st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp"), blacklist_characters="/\\"),
    min_size=1,
    max_size=40,
).filter(lambda part: part not in (".", "..") and len(part.encode()) <= 255)
entries = st.dictionaries(
    st.lists(names, min_size=1, max_size=4).map(tuple),
    st.tuples(st.binary(max_size=3000), st.sampled_from([0o444, 0o555, 0o644, 0o755])),
    max_size=12,
)


@given(entries)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_tree_survives_the_round_trip(sqlite: Store, scratch: pathlib.Path, tree) -> None:
    files = {"/".join(parts): found for parts, found in tree.items()}
    parents = {path[:at] for path in files for at, sign in enumerate(path) if sign == "/"}
    files = {path: found for path, found in files.items() if path not in parents}
    plain = {path: content for path, (content, _) in files.items()}
    modes = {path: mode for path, (_, mode) in files.items()}
    library = a_library(sqlite, scratch)
    intake = await library.intake_archive(in_chunks(tar_gz(plain, modes=modes)))
    archive = await archive_of(library, intake)
    assert tree_in(archive) == files
    assert sha256(archive) == intake.hash
    for packed in (archive, zipped(plain, modes=modes)):
        assert await a_library(sqlite, scratch).intake_archive(in_chunks(packed)) == intake
