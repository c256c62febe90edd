"""Every test file is collected and every source file checked: tools skip folders by their name, silently.

Each tool is asked what it sees in this project, and faults are planted in small copies of it, with its settings:
a check that could not fail would guard nothing.
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
import shlex
import shutil
import subprocess
import tomllib
from types import ModuleType
from typing import Any

import pytest
from _pytest.mark.expression import Expression
from seen_files import (
    CODE,
    LINT_IMPORTS,
    PACKAGE,
    ROOT,
    TrapMarks,
    files_with_tests,
    imported,
    linted,
    places_of_code,
    plant_empty,
    python_files,
    run_tool,
    typed,
)

pytestmark = pytest.mark.timeout(600)  # all tests are collected once, which takes its time on a busy machine

Collected = dict[str, dict[str, list[str]]]

CONTRACTS = "src/corral/testing"
"""Tests that the package ships: they are collected where a test file derives from them."""
A_TEST = 'import pytest\n\n\n@pytest.mark.trap("T61")\ndef test_it() -> None:\n    pass\n'
TYPED = (PACKAGE, "benchmarks", "campaigns", "tools")
EXEMPTED = re.compile(r"^\s*# *(mypy: |ruff: noqa|flake8: noqa|type: ignore)", flags=re.M)


@pytest.fixture(scope="module")
def traps() -> ModuleType:
    spec = importlib.util.spec_from_file_location("list_traps", ROOT / "tools" / "list_traps.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_file(tests: list[Any]) -> Collected:
    """File → test function → the traps that its cases close together."""
    found: Collected = {}
    for test in tests:
        traps = found.setdefault(test.file, {}).setdefault(test.name, [])
        traps += [trap for trap in test.traps if trap not in traps]
    return found


@pytest.fixture(scope="module")
def cases(traps: ModuleType, all_items: list[pytest.Item] | None) -> list[Any]:
    """From this very run, if it is one of all tests: to collect them again takes many seconds."""
    found: list[Any] = traps.collect(ROOT) if all_items is None else [*map(traps.facts_of, all_items)]
    return found


@pytest.fixture(scope="module")
def collected(cases: list[Any]) -> Collected:
    return by_file(cases)


@pytest.fixture
def project(scratch: pathlib.Path) -> pathlib.Path:
    """A copy of this one: its settings, and every file that mypy checks, empty."""
    shutil.copy(ROOT / "pyproject.toml", scratch)
    plant_empty(scratch, python_files(ROOT, *TYPED))
    return scratch


def plant(root: pathlib.Path, name: str, text: str) -> str:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


def lost_marks(root: pathlib.Path, collected: Collected) -> list[str]:
    """Marks in the text of test files that stand on nothing that is collected."""
    lost = []
    for name in sorted(files_with_tests(root)):
        tests, marks = collected.get(name, {}), TrapMarks(root / name)
        closed = {trap for found in tests.values() for trap in found}
        lost += [f"{name} ({trap})" for trap in sorted(marks.traps - closed)]
        marked = sorted(marks.functions)
        lost += [f"{name}::{test} ({trap})" for test, trap in marked if trap not in tests.get(test, [])]
    return lost


@pytest.mark.trap("T61")
def test_every_folder_with_code_is_known_here() -> None:
    assert sorted(places_of_code(ROOT) - set(CODE)) == []


@pytest.mark.trap("T61")
def test_pytest_collects_every_test_file(collected: Collected) -> None:
    assert sorted(files_with_tests(ROOT) - set(collected)) == []


@pytest.mark.trap("T61")
def test_every_trap_mark_stands_on_a_collected_test(collected: Collected) -> None:
    assert lost_marks(ROOT, collected) == []


@pytest.mark.trap("T61")
def test_every_trap_mark_of_a_shipped_contract_stands_on_a_collected_test(collected: Collected) -> None:
    closed = {(test, trap) for tests in collected.values() for test, traps in tests.items() for trap in traps}
    marked = {mark for name in python_files(ROOT, CONTRACTS) for mark in TrapMarks(ROOT / name).functions}
    assert sorted(marked - closed) == []


def chosen(target: str, makefile: pathlib.Path) -> str:
    """Which tests a target of the Makefile asks pytest for."""
    command = ["make", "--dry-run", "--file", str(makefile), target]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    (line,) = [line for line in said.splitlines() if " -m pytest " in line]
    words = shlex.split(line)
    return words[words.index("-m", words.index("pytest")) + 1]


def wrongly_chosen(cases: list[Any], *expressions: str) -> set[str]:
    """The tests that are chosen by none of these expressions, or by several."""
    compiled = [Expression.compile(each) for each in expressions]

    def times(case: Any) -> int:
        return sum(each.evaluate(lambda name, **_: name in case.marks) for each in compiled)

    return {f"{case.file}::{case.name}" for case in cases if times(case) != 1}


@pytest.mark.trap("T61")
def test_every_test_is_run_by_either_make_test_or_make_system(cases: list[Any]) -> None:
    expressions = [chosen(target, ROOT / "Makefile") for target in ("test", "system")]
    assert wrongly_chosen(cases, *expressions) == set()


def test_a_test_that_no_target_runs_or_both_do_is_found(cases: list[Any], tmp_path: pathlib.Path) -> None:
    text = (ROOT / "Makefile").read_text()
    for change in ("not (system or trap)", "not system or trap"):
        makefile = tmp_path / "Makefile"
        makefile.write_text(text.replace("not system", change))
        assert wrongly_chosen(cases, *(chosen(target, makefile) for target in ("test", "system")))


@pytest.mark.trap("T61")
def test_ruff_lints_every_source_file() -> None:
    assert sorted(python_files(ROOT) - linted(ROOT)) == []


@pytest.mark.trap("T61")
def test_mypy_checks_every_file_but_those_of_tests_and_modules() -> None:
    assert sorted(python_files(ROOT, *TYPED) - typed(ROOT)) == []


@pytest.mark.trap("T61")
def test_import_linter_knows_every_file_of_the_package() -> None:
    assert sorted(python_files(ROOT, PACKAGE) - imported(ROOT)) == []


@pytest.mark.trap("T61")
def test_no_file_exempts_itself_as_a_whole() -> None:
    own = str(pathlib.Path(__file__).relative_to(ROOT))
    names = python_files(ROOT) - {own}
    assert sorted(name for name in names if EXEMPTED.search((ROOT / name).read_text())) == []


def test_what_pytest_does_not_collect_is_found(traps: ModuleType, tmp_path: pathlib.Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    seen = plant(tmp_path, "tests/seen/test_seen.py", A_TEST)
    skipped = {
        plant(tmp_path, f"tests/{folder}/test_in_{folder}.py", A_TEST)
        for folder in ("node_modules", "build", "dist")
    }
    lost = {
        plant(tmp_path, f"tests/test_{name}.py", text)
        for name, text in {
            "helper": A_TEST.replace("def test_it", "def helper"),
            "replaced": A_TEST + "\n\ndef test_it() -> None:\n    pass\n",
            "file": 'import pytest\n\npytestmark = pytest.mark.trap("T61")\n',
            "class": 'import pytest\n\n\n@pytest.mark.trap("T61")\nclass Cases:\n    def test_it(self): ...\n',
        }.items()
    }
    collection = by_file(traps.collect(tmp_path))
    assert collection == {seen: {"test_it": ["T61"]}, "tests/test_replaced.py": {"test_it": []}}
    assert files_with_tests(tmp_path) - set(collection) == (skipped | lost) - {"tests/test_replaced.py"}
    found = lost_marks(tmp_path, collection)
    assert {line for line in found if "::" not in line} == {f"{name} (T61)" for name in skipped | lost}
    assert {line for line in found if "::" in line} == {
        *(f"{name}::test_it (T61)" for name in skipped | {"tests/test_replaced.py"}),
        "tests/test_helper.py::helper (T61)",
    }


def test_a_fault_in_any_folder_is_found_by_ruff(project: pathlib.Path) -> None:
    faults = [plant(project, f"{folder}/corral/planted.py", "import os\n") for folder in CODE]
    found = run_tool(project, "-m", "ruff", "check", "--no-cache", "--output-format", "concise", ".")
    assert found.returncode == 1
    assert [name for name in faults if f"{name}:1:8: F401" not in found.stdout] == []


def test_a_source_file_in_a_folder_that_ruff_skips_is_found_missing(tmp_path: pathlib.Path) -> None:
    plant(tmp_path, "src/seen/a.py", "x = 1\n")
    skipped = plant(tmp_path, "src/node_modules/b.py", "x = 1\n")
    assert python_files(tmp_path) - linted(tmp_path) == {skipped}


def test_a_fault_of_types_is_found_by_mypy(project: pathlib.Path) -> None:
    rooms = sorted(path.parent for path in (project / PACKAGE).glob("*/__init__.py"))
    rooms += [project / place for place in TYPED[1:]]
    faults = [plant(project, f"{room.relative_to(project)}/planted.py", 'x: int = ""\n') for room in rooms]
    found = run_tool(project, "-m", "mypy", "--cache-dir", "/dev/null")
    assert found.returncode == 1
    assert [name for name in faults if f"{name}:1: error" not in found.stdout] == []


def test_a_source_file_that_mypy_skips_is_found_missing(project: pathlib.Path) -> None:
    skipped = plant(project, f"{PACKAGE}/node_modules/planted.py", "")
    assert python_files(project, PACKAGE) - typed(project) == {skipped}


def test_a_source_file_of_which_mypy_says_nothing_is_found_missing(project: pathlib.Path) -> None:
    settings = (project / "pyproject.toml").read_text()
    ignoring = '[[tool.mypy.overrides]]\nmodule = ["corral.errors"]\nignore_errors = true\n'
    plant(project, "pyproject.toml", f"{settings}\n{ignoring}")
    assert python_files(project, PACKAGE) - typed(project) == {f"{PACKAGE}/errors.py"}


def test_a_forbidden_import_breaks_each_contract(project: pathlib.Path) -> None:
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    kept = run_tool(project, *LINT_IMPORTS)
    assert kept.returncode == 0, kept.stdout
    for contract in contracts:
        importer, module = forbidden_import(contract)
        with module_file(project, importer).open("a") as file:
            file.write(f"import {module}\n")
    broken = run_tool(project, *LINT_IMPORTS)
    assert broken.returncode == 1
    assert re.findall(r"^(.+) BROKEN$", broken.stdout, flags=re.M) == [each["name"] for each in contracts]


def forbidden_import(contract: dict[str, Any]) -> tuple[str, str]:
    """A module, and what it must not import by this contract."""
    match contract:
        case {"type": "layers", "layers": [highest, *_, lowest]}:
            above = "".join(f"{container}." for container in contract.get("containers", [])[:1])
            return above + lowest.split()[0], above + highest.split()[0]
        case {"type": "independence", "modules": [module, other, *_]}:
            return other, module
        case {"type": "forbidden", "source_modules": [module, *_], "forbidden_modules": [other, *_]}:
            return module, other
        case {"type": "protected", "protected_modules": [module, *_]}:
            return "corral.errors", module
    raise AssertionError(f"say here what breaks a contract like {contract['name']!r}")


def module_file(root: pathlib.Path, module: str) -> pathlib.Path:
    path = root / "src" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_source_files_that_import_linter_skips_are_found_missing(project: pathlib.Path) -> None:
    skipped = {
        plant(project, f"{PACKAGE}/{place}/planted.py", "import corral.cli\n")
        for place in ("no_package", "node-modules", "a.b")
    }
    assert python_files(project, PACKAGE) - imported(project) == skipped
