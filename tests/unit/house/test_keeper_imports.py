"""What the keeper, its forks and the windows of sessions import: all of it, and all of it at their start.

A shim is forked from the keeper and lives as long as its run, which may be months: what it imported later it would
import from whatever version of Corral is installed by then.
"""

from __future__ import annotations

import ast
import pathlib

import corral

ROOT = pathlib.Path(corral.__file__).parents[1]
KEEPER = "corral.runtimes.keeper"
KEEPER_LIBRARY = {
    "__future__", "array", "binascii", "contextlib", "ctypes", "errno", "fcntl", "gc", "json", "os", "resource",
    "select", "signal", "socket", "struct", "sys", "termios", "time", "typing", "zlib",
}  # fmt: skip
WINDOW = "corral.runtimes.sessions.window_main"
WINDOW_LIBRARY = {
    "__future__", "contextlib", "errno", "fcntl", "os", "re", "select", "signal", "struct", "sys", "termios", "time",
    "zlib",
}  # fmt: skip
WINDOW_FILES = {f"{KEEPER}.{name}" for name in ("console_layout", "proc_facts", "run_files")} | {
    f"corral.runtimes.sessions.{name}" for name in ("console_tail", "window_file", "window_main")
}


def module_file(module: str) -> pathlib.Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def imports(module: str) -> set[str]:
    """Modules that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module_file(module).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = str(node.module)
            inner = {f"{package}.{alias.name}" for alias in node.names}
            found |= {name if module_file(name).exists() else package for name in inner}
    return found


def closure(*modules: str) -> set[str]:
    """These modules and all that they import, directly or not."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            if module.startswith("corral."):
                waiting += imports(module)
    return found


def keeper_files() -> set[str]:
    paths = (ROOT / KEEPER.replace(".", "/")).glob("*.py")
    return {f"{KEEPER}.{path.stem}" for path in paths if path.stem != "__init__"}


def test_the_keeper_imports_its_folder_and_this_part_of_the_standard_library() -> None:
    assert closure(f"{KEEPER}.keeper_main") == keeper_files() | KEEPER_LIBRARY


def test_a_window_imports_these_files_and_this_part_of_the_standard_library() -> None:
    assert closure(WINDOW) == WINDOW_FILES | WINDOW_LIBRARY


def test_neither_imports_anything_once_it_runs() -> None:
    files = sorted(keeper_files() | WINDOW_FILES)
    late = {
        module: node.lineno
        for module in files
        for statement in ast.parse(module_file(module).read_text()).body
        if not isinstance(statement, (ast.Import, ast.ImportFrom))
        for node in ast.walk(statement)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert late == {}
