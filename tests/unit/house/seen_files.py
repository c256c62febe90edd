"""Which files of a project there are, and which of them each tool sees.

What there is comes from the file system itself. What a tool sees comes from the tool, with the settings of the
project: each skips some folders by their name, without a word.
"""

from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
CODE = ("src", "sdk", "modules", "examples", "tests", "benchmarks", "campaigns", "tools")
PACKAGE = "src/corral"
GENERATED = "src/corral/wire/v1/"

LINT_IMPORTS = ("-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache")
_TYPED = """
import json
from mypy.main import process_options
sources, options = process_options([])
print(json.dumps([s.path for s in sources if not options.clone_for_module(s.module).ignore_errors]))
"""
_IMPORTED = """
import json, grimp
print(json.dumps(sorted(grimp.build_graph("corral", cache_dir=None).modules)))
"""


def files_with_tests(root: pathlib.Path) -> set[str]:
    return {str(path.relative_to(root)) for path in (root / "tests").rglob("test_*.py")}


def python_files(root: pathlib.Path, *rooms: str) -> set[str]:
    """Of these folders, of all that have code unless some are named; without what is generated."""
    found = {str(path.relative_to(root)) for room in rooms or CODE for path in (root / room).rglob("*.py")}
    return {name for name in found if not name.startswith(GENERATED) and "/__pycache__/" not in name}


def plant_empty(root: pathlib.Path, names: set[str]) -> None:
    """Empty files of these names, in a tree without any."""
    for folder in {(root / name).parent for name in names}:
        folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (root / name).touch()


def places_of_code(root: pathlib.Path) -> set[str]:
    """The folders at the top that hold Python files, without those that no commit holds."""
    ignored = {line.strip("/") for line in (root / ".gitignore").read_text().splitlines()}
    places = [place for place in root.iterdir() if place.is_dir() and not place.name.startswith(".")]
    return {place.name for place in places if place.name not in ignored and next(place.rglob("*.py"), None)}


def linted(root: pathlib.Path) -> set[str]:
    said = _output(root, "-m", "ruff", "check", "--show-files", ".")
    return {str(pathlib.Path(line).relative_to(root)) for line in said.splitlines()}


def typed(root: pathlib.Path) -> set[str]:
    """What mypy is asked to check, without what it checks and says nothing about."""
    return {os.path.relpath(root / path, root) for path in json.loads(_output(root, "-c", _TYPED))}


def imported(root: pathlib.Path) -> set[str]:
    """The modules of the package whose imports import-linter knows, as files."""
    found = set()
    for module in json.loads(_output(root, "-c", _IMPORTED)):
        path = root / "src" / module.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        found.add(str(file.relative_to(root)))
    return found


class TrapMarks:
    """The marks in the text of a file, collected or not: on functions, and wherever else they stand."""

    def __init__(self, path: pathlib.Path) -> None:
        text = path.read_text()
        every = list(ast.walk(ast.parse(text))) if "mark.trap" in text else []
        self.functions: set[tuple[str, str]] = {
            (node.name, trap)
            for node in every
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for decorator in node.decorator_list
            for trap in _traps(decorator)
        }
        self.traps: set[str] = {trap for node in every for trap in _traps(node)}


def _traps(node: ast.AST) -> list[str]:
    """What a mark names; nothing for what is computed."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.trap":
        return [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    return []


def run_tool(root: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a project; the package it finds is the one there, not the installed one."""
    env = {**os.environ, "PYTHONPATH": str(root / "src")}
    return subprocess.run([sys.executable, *arguments], cwd=root, env=env, capture_output=True, text=True)


def _output(root: pathlib.Path, *arguments: str) -> str:
    done = run_tool(root, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
