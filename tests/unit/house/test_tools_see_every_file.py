"""Every test file is collected and every source file is linted: tools skip folders by their name, silently."""

from __future__ import annotations

import ast
import importlib.util
import pathlib
import subprocess
import sys
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CODE = ("src", "sdk", "modules", "examples", "tests", "benchmarks", "tools")
GENERATED = "src/corral/wire/v1/"
PYTEST_SETTINGS = """
[tool.pytest.ini_options]
testpaths = ["tests"]
markers = ["trap(*ids): closes these traps"]
"""
A_TEST = 'import pytest\n\n\n@pytest.mark.trap("T61")\ndef test_it() -> None:\n    pass\n'


@pytest.fixture(scope="module")
def traps() -> ModuleType:
    spec = importlib.util.spec_from_file_location("list_traps", ROOT / "tools" / "list_traps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def collected(traps: ModuleType) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = traps.collect(ROOT)
    return found


def files_with_tests(root: pathlib.Path) -> set[str]:
    return {str(path.relative_to(root)) for path in (root / "tests").rglob("test_*.py")}


def python_files(root: pathlib.Path) -> set[str]:
    """What there is, by the file system itself: a tool's own idea of it is what is checked here."""
    found = {str(path.relative_to(root)) for room in CODE for path in (root / room).rglob("*.py")}
    return {name for name in found if not name.startswith(GENERATED) and "/__pycache__/" not in name}


def linted(root: pathlib.Path) -> set[str]:
    command = [sys.executable, "-m", "ruff", "check", "--show-files", "."]
    said = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return {str(pathlib.Path(line).relative_to(root)) for line in said.splitlines()}


def trap_marks(path: pathlib.Path) -> set[tuple[str, str]]:
    """(test function, trap) of each mark in the text of a file, collected or not."""
    return {
        (node.name, ast.literal_eval(argument))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.trap"
        for argument in decorator.args
    }


@pytest.mark.trap("T61")
def test_pytest_collects_every_test_file(collected: dict[str, dict[str, list[str]]]) -> None:
    assert sorted(files_with_tests(ROOT) - set(collected)) == []


@pytest.mark.trap("T61")
def test_every_trap_mark_stands_on_a_collected_test(collected: dict[str, dict[str, list[str]]]) -> None:
    lost = [
        f"{name}::{test} ({trap})"
        for name in sorted(files_with_tests(ROOT))
        for test, trap in sorted(trap_marks(ROOT / name))
        if trap not in collected.get(name, {}).get(test, [])
    ]
    assert lost == []


@pytest.mark.trap("T61")
def test_ruff_lints_every_source_file() -> None:
    assert sorted(python_files(ROOT) - linted(ROOT)) == []


@pytest.mark.parametrize("folder", ["node_modules", "build", "dist"])
def test_a_test_in_a_folder_that_pytest_skips_is_found_missing(
    folder: str, traps: ModuleType, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(PYTEST_SETTINGS)
    for place in (tmp_path / "tests" / "seen", tmp_path / "tests" / folder):
        place.mkdir(parents=True)
        (place / f"test_in_{place.name}.py").write_text(A_TEST)
    collection = traps.collect(tmp_path)
    assert collection == {"tests/seen/test_in_seen.py": {"test_it": ["T61"]}}
    assert files_with_tests(tmp_path) - set(collection) == {f"tests/{folder}/test_in_{folder}.py"}


def test_a_source_file_in_a_folder_that_ruff_skips_is_found_missing(tmp_path: pathlib.Path) -> None:
    for name in ("src/seen/a.py", "src/node_modules/b.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("x = 1\n")
    assert python_files(tmp_path) - linted(tmp_path) == {"src/node_modules/b.py"}
