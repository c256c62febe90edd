"""Building: the same source gives the same archive, and only what belongs into it."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
import zipfile
from pathlib import Path

import pytest
from packed_modules import MANIFEST

from corral.errors import Code, Rejected
from corral.modules.archive.archive_builder import build_module

JAR = b"jar of the plugin"
EXTENSION = f"""\
extensions:
  - id: plugin
    variants:
      - {{id: any, file: plugins/p.jar, sha256: {hashlib.sha256(JAR).hexdigest()}, installPath: plugins/p.jar}}
"""
TAKEN = {
    "module.yaml": (MANIFEST + EXTENSION).encode(),
    "stats/__init__.py": b"",
    "stats/main.py": b"class Stats: ...\n" * 50,
    "stats/data/table.csv": b"a,b\n",
    "stats/tests/inner.py": b"",
    "single.py": b"",
    "src/other/__init__.py": b"",
    "vendor/dep/__init__.py": b"",
    "vendor/dep/tests/data.txt": b"x",
    "vendor/dep-1.0.dist-info/METADATA": b"Name: dep",
    "frontend/index.html": b"<html>",
    "frontend/dist/app.js": b"1",
    "plugins/p.jar": JAR,
}
LEFT = {
    ".git/config": b"x",
    ".env": b"SECRET=1",
    "tests/__init__.py": b"",
    "tests/test_it.py": b"",
    "dist/old-1.0.0.cmod": b"old",
    "setup.py": b"",
    "conftest.py": b"",
    "test_top.py": b"",
    "README.md": b"",
    "notes/x.txt": b"",
    "stats/__pycache__/main.cpython-311.pyc": b"x",
    "stats/.cache": b"x",
    "vendor/dep/x.pyc": b"x",
    "frontend/node_modules/a/index.js": b"x",
    "plugins/other.jar": b"x",
}


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", TAKEN | LEFT)


def refusal(source: Path, code: Code) -> str:
    with pytest.raises(Rejected) as refused:
        build_module(source)
    assert refused.value.code is code
    return str(refused.value)


def test_an_archive_holds_what_belongs_to_the_module_and_nothing_else(source: Path) -> None:
    built = build_module(source)
    assert built.path == source / "dist" / "stats-1.0.0.cmod"
    assert built.sha256 == hashlib.sha256(built.path.read_bytes()).hexdigest()
    assert built.size == built.path.stat().st_size
    with zipfile.ZipFile(built.path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    wanted = {name.removeprefix("src/"): content for name, content in TAKEN.items()}
    assert contents == wanted
    assert list(built.files) == sorted(wanted)


def test_the_same_source_gives_the_same_archive(tmp_path: Path, source: Path) -> None:
    first = build_module(source)
    again = build_module(source)
    elsewhere = tmp_path / "a" / "b"
    before = os.umask(0o077)
    try:  # written in another order, at another place, by somebody with another umask
        write(elsewhere, dict(reversed(TAKEN.items())))
    finally:
        os.umask(before)
    for number, path in enumerate(sorted(elsewhere.rglob("*"))):
        os.utime(path, (10**9 + number, 10**9 + number))
    other = build_module(elsewhere, tmp_path / "out.zip")
    assert first.sha256 == again.sha256 == other.sha256
    assert other.path == tmp_path / "out.zip"


def test_entries_are_sorted_and_carry_nothing_of_this_machine(source: Path) -> None:
    tool = source / "vendor" / "tool"
    tool.write_bytes(b"#!")
    tool.chmod(0o711)
    with zipfile.ZipFile(build_module(source).path) as archive:
        infos = archive.infolist()
    assert [info.filename for info in infos] == sorted(info.filename for info in infos)
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
    assert {info.extra for info in infos} == {b""}
    assert {info.create_system for info in infos} == {3}
    modes = {info.filename: info.external_attr >> 16 for info in infos}
    assert modes.pop("vendor/tool") == stat.S_IFREG | 0o755
    assert set(modes.values()) == {stat.S_IFREG | 0o644}


def test_another_byte_gives_another_archive(source: Path) -> None:
    first = build_module(source)
    (source / "stats" / "main.py").write_bytes(b"class Stats: pass\n")
    assert build_module(source).sha256 != first.sha256


@pytest.mark.parametrize("name", ["stats/link.py", "vendor/link", "frontend/link", "link.py"])
def test_a_link_is_refused_by_name(source: Path, name: str) -> None:
    (source / name).symlink_to("/etc/passwd")
    assert f"{name}: it is a symbolic link" in refusal(source, Code.PATH_REFUSED)


def test_a_linked_directory_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (source / "vendor" / "more").symlink_to(tmp_path / "elsewhere")
    refusal(source, Code.PATH_REFUSED)
    (source / "vendor" / "more").unlink()
    shutil.rmtree(source / "vendor")
    (source / "vendor").symlink_to(tmp_path / "elsewhere")
    refusal(source, Code.PATH_REFUSED)


def test_a_special_file_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(source / "stats" / "pipe")
    assert "neither a file nor a directory" in refusal(source, Code.PATH_REFUSED)
    (source / "stats" / "pipe").unlink()
    monkeypatch.chdir(source / "stats")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        assert "neither a file nor a directory" in refusal(source, Code.PATH_REFUSED)


def test_two_files_for_one_name_are_refused(source: Path) -> None:
    write(source, {"src/stats/__init__.py": b""})
    assert "has the same name in the archive" in refusal(source, Code.PATH_REFUSED)


def test_a_failed_build_leaves_what_was_there(source: Path) -> None:
    first = build_module(source)
    (source / "stats" / "main.py").unlink()
    assert "the archive has no module 'stats.main'" in refusal(source, Code.MANIFEST_INVALID)
    assert sorted(path.name for path in first.path.parent.iterdir()) == ["old-1.0.0.cmod", first.path.name]
    assert hashlib.sha256(first.path.read_bytes()).hexdigest() == first.sha256


def test_a_wrong_manifest_is_told_with_its_line(source: Path) -> None:
    (source / "module.yaml").write_text(MANIFEST + "verison: 2\n")
    assert "module.yaml:8: verison: unknown key; did you mean 'version'?" in refusal(
        source, Code.MANIFEST_INVALID
    )


def test_a_missing_or_second_manifest_is_told(source: Path) -> None:
    (source / "module.json").write_text("{}")
    assert "two manifests" in refusal(source, Code.MANIFEST_INVALID)
    (source / "module.json").unlink()
    (source / "module.yaml").unlink()
    assert "no module.yaml" in refusal(source, Code.MANIFEST_INVALID)


def test_another_digest_of_an_extension_is_told_with_the_right_one(source: Path) -> None:
    (source / "plugins" / "p.jar").write_bytes(b"new")
    assert hashlib.sha256(b"new").hexdigest() in refusal(source, Code.MANIFEST_INVALID)


def test_a_source_that_is_not_there_is_told(tmp_path: Path) -> None:
    refusal(tmp_path / "none", Code.MANIFEST_INVALID)


def test_names_that_only_differ_by_case_are_refused(source: Path) -> None:
    write(source, {"stats/Main.py": b""})
    assert "some file systems" in refusal(source, Code.PATH_REFUSED)


def test_a_place_that_cannot_be_written_is_told_by_its_own_name(source: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(Rejected, match=r"cannot be built: \S*/taken: Is a directory"):
        build_module(source, tmp_path / "taken")
    assert not list(tmp_path.glob(".taken*"))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("stats/main.py", b"class Stats: ...\n\ndef (:\n", "stats/main.py:3: "),
        ("single.py", b"x = 'open\n", "single.py:1: "),
        ("single.py", b"x = 1\x00", "single.py"),
        ("stats/main.py", b"class Statistics: ...\n", "stats/main.py has no class 'Stats'"),
        ("stats/main.py", b"", "stats/main.py has no class 'Stats'"),
    ],
)
def test_what_python_cannot_load_is_found_without_running_it(
    source: Path, name: str, content: bytes, told: str
) -> None:
    (source / name).write_bytes(content)
    assert told in refusal(source, Code.ARCHIVE_INVALID)
    assert list((source / "dist").glob("stats*.cmod")) == []


@pytest.mark.parametrize(
    "content",
    [
        b"from stats.other import Stats\n",
        b"from stats.other import *\n",
        b"from stats import other as Stats\n",
        b"try:\n    from fast import Stats\nexcept ImportError:\n    Stats = None\n",
        b"def __getattr__(name): ...\n",
        b"globals()['Stats'] = type('Stats', (), {})\n",
        b"raise SystemExit('was run')\nclass Stats: ...\n",
    ],
)
def test_a_class_that_may_be_there_is_taken(source: Path, content: bytes) -> None:
    (source / "stats/main.py").write_bytes(content)
    assert build_module(source).manifest.id


def test_what_others_wrote_is_not_looked_at(source: Path) -> None:
    (source / "vendor/dep/__init__.py").write_bytes(b"print 'of another Python'\n")
    assert build_module(source).manifest.id
