"""Files and functions stay short: `tools/check_sizes.py`, run by `make check`, finds those that are not."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from seen_files import PACKAGE, ROOT, plant_empty, python_files

TOOL = ROOT / "tools" / "check_sizes.py"


def run(root: pathlib.Path) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, str(TOOL), str(root)], capture_output=True, text=True)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def plant(root: pathlib.Path, name: str, text: str) -> str:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


@pytest.fixture
def project(scratch: pathlib.Path) -> pathlib.Path:
    """A copy of this one: every file of the package, empty."""
    plant_empty(scratch, python_files(ROOT, PACKAGE))
    return scratch


def function(lines: int) -> str:
    return "def long():\n" + "    x = 1\n" * (lines - 1)


def test_what_is_as_long_as_allowed_passes(project: pathlib.Path) -> None:
    plant(project, f"{PACKAGE}/errors.py", "x = 1\n" * 400)
    plant(project, f"{PACKAGE}/version.py", function(60))
    assert run(project) == (0, [])


def test_a_long_file_is_named_with_its_lines(project: pathlib.Path) -> None:
    name = plant(project, f"{PACKAGE}/domain/planted.py", "x = 1\n" * 401)
    assert run(project) == (1, [f"{name}:1: 401 lines; a file has at most 400"])


def test_a_long_function_is_named_with_its_place_and_lines(project: pathlib.Path) -> None:
    name = plant(project, f"{PACKAGE}/domain/planted.py", f"x = 1\n\n\n@staticmethod\n{function(61)}")
    assert run(project) == (1, [f"{name}:5: long has 61 lines; a function has at most 60"])


def test_no_folder_is_skipped_by_its_name(project: pathlib.Path) -> None:
    skipped = ("node_modules", "build", "dist", "vendor", "env")
    names = {plant(project, f"{PACKAGE}/{folder}/planted.py", "x = 1\n" * 401) for folder in skipped}
    code, found = run(project)
    assert (code, {line.partition(":")[0] for line in found}) == (1, names)


def test_generated_code_may_be_long(project: pathlib.Path) -> None:
    plant(project, f"{PACKAGE}/wire/v1/link_pb2.py", "x = 1\n" * 401)
    assert run(project) == (0, [])


def test_a_long_method_inside_a_class_is_found(project: pathlib.Path) -> None:
    body = "".join(f"    {line}\n" for line in function(61).splitlines())
    name = plant(project, f"{PACKAGE}/domain/planted.py", f"class A:\n{body}")
    assert run(project) == (1, [f"{name}:2: long has 61 lines; a function has at most 60"])
