"""The one archive of a tree: readable by everybody's tools, and the same bytes for ever."""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import tarfile
import zipfile
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.controller.templates import tar_writer as tar_writing
from corral.controller.templates.tar_writer import StoredGzip, archive_size, archive_stream, header_of
from corral.controller.templates.zip_writer import zip_stream
from corral.domain.templates import TemplateFile, TemplateManifest
from corral.errors import Code, Retryable


def a_tree(
    files: dict[str, bytes], directories: Sequence[str] = (), *, mode: int = 0o644
) -> TemplateManifest:
    return TemplateManifest(
        files=tuple(
            TemplateFile(path=path, mode=mode, size=len(content), digest=hashlib.sha256(content).hexdigest())
            for path, content in sorted(files.items())
        ),
        directories=tuple(sorted(directories)),
    )


def reader(files: dict[str, bytes], block: int = 1000):
    contents = {hashlib.sha256(each).hexdigest(): each for each in files.values()}

    async def read(digests: Sequence[str]) -> AsyncIterator[bytes]:
        data = b"".join(contents[digest] for digest in digests)
        for start in range(0, len(data), block):
            yield data[start : start + block]

    return read


async def packed(files: dict[str, bytes], directories: Sequence[str] = (), *, mode: int = 0o644) -> bytes:
    stream = archive_stream(a_tree(files, directories, mode=mode), reader(files))
    return b"".join([block async for block in stream])


FILES = {"b/c": b"hello", "a": b"", "ümläut/" + "x" * 120: b"1" * 200_000, "z" * 100: b"2", "z" * 101: b"3"}


async def test_tools_read_the_archive() -> None:
    data = await packed(FILES, ["empty/one"], mode=0o555)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = {m.name: m for m in archive.getmembers()}
        assert sorted(found) == sorted([*FILES, "empty/one"])
        for name, content in FILES.items():
            file = archive.extractfile(found[name])
            assert file is not None
            assert file.read() == content
            assert (found[name].mode, found[name].uid, found[name].mtime) == (0o555, 0, 0)
        assert found["empty/one"].isdir()
    listed = subprocess.run(["tar", "-tzf", "-"], input=data, capture_output=True, check=True)
    assert not listed.stderr
    assert len(listed.stdout.splitlines()) == 6


async def test_its_size_is_known_before_its_first_byte() -> None:
    assert len(await packed(FILES, ["empty"])) == archive_size(a_tree(FILES, ["empty"]))
    assert len(await packed({})) == archive_size(TemplateManifest())
    for size in (65535 - 1024 - 512, 65535 - 1024 - 511, 65535 * 3):
        files = {"x": bytes(size)}
        assert len(await packed(files)) == archive_size(a_tree(files))


async def test_the_bytes_never_change() -> None:
    """A changed hash would make every node fetch every template again, and refuse the plans it has."""
    data = await packed({"config/server.yml": b"port: 1\n", "ü": b"x" * 70_000}, ["world"])
    assert (
        hashlib.sha256(data).hexdigest() == "a72570b9b567a2671861d94e1da0660e37bccd8ccb34b39851eb04866cc05fcc"
    )
    assert data[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


def test_sizes_beyond_octal_go_into_a_pax_header() -> None:
    size = 9 * 2**30
    file = TemplateFile(path="huge", mode=0o644, size=size, digest="0" * 64)
    with tarfile.open(fileobj=io.BytesIO(header_of(file))) as archive:
        info = archive.next()
    assert info is not None
    assert (info.name, info.size) == ("huge", size)


@given(st.lists(st.binary(max_size=100_000), max_size=6))
@settings(max_examples=50, deadline=None)
def test_stored_gzip_is_gzip(blocks: list[bytes]) -> None:
    writer = StoredGzip()
    out = b"".join([writer.feed(block) for block in blocks]) + writer.finish()
    assert gzip.decompress(out) == b"".join(blocks)


async def test_contents_that_end_early_are_no_archive() -> None:
    async def short(_: Sequence[str]) -> AsyncIterator[bytes]:
        yield b"12"

    with pytest.raises(Retryable) as refused:
        _ = [block async for block in archive_stream(a_tree({"a": b"12345"}), short)]
    assert refused.value.code is Code.TEMPLATE_UNAVAILABLE


async def test_a_zip_holds_the_same_tree_with_its_modes() -> None:
    stream = zip_stream(a_tree(FILES, ["empty"], mode=0o555), reader(FILES))
    data = b"".join([block async for block in stream])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == sorted([*FILES, "empty/"])
        for name, content in FILES.items():
            assert archive.read(name) == content
            assert archive.getinfo(name).external_attr >> 16 & 0o777 == 0o555
    assert len(data) < 10_000


async def test_a_zip_may_be_left_in_the_middle() -> None:
    stream = zip_stream(a_tree({str(n): bytes(600_000) for n in range(3)}), reader({"0": bytes(600_000)}))
    async for _ in stream:
        break
    await stream.aclose()


def test_files_and_directories_are_sorted_together() -> None:
    tree = a_tree({"a/b": b"", "c": b""}, ["a-b", "b"])
    names = [entry if isinstance(entry, str) else entry.path for entry in tar_writing.entries_of(tree)]
    assert names == ["a-b", "a/b", "b", "c"]
