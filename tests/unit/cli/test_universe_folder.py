"""Folders of Universe from outside: what is found in them, what is refused, and that nothing beside them is read."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
from collections.abc import Callable

import pytest

from corral.cli.failure import WrongUsage
from corral.cli.universe.folder import MOST_BYTES, MOST_ENTRIES, UniverseFolder
from corral.cli.universe.import_plan import import_plan
from corral.cli.universe.template_trees import read_trees
from corral.domain.universe.field_reports import FieldAction, FieldFault

GOOD = {"name": "lobby", "command": "./server"}


@pytest.fixture
def root(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "universe"
    write(folder, "configuration/lobby.json", json.dumps(GOOD))
    write(folder, "templates/global/base/server", "x")
    return folder


def write(folder: pathlib.Path, path: str, text: str | bytes = "x") -> pathlib.Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def faults_of(root: pathlib.Path) -> list[FieldFault]:
    folder = UniverseFolder(str(root))
    faults = list(import_plan(folder).faults)
    read_trees(folder.templates, faults)
    return faults


def link(root: pathlib.Path, path: str, target: str) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def socket_at(place: pathlib.Path) -> None:
    """Nobody can open a socket as a file, not even root."""
    os.chdir(place.parent)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(place.name)


BAD: dict[str, tuple[Callable[[pathlib.Path], object], str, str]] = {
    "not-json": (lambda root: write(root, "config.json", "{"), "config.json:1", "not JSON"),
    "empty": (lambda root: write(root, "database.json", ""), "database.json:1", "not JSON"),
    "latin": (lambda root: write(root, "config.json", b'{"a": "\xe9"}'), "config.json", "UTF-8"),
    "twice": (
        lambda root: write(root, "configuration/a.json", '{"name": "a", "name": "b"}'),
        "configuration/a.json:1",
        "stands twice",
    ),
    "deep": (
        lambda root: write(root, "configuration/a.json", "[" * 100_000),
        "configuration/a.json",
        "deeper",
    ),
    "deep-and-valid": (
        lambda root: write(root, "configuration/a.json", "[" * 40 + "]" * 40),
        "configuration/a.json",
        "deeper than 32",
    ),
    "large": (
        lambda root: write(root, "configuration/a.json", b" " * (MOST_BYTES + 1)),
        "configuration/a.json",
        "more than 1 MiB",
    ),
    "not-a-number": (lambda root: write(root, "config.json", '{"a": NaN}'), "config.json:1", "NaN"),
    "infinite": (lambda root: write(root, "config.json", '{"a": 1e999}'), "config.json:1", "1e999"),
    "surrogate": (lambda root: write(root, "config.json", '{"a": "\\ud800"}'), "config.json:1", "half"),
    "no-object": (lambda root: write(root, "config.json", "[]"), "config.json", "no object"),
    "pipe": (lambda root: os.mkfifo(root / "config.json"), "config.json", "no regular file"),
    "directory": (lambda root: (root / "config.json").mkdir(), "config.json", "no regular file"),
    "unreadable": (lambda root: socket_at(root / "config.json"), "config.json", "cannot read it"),
    "file-unreadable": (
        lambda root: socket_at(root / "templates/global/base/socket"),
        "templates/global/base/socket",
        "cannot read it",
    ),
    "file-for-directory": (lambda root: write(root, "static", "x"), "static", "no directory"),
    "link-out": (lambda root: link(root, "config.json", "/etc/passwd"), "config.json", "out of the folder"),
    "link-up": (lambda root: link(root, "static", ".."), "static", "out of the folder"),
    "link-nowhere": (lambda root: link(root, "config.json", "gone"), "config.json", "nowhere"),
    "link-to-itself": (lambda root: link(root, "config.json", "config.json"), "config.json", "nowhere"),
    "template-link-out": (
        lambda root: link(root, "templates/global/out", "/etc"),
        "templates/global/out",
        "out of the folder",
    ),
    "template-link": (
        lambda root: link(root, "templates/global/again", "base"),
        "templates/global/again",
        "it is a link",
    ),
    "file-link": (
        lambda root: link(root, "templates/global/base/passwd", "/etc/passwd"),
        "templates/global/base/passwd",
        "it is a link",
    ),
    "file-pipe": (
        lambda root: os.mkfifo(root / "templates/global/base/pipe"),
        "templates/global/base/pipe",
        "no plain file",
    ),
    "file-name": (
        lambda root: write(root, "templates/global/base/a\\b"),
        "templates/global/base/a\\b",
        "backslash",
    ),
    "file-name-bytes": (
        lambda root: write(root, os.fsdecode(b"templates/global/base/\xff")),
        "templates/global/base/\\xff",
        "not UTF-8",
    ),
    "name-bytes": (
        lambda root: write(root, os.fsdecode(b"configuration/\xff.json")),
        "configuration/\\xff.json",
        "not UTF-8",
    ),
    "template-name": (
        lambda root: write(root, "templates/global/two words/x"),
        "templates/global/two words",
        "cannot be the name",
    ),
    "template-collision": (
        lambda root: write(root, "templates/Global/Base/x"),
        "templates/Global/Base",
        "would be made of",
    ),
    "group-collision": (
        lambda root: write(root, "configuration/other.json", json.dumps({**GOOD, "name": "Lobby"})),
        "configuration/lobby.json",
        "would be made of",
    ),
    "static-collision": (
        lambda root: [write(root, f"static/{name}/x") for name in ("World", "world")],
        "static/World",
        "would be made of",
    ),
    "many": (
        lambda root: [write(root, f"configuration/{number}.json") for number in range(MOST_ENTRIES)],
        "configuration",
        "more than 1000 entries",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_entry_is_named_with_what_to_do(root: pathlib.Path, case: str) -> None:
    assert faults_of(root) == []
    make, file, message = BAD[case]
    make(root)
    (fault,) = faults_of(root)
    assert fault.file == file
    assert message in fault.sentence()
    assert fault.hint


def test_every_bad_entry_of_a_folder_is_named(root: pathlib.Path) -> None:
    cases = [case for case in BAD if BAD[case][1].startswith("templates/") or case == "group-collision"]
    for case in cases:
        BAD[case][0](root)
    assert {each.file for each in faults_of(root)} == {BAD[case][1] for case in cases}


def test_a_link_within_the_folder_is_followed(root: pathlib.Path) -> None:
    write(root, "shared/arena.json", json.dumps({**GOOD, "name": "arena"}))
    link(root, "configuration/arena.json", "../shared/arena.json")
    assert faults_of(root) == []
    assert [each.file for each in UniverseFolder(str(root)).configurations] == [
        "configuration/arena.json",
        "configuration/lobby.json",
    ]


def test_a_mark_of_the_byte_order_is_passed_over(root: pathlib.Path) -> None:
    write(root, "config.json", b"\xef\xbb\xbf{}")
    assert faults_of(root) == []


def test_what_is_no_folder_of_universe_is_wrong_usage(tmp_path: pathlib.Path) -> None:
    for place in (tmp_path, tmp_path / "nothing", write(tmp_path, "file")):
        with pytest.raises(WrongUsage) as caught:
            UniverseFolder(str(place))
        assert caught.value.hint


def test_a_tree_deeper_than_the_stack_is_read(root: pathlib.Path) -> None:
    deep = root / "templates/global/base"
    os.chdir(deep)
    try:
        for _ in range(1500):
            pathlib.Path("d").mkdir()
            os.chdir("d")
        os.chdir(root)
        assert faults_of(root) == []
    finally:  # Python could not remove it
        subprocess.run(["rm", "-rf", str(deep / "d")], check=True)


def test_everything_of_a_folder_is_reported(root: pathlib.Path) -> None:
    write(
        root,
        "configuration/World.json",
        json.dumps({**GOOD, "name": "World", "static": True, "nodes": ["n1"]}),
    )
    for path in ("World/x", "world-2/x", "nobody/x", "file"):
        write(root, f"static/{path}")
    for path in (
        "running/lobby-1/x",
        "notes.txt",
        "templates/note.txt",
        "templates/.git/x",
        "configuration/x.bak",
    ):
        write(root, path)
    folder = UniverseFolder(str(root))
    plan = import_plan(folder)
    assert plan.faults == []
    assert [(each.source, each.instance, each.nodes) for each in plan.copies] == [
        ("static/World", "world-1", ["n1"]),
        ("static/nobody", "", []),
        ("static/world-2", "world-2", ["n1"]),
    ]
    assert plan.copies[0].command == f'cp -aT {root}/static/World "$DATA/static/world-1"'
    dropped = {each.file for each in plan.reports if each.action is FieldAction.DROPPED and not each.field}
    assert dropped == {
        "static/nobody",
        "static/file",
        "running",
        "notes.txt",
        "templates/note.txt",
        "templates/.git",
        "configuration/x.bak",
    }
