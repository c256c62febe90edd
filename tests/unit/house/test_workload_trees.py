"""No path leads through a tree that a workload can change: what is done there is done by descriptor.

Whoever follows a path as root goes where a workload leads him, for any directory on the way may be swapped for a
link. So `corral.system.trees` is the only way into such trees, and every other call in the daemon and the runtimes
that takes a path stands in `path_calls.toml`, with the reason why nobody else can change what it leads through.
"""

from __future__ import annotations

import ast
import pathlib
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "src" / "corral"
ROOMS = ("daemon", "runtimes")
BY_DESCRIPTOR = {"dir_fd", "src_dir_fd", "dst_dir_fd"}
FUNCTIONS = {
    "os": {
        *("access", "chdir", "chmod", "chown", "chroot", "fwalk", "getxattr", "lchown", "link", "listdir"),
        *(
            "listxattr",
            "lstat",
            "makedirs",
            "mkdir",
            "mkfifo",
            "mknod",
            "open",
            "readlink",
            "remove",
            "removedirs",
        ),
        *("removexattr", "rename", "renames", "replace", "rmdir", "scandir", "setxattr", "stat", "statvfs"),
        *("symlink", "truncate", "unlink", "utime", "walk"),
    },
    "os.path": {
        *("exists", "getatime", "getctime", "getmtime", "getsize", "isdir", "isfile", "islink", "ismount"),
        *("lexists", "realpath", "samefile"),
    },
    "shutil": {
        *("chown", "copy", "copy2", "copyfile", "copymode", "copystat", "copytree", "make_archive", "move"),
        *("rmtree", "unpack_archive"),
    },
    "glob": {"glob", "iglob"},
}
METHODS = {
    *("chmod", "exists", "glob", "hardlink_to", "is_dir", "is_fifo", "is_file", "is_mount", "is_socket"),
    *("is_symlink", "iterdir", "lchmod", "lstat", "mkdir", "read_bytes", "read_text", "readlink", "rename"),
    *(
        "resolve",
        "rglob",
        "rmdir",
        "samefile",
        "stat",
        "symlink_to",
        "touch",
        "unlink",
        "walk",
        "write_bytes",
    ),
    "write_text",
}


class PathCall(NamedTuple):
    line: int
    name: str


def path_calls(source: str) -> Iterator[PathCall]:
    """Calls that take a path, also where the function is only handed on (`to_thread(shutil.rmtree, tree)`)."""
    tree = ast.parse(source)
    by_descriptor = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and BY_DESCRIPTOR & {word.arg for word in node.keywords}
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in FUNCTIONS:
            for alias in node.names:
                if alias.name in FUNCTIONS[node.module]:
                    yield PathCall(node.lineno, f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Attribute) and id(node) not in by_descriptor:
            room = ast.unparse(node.value)
            if node.attr in FUNCTIONS.get(room, ()):
                yield PathCall(node.lineno, f"{room}.{node.attr}")
        elif isinstance(node, ast.Call):
            yield from _methods(node)


def _methods(node: ast.Call) -> Iterator[PathCall]:
    """Of `pathlib.Path`, by their names; and the built-in `open`."""
    handed_on = [each for each in node.args if isinstance(each, ast.Attribute) and each.attr in METHODS]
    for each in handed_on:
        yield PathCall(each.lineno, f".{each.attr}")
    called = node.func
    if isinstance(called, ast.Name) and called.id == "open":
        yield PathCall(node.lineno, "open")
    if not isinstance(called, ast.Attribute) or ast.unparse(called.value) in FUNCTIONS:
        return
    one_word = len(node.args) == 1 and not node.keywords
    mode = len(node.args) <= 1 and all(isinstance(each, ast.Constant) for each in node.args)
    if (
        called.attr in METHODS
        or (called.attr == "replace" and one_word)
        or (called.attr == "open" and mode and ast.unparse(called.value)[0].islower())
    ):
        yield PathCall(node.lineno, f".{called.attr}")


class Allowed(NamedTuple):
    calls: frozenset[str]
    why: str


def allowed() -> dict[str, Allowed]:
    """By file. One file may stand under several reasons."""
    found: dict[str, Allowed] = {}
    places = tomllib.loads(pathlib.Path(__file__).with_name("path_calls.toml").read_text())["place"]
    for place in places:
        assert place["why"]
        for file, calls in place["files"].items():
            before = found.get(file, Allowed(frozenset(), ""))
            assert not before.calls & set(calls), f"{file}: {before.calls & set(calls)} has two reasons"
            found[file] = Allowed(before.calls | set(calls), f"{before.why} {place['why']}")
    return found


def files() -> dict[str, pathlib.Path]:
    return {
        path.relative_to(SOURCE).as_posix(): path
        for room in ROOMS
        for path in sorted((SOURCE / room).rglob("*.py"))
    }


@pytest.mark.trap("T62")
def test_no_path_leads_through_a_tree_that_a_workload_can_change() -> None:
    known = allowed()
    wrong = [
        f"{file}:{call.line}: {call.name}"
        for file, path in files().items()
        for call in path_calls(path.read_text())
        if file not in known or call.name not in known[file].calls
    ]
    assert not wrong, (
        "use corral.system.trees, or say in path_calls.toml why nobody else can change what these lead through: "
        f"{wrong}"
    )


def test_the_list_of_paths_names_nothing_that_is_gone() -> None:
    there = {file: {call.name for call in path_calls(path.read_text())} for file, path in files().items()}
    gone = {file: sorted(each.calls - there.get(file, set())) for file, each in allowed().items()}
    assert not {file: calls for file, calls in gone.items() if calls}


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        ("shutil.rmtree(tree)", "shutil.rmtree"),
        ("await asyncio.to_thread(shutil.rmtree, tree)", "shutil.rmtree"),
        ("from shutil import copy2", "shutil.copy2"),
        ("for each in os.walk(tree): pass", "os.walk"),
        ("os.chmod(tree, 0o700)", "os.chmod"),
        ("os.chown(tree / 'a', 1, 1)", "os.chown"),
        ("os.path.exists(tree)", "os.path.exists"),
        ("pathlib.Path(tree, 'a').chmod(0o700)", ".chmod"),
        ("(tree / 'a').exists()", ".exists"),
        ("list(tree.iterdir())", ".iterdir"),
        ("tree.rename(other)", ".rename"),
        ("tree.replace(other)", ".replace"),
        ("await asyncio.to_thread(tree.unlink)", ".unlink"),
        ("with (tree / 'a').open('rb') as file: pass", ".open"),
        ("with open(tree) as file: pass", "open"),
        ("descriptor = os.open(tree, os.O_RDONLY)", "os.open"),
    ],
    ids=lambda planted: planted,
)
def test_a_planted_path_is_found(planted: str, name: str) -> None:
    """In a copy of a file that has none, and is not in the list."""
    file = "daemon/prepare/packing.py"
    source = files()[file].read_text()
    assert list(path_calls(source)) == []
    assert file not in allowed()
    copied = f"{source}\n\nasync def planted(tree, other):\n    {planted}\n"
    assert [call.name for call in path_calls(copied)] == [name]


@pytest.mark.parametrize(
    "harmless",
    [
        "os.open(name, flags, dir_fd=here)",
        "os.rename(name, other, src_dir_fd=here, dst_dir_fd=there)",
        "os.fchmod(descriptor, 0o700)",
        "text.replace('a', 'b')",
        "msgspec.structs.replace(order, incarnation=1)",
    ],
)
def test_what_goes_by_descriptor_is_no_path(harmless: str) -> None:
    assert list(path_calls(harmless)) == []
