"""Archives of modules: what is read of a good one, how a bad one is refused, and what is unpacked."""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import stat
import struct
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packed_modules import FILES, MANIFEST, archive_with, named, with_mode, zipped

from corral.archives.limits import RATIO_FREE
from corral.errors import Code, Rejected
from corral.modules.archive.archive_reader import ENTRIES_MAX, ArchiveFacts, inspect_archive
from corral.modules.archive.unpacked_tree import is_intact, unpack
from corral.modules.manifest.manifest_reader import MANIFEST_MAX
from corral.system.trees.removal import remove_tree

MAX = 64 * 1024 * 1024
CODES = {Code.ARCHIVE_INVALID, Code.ARCHIVE_TOO_LARGE, Code.PATH_REFUSED, Code.MANIFEST_INVALID}


def inspected(tmp_path: Path, data: bytes, *, max_bytes: int = MAX) -> ArchiveFacts:
    path = tmp_path / "module.cmod"
    path.write_bytes(data)
    return inspect_archive(path, max_bytes=max_bytes)


def refusal(tmp_path: Path, data: bytes, code: Code, *, max_bytes: int = MAX) -> str:
    with pytest.raises(Rejected) as refused:
        inspected(tmp_path, data, max_bytes=max_bytes)
    assert refused.value.code is code
    assert refused.value.hint
    return refused.value.message


def test_a_good_archive_is_known_to_the_last_file(tmp_path: Path) -> None:
    more = {"frontend/index.html": b"<html>", "frontend/a/b.js": b"1", "vendor/dep/__init__.py": b""}
    data = zipped({**FILES, **more})
    facts = inspected(tmp_path, data)
    assert facts.manifest.id == "stats"
    assert facts.manifest_text == MANIFEST
    assert facts.sha256 == hashlib.sha256(data).hexdigest()
    assert facts.size == len(data)
    assert {each.path for each in facts.files} == {*FILES, *more}
    assert [(each.path, each.sha256) for each in facts.frontend] == [
        ("index.html", hashlib.sha256(b"<html>").hexdigest()),
        ("a/b.js", hashlib.sha256(b"1").hexdigest()),
    ]


@pytest.mark.parametrize(
    "place",
    ["module.yaml", "module.json", "stats-1.0.0.dist-info/module.yaml", "META-INF/module.yaml", "META-INF/module.json"],
)  # fmt: skip
def test_the_manifest_is_found_wherever_it_may_be(tmp_path: Path, place: str) -> None:
    text = MANIFEST.encode()
    if place.endswith(".json"):
        text = b'{"manifestVersion":1,"id":"stats","version":"1.0.0","backend":{"controller":{"entrypoint":"stats.main:Stats"}}}'
    files = {name: content for name, content in FILES.items() if name != "module.yaml"}
    facts = inspected(tmp_path, zipped({**files, place: text}))
    assert (facts.manifest.id, facts.manifest_name) == ("stats", place)


def test_two_manifests_are_refused_by_name(tmp_path: Path) -> None:
    data = zipped({**FILES, "META-INF/module.json": b"{}"})
    assert "2 manifests: META-INF/module.json, module.yaml" in refusal(tmp_path, data, Code.ARCHIVE_INVALID)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a.py": b""}, "no module.yaml"),
        ({"module.yml": b""}, "rename 'module.yml'"),
        ({"Module.yaml": b""}, "rename 'Module.yaml'"),
        ({"stats/module.yaml": b""}, "pack what is in that directory"),
        ({"vendor/x.dist-info/module.yaml": b""}, "no module.yaml"),
    ],
)
def test_an_archive_without_a_manifest_says_where_it_belongs(
    tmp_path: Path, files: dict[str, bytes], told: str
) -> None:
    assert told in refusal(tmp_path, zipped(files), Code.ARCHIVE_INVALID)


@pytest.mark.parametrize(
    ("manifest", "files", "told"),
    [
        (MANIFEST.replace("stats.main", "stats.other"), {}, "module.yaml: backend.controller.entrypoint: the archive has no module 'stats.other'"),
        (MANIFEST + "frontend: {entry: index.html, title: T}\n", {}, "frontend.entry: the archive has no file 'frontend/index.html'"),
        (MANIFEST + "frontend: {entry: frontend/i.html, title: T}\n", {"frontend/i.html": b""}, "write it without 'frontend/'"),
        (MANIFEST + "extensions:\n- id: e\n  variants:\n  - {id: v, file: x.jar, sha256: '%s', installPath: x.jar}\n" % ("0" * 64), {}, "has no file 'x.jar'"),
        (MANIFEST + "extensions:\n- id: e\n  variants:\n  - {id: v, file: x.jar, sha256: '%s', installPath: x.jar}\n" % ("0" * 64), {"x.jar": b"jar"}, f"extensions[0].variants[0].sha256: the file's digest is {hashlib.sha256(b'jar').hexdigest()}"),
        (MANIFEST.replace("version: 1.0.0", "version: x"), {}, "module.yaml:3: version"),
    ],
)  # fmt: skip
def test_a_manifest_that_speaks_of_other_files_is_refused(
    tmp_path: Path, manifest: str, files: dict[str, bytes], told: str
) -> None:
    data = zipped({**FILES, "module.yaml": manifest.encode(), **files})
    assert told in refusal(tmp_path, data, Code.MANIFEST_INVALID)


def test_extension_modules_and_vendored_entrypoints_are_found(tmp_path: Path) -> None:
    files = {"module.yaml": MANIFEST.encode(), "stats/main.cpython-311-x86_64-linux-gnu.so": b"\x7fELF"}
    assert inspected(tmp_path, zipped(files))
    files = {"module.yaml": MANIFEST.encode(), "vendor/stats/main.py": b""}
    assert inspected(tmp_path, zipped(files))


@pytest.mark.parametrize(
    "name",
    [b"../up", b"a/../../up", b"/etc/passwd", b"a\\b", b"..\\up", b"a\x00b", b"a//b", b"./a", b"a/./b", b"C:\\x",
     b"a\nb", b"..", b"//x", b"a/" + b"b" * 300, b"\xc2\x9b31m", b"a/" * 64 + b"a", b"a" * 200 + b"/" + b"b/" * 450],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, name: bytes) -> None:
    message = refusal(tmp_path, named(name), Code.PATH_REFUSED)
    assert "\x00" not in message
    assert "\n" not in message


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_special_files_are_refused(tmp_path: Path, kind: int) -> None:
    assert "'odd': it is a" in refusal(tmp_path, with_mode("odd", kind | 0o777), Code.PATH_REFUSED)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["stats/Main.py"], "some file systems take it for 'stats/main.py'"),
        (["STATS/x.py"], "some file systems take it for 'stats'"),
        (["é", "e\u0301"], "some file systems take it for"),
        (["stats"], "is both a file and a directory"),
        (["x", "x/y"], "is both a file and a directory"),
        (["x/y", "x"], "is both a file and a directory"),
        (["x/y/z", "x/y"], "is both a file and a directory"),
    ],
)
def test_names_that_clash_are_refused(tmp_path: Path, names: list[str], told: str) -> None:
    data = zipped({**FILES, **dict.fromkeys(names, b"x")})
    assert told in refusal(tmp_path, data, Code.PATH_REFUSED)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    data = zipped({**FILES, "stats/mai#.py": b"evil"}).replace(b"stats/mai#.py", b"stats/main.py")
    assert "'stats/main.py': it is in the archive twice" in refusal(tmp_path, data, Code.PATH_REFUSED)


def test_directories_may_be_named_or_not(tmp_path: Path) -> None:
    assert inspected(tmp_path, zipped({"stats/": b"", **FILES, "empty/": b""}))
    assert "directory with content" in refusal(tmp_path, archive_with(**{"d/": b"x"}), Code.PATH_REFUSED)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "not a zip archive"),
        (b"PK", "not a zip archive"),
        (b"#!/bin/sh\n" + zipped(FILES), "not a zip archive"),
        (b"\x1f\x8b" + bytes(100), "not a zip archive"),
        (zipped({}), "not a zip archive"),
        (zipped(FILES)[:-30], "directory at its end is missing"),
        (zipped(FILES)[: len(zipped(FILES)) // 2], "directory at its end is missing"),
        (zipped(FILES) + b"more", "something follows its end"),
        (zipped({"a": b""}) + zipped(FILES), "something stands before its first entry"),
    ],
)
def test_what_is_no_whole_zip_is_refused(tmp_path: Path, data: bytes, told: str) -> None:
    assert told in refusal(tmp_path, data, Code.ARCHIVE_INVALID)


def test_an_archive_cut_anywhere_is_refused(tmp_path: Path) -> None:
    data = zipped(FILES)
    for end in range(0, len(data), 7):
        with pytest.raises(Rejected) as refused:
            inspected(tmp_path, data[:end])
        assert refused.value.code is Code.ARCHIVE_INVALID


def test_a_damaged_content_is_found_by_its_checksum(tmp_path: Path) -> None:
    data = zipped({**FILES, "big.bin": b"0123456789" * 100}, compression=zipfile.ZIP_STORED)
    damaged = data.replace(b"01234567890123", b"01234567890124", 1)
    assert "'big.bin'" in refusal(tmp_path, damaged, Code.ARCHIVE_INVALID)


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    data = bytearray(archive_with(secret=b"x"))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.rfind(signature)
        data[place + offset] |= 1
    assert "'secret': it is encrypted" in refusal(tmp_path, bytes(data), Code.PATH_REFUSED)


def test_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    data = zipped({**FILES, "x": b"x"}, compression=zipfile.ZIP_BZIP2)
    assert "compression is not known" in refusal(tmp_path, data, Code.PATH_REFUSED)


def test_an_archive_over_the_limit_is_refused_unread(tmp_path: Path) -> None:
    data = zipped({**FILES, "x": os.urandom(5000)})
    assert "the limit is 4096 bytes" in refusal(tmp_path, data, Code.ARCHIVE_TOO_LARGE, max_bytes=4096)


def test_too_many_entries_are_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(ENTRIES_MAX + 1):
            archive.writestr(zipfile.ZipInfo(f"{number}"), b"")
    assert "too many entries" in refusal(tmp_path, out.getvalue(), Code.ARCHIVE_TOO_LARGE)


def test_entries_that_only_the_records_of_large_archives_tell_are_counted(tmp_path: Path) -> None:
    """Python's reader believes these records always, not only when the plain one points at them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(ENTRIES_MAX + 1):
            archive.writestr(zipfile.ZipInfo(f"{number}"), b"")
    data = out.getvalue()
    end = data.rfind(b"PK\x05\x06")
    count, size, start = struct.unpack("<HLL", data[end + 10 : end + 20])
    large = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    plain = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0, 0, 0, 0, 0)
    hidden = data[:end] + large + locator + plain
    assert len(zipfile.ZipFile(io.BytesIO(hidden)).infolist()) == count
    assert "too many entries" in refusal(tmp_path, hidden, Code.ARCHIVE_TOO_LARGE)


def test_a_bomb_is_refused_by_its_ratio_before_it_is_unpacked(tmp_path: Path) -> None:
    data = zipped({**FILES, "zeros": bytes(RATIO_FREE + 1)})
    assert "times its size" in refusal(tmp_path, data, Code.ARCHIVE_TOO_LARGE)


def test_a_size_beyond_all_limits_is_refused_by_what_is_announced(tmp_path: Path) -> None:
    data = bytearray(archive_with(bomb=b"x" * 100))
    place = data.rfind(b"PK\x01\x02")
    data[place + 24 : place + 28] = struct.pack("<L", 0xFFFFFF00)
    assert "unpacks to too much" in refusal(tmp_path, bytes(data), Code.ARCHIVE_TOO_LARGE)


def test_an_entry_that_is_more_than_it_announces_is_refused(tmp_path: Path) -> None:
    data = bytearray(archive_with(liar=b"x" * 10_000))
    place = data.rfind(b"PK\x01\x02")
    data[place + 24 : place + 28] = struct.pack("<L", 10)
    refusal(tmp_path, bytes(data), Code.ARCHIVE_INVALID)


def test_entries_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    """Many names for one packed file: small as an archive, large when unpacked."""
    data = zipped({**FILES, "one": b"x" * 5000, "two": b"x" * 5000})
    first, second = data.find(b"one") - 30, data.find(b"two") - 30
    directory = data.rfind(b"PK\x01\x02")
    shared = bytearray(data)
    assert struct.unpack("<L", data[directory + 42 : directory + 46])[0] == second
    shared[directory + 42 : directory + 46] = struct.pack("<L", first)
    assert "overlaps another entry" in refusal(tmp_path, bytes(shared), Code.ARCHIVE_INVALID)


def test_a_manifest_too_large_is_refused(tmp_path: Path) -> None:
    data = archive_with(**{"module.yaml": MANIFEST.encode() + b"#" * MANIFEST_MAX})
    assert "module.yaml has" in refusal(tmp_path, data, Code.ARCHIVE_TOO_LARGE)


def test_a_manifest_that_is_not_text_is_refused(tmp_path: Path) -> None:
    data = archive_with(**{"module.yaml": b"\xff\xfe\x00"})
    assert "module.yaml: it is not UTF-8" in refusal(tmp_path, data, Code.MANIFEST_INVALID)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(Rejected) as refused:
        inspect_archive(tmp_path / "none.cmod", max_bytes=MAX)
    assert refused.value.code is Code.FILE_UNREADABLE


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=4))
def test_whatever_is_damaged_is_read_or_refused(tmp_path: Path, place: int, noise: bytes) -> None:
    data = bytearray(zipped({**FILES, "frontend/a.js": b"1" * 50}))
    place %= len(data) - len(noise)
    data[place : place + len(noise)] = noise
    code = None
    try:
        inspected(tmp_path, bytes(data))
    except Rejected as refused:
        code = refused.code
    assert code is None or code in CODES


def unpacked(tmp_path: Path, data: bytes) -> Path:
    (tmp_path / "a.zip").write_bytes(data)
    with (tmp_path / "a.zip").open("rb") as file:
        unpack(file, tmp_path / "tree", max_bytes=MAX)
    return tmp_path / "tree"


@pytest.fixture(autouse=True)
def _trees_are_removed(tmp_path: Path):  # sealed: pytest cannot remove them by itself
    yield
    remove_tree(tmp_path / "tree")


def test_a_tree_is_read_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        tree = unpacked(tmp_path, with_mode("vendor/bin/tool", stat.S_IFREG | 0o750))
    finally:
        os.umask(before)
    modes = {path.relative_to(tree).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in tree.rglob("*")}
    assert modes.pop("vendor/bin/tool") == 0o555
    assert {modes[name] for name in FILES} == {0o444}
    assert {modes[name] for name in ("stats", "vendor", "vendor/bin")} == {0o555}
    assert stat.S_IMODE(tree.stat().st_mode) == 0o555


def test_nothing_is_left_of_an_archive_that_breaks_half_way(tmp_path: Path) -> None:
    data = zipped({**FILES, "big.bin": b"0123456789" * 100}, compression=zipfile.ZIP_STORED)
    damaged = data.replace(b"01234567890123", b"01234567890124", 1)
    with pytest.raises(Rejected):
        unpacked(tmp_path, damaged)
    assert not (tmp_path / "tree").exists()


def test_a_tree_that_exists_is_not_written_over(tmp_path: Path) -> None:
    tree = unpacked(tmp_path, zipped(FILES))
    with pytest.raises(FileExistsError):
        unpacked(tmp_path, archive_with(x=b"x"))
    assert not (tree / "x").exists()


@pytest.mark.parametrize("how", ["content", "mode", "missing", "added", "link", "directory mode"])
def test_a_changed_tree_is_noticed(tmp_path: Path, how: str) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(FILES))
    tree = tmp_path / "tree"
    with (tmp_path / "a.zip").open("rb") as file:
        files = unpack(file, tree, max_bytes=MAX)
    assert is_intact(tree, files)
    package, file = tree / "stats", tree / "stats" / "main.py"
    package.chmod(0o755)
    if how == "content":
        file.chmod(0o644)
        file.write_bytes(file.read_bytes().replace(b"Stats", b"Evils"))
        file.chmod(0o444)
    elif how == "mode":
        file.chmod(0o644)
    elif how == "missing":
        file.unlink()
    elif how == "added":
        (package / "more.py").touch(0o444)
    elif how == "link":
        file.unlink()
        (tmp_path / "elsewhere.py").write_bytes(FILES["stats/main.py"])
        file.symlink_to(tmp_path / "elsewhere.py")
    package.chmod(0o755 if how == "directory mode" else 0o555)
    assert not is_intact(tree, files)


def test_a_tree_that_is_removed_takes_nothing_else_along(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = unpacked(tmp_path, zipped(FILES))
    tree.chmod(0o755)
    (tree / "link").symlink_to(outside)
    tree.chmod(0o555)
    remove_tree(tree)
    remove_tree(tree)  # fine when it is gone
    assert not tree.exists()
    assert (outside / "kept").exists()


def test_packages_and_native_code_work_from_a_tree(tmp_path: Path) -> None:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    native = next(Path(sysconfig.get_path("platlib")).glob(f"msgspec/_core*{suffix}"))
    ctypes.CDLL(str(native))
    package = native.parent
    vendored = {f"vendor/msgspec/{path.name}": path.read_bytes() for path in package.glob("*.py")}
    data = zipped({**FILES, **vendored, f"vendor/msgspec/{native.name}": native.read_bytes()})
    tree = unpacked(tmp_path, data)
    code = "import sys; sys.path[:0] = sys.argv[1:]; import msgspec, stats.main; print(msgspec.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code, str(tree), str(tree / "vendor")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(tree / "vendor/msgspec/__init__.py"), done.stderr
