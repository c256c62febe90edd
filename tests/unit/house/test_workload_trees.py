"""No path leads through a tree that a workload can change: what is done there is done by descriptor.

Whoever follows a path as root goes where a workload leads him, for any directory on the way may be swapped for a
link. So `corral.system.trees` is the only way into such trees, and every other call in the daemon and the runtimes
that takes a path stands in `path_calls.toml`, with the reason why nobody else can change what it leads through.
"""

from __future__ import annotations

import ast
import collections
import functools
import pathlib
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "src" / "corral"
ROOMS = ("daemon", "runtimes")
ONE_PATH = frozenset({"dir_fd"})
TWO_PATHS = frozenset({"src_dir_fd", "dst_dir_fd"})
FUNCTIONS = {
    "os": {
        *("access", "chdir", "chmod", "chown", "chroot", "fwalk", "getxattr", "lchown", "link", "listdir"),
        *(
            "lchmod",
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
        *("disk_usage", "rmtree", "unpack_archive"),
    },
    "glob": {"glob", "iglob"},
    "io": {"FileIO", "open", "open_code"},
    "builtins": {"open"},
    "codecs": {"open"},
    "fileinput": {"FileInput", "input"},
    "linecache": {"getline", "getlines"},
    "tarfile": {"TarFile", "open"},
    "zipfile": {"Path", "PyZipFile", "ZipFile"},
    "sqlite3": {"connect"},
    "tempfile": {
        *("NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory", "TemporaryFile"),
        *("mkdtemp", "mkstemp", "mktemp"),
    },
}
PROGRAMS = {
    *("subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call"),
    *("subprocess.check_output", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
    *("os.system", "os.popen"),
}
CHANGING = {"chgrp", "chmod", "chown", "cp", "find", "install", "ln", "mv", "rm", "rmdir", "rsync", "tar"}
METHODS = {
    *("expanduser", "extractall", "is_block_device", "is_char_device", "link_to"),
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


@functools.cache
def path_calls(source: str) -> tuple[PathCall, ...]:
    """Calls that take a path, under whatever name their module is imported, and also where the function is only
    named to be called later (`to_thread(shutil.rmtree, tree)`, `go = tree.chmod`)."""
    return tuple(_path_calls(list(ast.walk(ast.parse(source)))))


def _path_calls(nodes: list[ast.AST]) -> Iterator[PathCall]:
    aliases = _aliases(nodes)
    calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    written = {id(each) for node in nodes for each in _not_read(node)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in FUNCTIONS:
            for alias in node.names:
                if alias.name in FUNCTIONS[node.module]:
                    yield PathCall(node.lineno, f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Attribute) and id(node) not in written:
            yield from _named(node, calls.get(id(node)), aliases)
        elif isinstance(node, ast.Call):
            yield from _called(node, aliases)


def _aliases(nodes: list[ast.AST]) -> dict[str, str]:
    """What modules are called in this file."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _not_read(node: ast.AST) -> Iterator[ast.AST]:
    """Attributes that are only set, and names of types."""
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        yield node
    for each in (getattr(node, "annotation", None), getattr(node, "returns", None)):
        if isinstance(each, ast.AST):
            yield from ast.walk(each)


def _full(node: ast.expr, aliases: dict[str, str]) -> str:
    first, dot, rest = ast.unparse(node).partition(".")
    return f"{aliases.get(first, first)}{dot}{rest}"


def _named(node: ast.Attribute, call: ast.Call | None, aliases: dict[str, str]) -> Iterator[PathCall]:
    room = _full(node.value, aliases)
    if room in FUNCTIONS:
        if node.attr in FUNCTIONS[room] and not (call is not None and _by_descriptor(call)):
            yield PathCall(node.lineno, f"{room}.{node.attr}")
    elif node.attr in METHODS or (call is not None and _is_method(node, call)):
        yield PathCall(node.lineno, f".{node.attr}")


def _by_descriptor(call: ast.Call) -> bool:
    """Every path that it takes begins at a descriptor."""
    given = {
        word.arg
        for word in call.keywords
        if not (isinstance(word.value, ast.Constant) and word.value.value is None)
    }
    return given >= TWO_PATHS or given >= ONE_PATH


def _is_method(node: ast.Attribute, call: ast.Call) -> bool:
    """Of `pathlib.Path`, where others have methods of the same name."""
    words = {word.arg for word in call.keywords}
    if node.attr == "replace":
        return (len(call.args) == 1 and not words) or words == {"target"}
    if node.attr in ("owner", "group"):
        return not call.args and not words
    return node.attr == "open" and ast.unparse(node.value)[0].islower()


def _called(node: ast.Call, aliases: dict[str, str]) -> Iterator[PathCall]:
    """What is no attribute: the built-in `open`, functions by their names, programs that change files."""
    name = _full(node.func, aliases)
    if name == "open":
        yield PathCall(node.lineno, "open")
    elif name == "getattr" and node.args and _full(node.args[0], aliases) in FUNCTIONS:
        yield PathCall(node.lineno, "getattr")
    elif name in PROGRAMS:
        words = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
        named = {
            pathlib.PurePath(word.split()[0]).name for word in words if isinstance(word, str) and word.split()
        }
        for program in sorted(named & CHANGING):
            yield PathCall(node.lineno, f"{name} {program}")


def allowed() -> dict[str, dict[str, int]]:
    """By file: each name, and how often it stands there. One file may stand under several reasons."""
    found: dict[str, dict[str, int]] = {}
    places = tomllib.loads(pathlib.Path(__file__).with_name("path_calls.toml").read_text())["place"]
    for place in places:
        assert place["why"]
        for file, calls in place["files"].items():
            before = found.setdefault(file, {})
            assert not before.keys() & calls.keys(), f"{file}: {before.keys() & calls.keys()} has two reasons"
            before |= calls
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
    wrong: list[str] = []
    for file, path in files().items():
        found = path_calls(path.read_text())
        counted = collections.Counter(call.name for call in found)
        wrong += [
            f"{file}:{call.line}: {call.name} ({counted[call.name]} in all)"
            for call in found
            if counted[call.name] > known.get(file, {}).get(call.name, 0)
        ]
    assert not wrong, (
        "use corral.system.trees, or say in path_calls.toml why nobody else can change what these lead through: "
        f"{wrong}"
    )


def test_the_list_of_paths_names_nothing_that_is_gone() -> None:
    there = {
        file: collections.Counter(call.name for call in path_calls(path.read_text()))
        for file, path in files().items()
    }
    gone = [
        f"{file}: {name} is there {there.get(file, {}).get(name, 0)} times, not {count}"
        for file, calls in allowed().items()
        for name, count in calls.items()
        if there.get(file, {}).get(name, 0) < count
    ]
    assert not gone


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
        ("import shutil as s; s.rmtree(tree)", "shutil.rmtree"),
        ("import os as o; o.walk(tree)", "os.walk"),
        ("from os import path; path.exists(tree)", "os.path.exists"),
        ("go = tree.chmod; go(0o700)", ".chmod"),
        ("f(work=tree.unlink)", ".unlink"),
        ("np = pathlib.Path.rename; np(tree, other)", ".rename"),
        ("tree.replace(target=other)", ".replace"),
        ("tree.open(mode)", ".open"),
        ("tree.owner()", ".owner"),
        ("tree.group()", ".group"),
        ("io.open(tree / 'a')", "io.open"),
        ("io.FileIO(tree)", "io.FileIO"),
        ("codecs.open(tree, 'r')", "codecs.open"),
        ("tarfile.open(tree / 'a')", "tarfile.open"),
        ("archive.extractall(tree)", ".extractall"),
        ("zipfile.ZipFile(tree / 'a')", "zipfile.ZipFile"),
        ("sqlite3.connect(tree / 'a')", "sqlite3.connect"),
        ("tempfile.mkdtemp(dir=tree)", "tempfile.mkdtemp"),
        ("getattr(os, 'walk')(tree)", "getattr"),
        ("os.stat(tree / 'a', dir_fd=None)", "os.stat"),
        ("os.rename(tree / 'a', 'x', dst_dir_fd=other)", "os.rename"),
        ("os.link(tree, other, src_dir_fd=here)", "os.link"),
        ("subprocess.run(['rm', '-rf', str(tree)])", "subprocess.run rm"),
        ("subprocess.run(f'/bin/chown -R 1 {tree}', shell=True)", "subprocess.run chown"),
        (
            "await asyncio.create_subprocess_exec('cp', '-a', tree, other)",
            "asyncio.create_subprocess_exec cp",
        ),
    ],
    ids=lambda planted: planted,
)
def test_a_planted_path_is_found(planted: str, name: str) -> None:
    """In a copy of a file that has none, and is not in the list."""
    file = "daemon/config_files/no_follow.py"
    source = files()[file].read_text()
    assert path_calls(source) == ()
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
    assert path_calls(harmless) == ()
