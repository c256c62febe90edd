"""Archives from anywhere: read if they are decent, refused by the entry's name if they are not."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
import time
import tracemalloc

import pytest
from hostile_archives import PATHS, REFUSED, crowded_zip, hidden_zip, pax_before, raw_tar, zip_named

from corral.archives.limits import RATIO_FREE
from corral.controller.templates.archive_import import ArchiveUnpacking
from corral.controller.templates.tree_builder import TreeLimits
from corral.domain.templates import PIECE, TemplateManifest, kept_mode
from corral.errors import Code, CorralError, Rejected
from corral.testing.archives import tar_gz, zipped

LIMITS = TreeLimits(max_bytes=50_000_000, max_files=1000)


def unpack(data: bytes, limits: TreeLimits = LIMITS) -> tuple[TemplateManifest, dict[str, bytes]]:
    contents: dict[str, bytes] = {}
    unpacking = ArchiveUnpacking(io.BytesIO(data), limits)
    while batch := unpacking.next():
        contents.update(batch)
    return unpacking.manifest(), contents


def tree(data: bytes, limits: TreeLimits = LIMITS) -> dict[str, bytes]:
    manifest, contents = unpack(data, limits)
    return {file.path: b"".join(contents[digest] for digest in file.blobs) for file in manifest.files}


FILES = {"b/c.txt": b"hello", "a": b"", "b/deep/er/x": b"1" * 5000, "ümläut": b"\0\xff"}


@pytest.mark.parametrize(
    "data",
    [tar_gz(FILES), tar_gz(FILES, form="w:"), tar_gz({f"./{k}": v for k, v in FILES.items()}), zipped(FILES)],
    ids=["tar.gz", "tar", "tar of .", "zip"],
)
def test_a_decent_archive_gives_its_files_sorted_by_path(data: bytes) -> None:
    manifest, contents = unpack(data)
    assert tree(data) == FILES
    assert [file.path for file in manifest.files] == sorted(FILES)
    assert all(hashlib.sha256(FILES[file.path]).hexdigest() == file.digest for file in manifest.files)
    assert set(contents) == {file.digest for file in manifest.files}


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_arrive_whole_in_every_dialect_of_tar(form: int) -> None:
    name = "/".join(["d" * 200] * 5) + "/ü" + "f" * 200
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=form) as archive:
        info = tarfile.TarInfo(name)
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
    assert tree(out.getvalue()) == {name: b"abc"}


def test_ustar_prefixes_are_part_of_the_name() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("d" * 90 + "/" + "f" * 90))
    assert list(tree(out.getvalue())) == ["d" * 90 + "/" + "f" * 90]


def test_a_tar_of_several_gzip_members_is_read_to_its_end() -> None:
    raw = raw_tar((b"a", b"x" * 3000), (b"b", b"y"))
    assert tree(gzip.compress(raw[:1500]) + gzip.compress(raw[1500:])) == {"a": b"x" * 3000, "b": b"y"}


def test_large_files_come_in_pieces_and_equal_contents_once() -> None:
    large = random.Random(5).randbytes(2 * PIECE + 17)
    manifest, contents = unpack(tar_gz({"large": large, "exact": large[:PIECE], "twin": large}))
    exact, first, twin = manifest.files
    assert exact.pieces == ()
    assert first.pieces == twin.pieces
    assert [len(contents[piece]) for piece in first.pieces] == [PIECE, PIECE, 17]
    assert first.pieces[0] == exact.digest
    assert first.digest == hashlib.sha256(large).hexdigest()
    assert len(contents) == 3


def test_only_empty_directories_are_listed() -> None:
    manifest, _ = unpack(tar_gz({"./": b"", "full/": b"", "full/x": b"1", "empty/": b"", "a/b/": b""}))
    assert manifest.directories == ("a/b", "empty")


def test_of_modes_the_owner_s_execute_bit_and_the_lack_of_write_bits_are_kept() -> None:
    modes = {"plain": 0o664, "run": 0o755, "fixed": 0o444, "fixed run": 0o555, "odd": 0o4600, "none": 0o200}
    kept = {"plain": 0o644, "run": 0o755, "fixed": 0o444, "fixed run": 0o555, "odd": 0o644, "none": 0o644}
    files = dict.fromkeys(modes, b"x")
    for data in (tar_gz(files, modes=modes), zipped(files, modes=modes)):
        manifest, _ = unpack(data)
        assert {file.path: file.mode for file in manifest.files} == kept
    assert kept_mode(0) == 0o444


def test_names_that_differ_in_case_only_are_different_names() -> None:
    assert tree(tar_gz({"A": b"1", "a": b"2"})) == {"A": b"1", "a": b"2"}


@pytest.mark.trap("T26")
@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_archive_is_refused_and_the_entry_named(case: str) -> None:
    data, code, words = REFUSED[case]
    with pytest.raises(Rejected) as refused:
        unpack(data)
    assert refused.value.code is code
    assert words in refused.value.message
    assert refused.value.hint


@pytest.mark.trap("T26")
@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("pack", [tar_gz, zipped])
def test_a_path_that_leads_astray_is_refused(pack, name: str) -> None:
    for path, content in ((name, b"x"), (name + "/", b"")):
        with pytest.raises(Rejected) as refused:
            unpack(pack({"fine": b"", path: content}))
        assert refused.value.code is Code.PATH_REFUSED
        assert PATHS[name] in refused.value.message
        assert repr(name[:20])[1:-1] in refused.value.message


@pytest.mark.trap("T26")
def test_an_entry_without_a_name_is_refused() -> None:
    for data in (
        raw_tar((b"", b"x")),
        raw_tar((b".", b"x")),
        zip_named(b"./")[:0] or raw_tar((b"./.", b"x")),
    ):
        with pytest.raises(Rejected) as refused:
            unpack(data)
        assert refused.value.code is Code.PATH_REFUSED


@pytest.mark.trap("T26")
@pytest.mark.parametrize("pack", [tar_gz, zipped])
def test_a_bomb_is_refused_while_it_unpacks(pack) -> None:
    limits = TreeLimits(max_bytes=1_000_000, max_files=10)
    tracemalloc.start()
    for files in ({"zeros": bytes(30_000_000)}, {str(n): bytes(600_000) for n in range(3)}):
        data = pack(files)
        tracemalloc.reset_peak()
        with pytest.raises(Rejected) as refused:
            unpack(data, limits)
        assert refused.value.code is Code.ARCHIVE_TOO_LARGE
        assert "limit is 1000000 bytes" in refused.value.message
        assert tracemalloc.get_traced_memory()[1] < 45_000_000
    tracemalloc.stop()


@pytest.mark.trap("T26")
@pytest.mark.parametrize("pack", [tar_gz, zipped])
def test_what_unpacks_to_far_more_than_it_is_is_refused_before_much_was_unpacked(pack) -> None:
    large = {"zeros": bytes(RATIO_FREE + 1)}
    with pytest.raises(Rejected) as refused:
        unpack(pack(large))
    assert refused.value.code is Code.ARCHIVE_TOO_LARGE
    assert "more than 100 times its size" in refused.value.message
    assert tree(pack({"zeros": bytes(RATIO_FREE - 20_000)}))  # what is small may be anything
    dense = random.Random(1).randbytes(300_000)
    assert tree(pack({**large, "dense": dense}))["dense"] == dense


def test_a_zip_that_unpacks_too_far_is_refused_by_its_directory_alone() -> None:
    unpacking = ArchiveUnpacking(io.BytesIO(zipped({"a": b"first", "zeros": bytes(RATIO_FREE + 1)})), LIMITS)
    with pytest.raises(Rejected, match="times its size"):
        unpacking.next()
    assert unpacking.manifest().files == ()


def test_what_a_daemon_packed_and_a_plain_tar_may_be_mostly_empty() -> None:
    large = {"zeros": bytes(RATIO_FREE + 1)}
    assert tree(tar_gz(large, form="w:")) == large
    unpacking = ArchiveUnpacking(io.BytesIO(tar_gz(large)), LIMITS, any_ratio=True)
    while unpacking.next():
        pass
    assert unpacking.manifest().files[0].size == RATIO_FREE + 1


@pytest.mark.trap("T26")
def test_zeros_without_end_behind_a_tar_are_refused() -> None:
    limits = TreeLimits(max_bytes=1_000_000, max_files=10)
    with pytest.raises(Rejected) as refused:
        unpack(gzip.compress(raw_tar((b"a", b"x")) + bytes(5_000_000)), limits)
    assert refused.value.code is Code.ARCHIVE_TOO_LARGE
    with pytest.raises(Rejected) as refused:
        unpack(raw_tar((b"a", b"x")) + bytes(20_000_000))
    assert "follows its end mark" in refused.value.message


@pytest.mark.trap("T26")
def test_headers_without_end_are_refused() -> None:
    comment = bytearray(raw_tar((b"pax", b"x" * 50_000))[:-1024])
    comment[156:157] = b"g"
    comment[148:156] = b" " * 8
    comment[148:156] = b"%06o\0 " % sum(comment[:512])
    assert tree(bytes(comment) * 3 + raw_tar((b"a", b"x"))) == {"a": b"x"}
    with pytest.raises(Rejected) as refused:
        unpack(bytes(comment) * 100 + raw_tar((b"a", b"x")))
    assert "headers without end" in refused.value.message


@pytest.mark.system
def test_a_step_is_short_also_when_all_contents_are_equal() -> None:
    limits = TreeLimits(max_bytes=200 * PIECE, max_files=10_000)
    for files in ({"zeros": bytes(20 * PIECE)}, {str(number): b"same" for number in range(5000)}):
        unpacking = ArchiveUnpacking(io.BytesIO(tar_gz(files)), limits, any_ratio=True)
        steps = 0
        while unpacking.next():
            steps += 1
        assert steps >= 3
        assert len(unpacking.manifest().files) == len(files)


@pytest.mark.trap("T26")
@pytest.mark.parametrize("pack", [tar_gz, zipped])
def test_too_many_files_or_directories_are_refused(pack) -> None:
    limits = TreeLimits(max_bytes=1_000_000, max_files=10)
    assert len(tree(pack({str(n): b"" for n in range(10)}), limits)) == 10
    for files in (
        {str(n): b"" for n in range(11)},
        {f"{n}/": b"" for n in range(11)},
        {"/".join("abcdefghijkl"): b""},
    ):
        with pytest.raises(Rejected) as refused:
            unpack(pack(files), limits)
        assert refused.value.code is Code.ARCHIVE_TOO_LARGE


@pytest.mark.trap("T26")
def test_the_same_directory_over_and_over_is_refused() -> None:
    data = tar_gz({"d/": b""}, form="w:")[:512] * 22 + bytes(1024)
    with pytest.raises(Rejected, match="too many entries"):
        unpack(data, TreeLimits(max_bytes=1_000_000, max_files=10))


@pytest.mark.trap("T26")
def test_deep_paths_and_crowded_headers_cost_their_length_and_no_more() -> None:
    deep = {"/".join(["d"] * 2000) + f"/{number}": b"" for number in range(400)}
    records = b"5 a=\n" * 12_000
    crowded = gzip.compress(b"".join(pax_before(records, str(number).encode()) for number in range(30)))
    limits = TreeLimits(max_bytes=1_000_000, max_files=5000)
    began = time.process_time()
    assert len(tree(tar_gz(deep), limits)) == 400
    assert len(tree(crowded + gzip.compress(bytes(1024)), limits)) == 30
    assert time.process_time() - began < 30  # in squares of their length it would be minutes


@pytest.mark.trap("T26")
def test_a_zip_directory_that_only_large_records_tell_is_counted_too() -> None:
    data = hidden_zip(zipped({f"{number}": b"" for number in range(40)}))
    assert len(tree(data)) == 40
    few = TreeLimits(max_files=3, max_bytes=LIMITS.max_bytes)
    with pytest.raises(Rejected, match="too many entries"):
        tree(data, few)


@pytest.mark.trap("T26")
def test_a_zip_directory_is_counted_before_it_is_believed() -> None:
    with pytest.raises(Rejected) as refused:
        unpack(crowded_zip(22), TreeLimits(max_bytes=1000, max_files=10))
    assert refused.value.code is Code.ARCHIVE_TOO_LARGE
    assert "too many entries" in refused.value.message


@pytest.mark.trap("T26")
@pytest.mark.parametrize("good", [tar_gz(FILES), zipped(FILES), tar_gz(FILES, form="w:")])
def test_damage_anywhere_gives_a_clear_answer_or_the_tree(good: bytes) -> None:
    chance = random.Random(23)
    answers: set[Code] = set()
    for _ in range(1000):
        data = bytearray(good)
        for _ in range(chance.choice((1, 2, 8))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        try:
            unpack(bytes(data))
        except CorralError as error:
            answers.add(error.code)
    assert answers <= {Code.PATH_REFUSED, Code.ARCHIVE_INVALID, Code.ARCHIVE_TOO_LARGE}
