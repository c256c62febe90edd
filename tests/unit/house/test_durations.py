"""How long test files take is measured by a command, and says which are started first."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from types import ModuleType

import pytest

pytest_plugins = ["pytester"]

ROOT = pathlib.Path(__file__).resolve().parents[3]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.test_one" name="test_a" time="1.25"/>
<testcase classname="tests.unit.test_one.TestClass" name="test_b[x]" time="2.5"/>
<testcase classname="tests.unit.test_gone" name="test_c" time="7"/>
</testsuite></testsuites>"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("update_durations", ROOT / "tools" / "update_durations.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    for name in ("one", "two"):
        (tmp_path / "tests" / "unit" / f"test_{name}.py").touch()
    (tmp_path / "report.xml").write_text(REPORT)
    return tmp_path


def test_the_tests_of_a_file_are_added_up(tool: ModuleType, project: pathlib.Path) -> None:
    assert tool.measured(project / "report.xml", project) == {"tests/unit/test_one.py": 3.75}


def test_what_was_not_measured_keeps_its_figure_and_what_is_gone_goes(
    tool: ModuleType, project: pathlib.Path
) -> None:
    known = {"tests/unit/test_two.py": 4.0, "tests/unit/test_one.py": 9.0, "tests/unit/test_gone.py": 1.0}
    merged = tool.merged(known, {"tests/unit/test_one.py": 3.75}, project)
    assert list(merged.items()) == [("tests/unit/test_one.py", 3.8), ("tests/unit/test_two.py", 4.0)]


def test_the_figures_of_this_project_are_sorted_seconds_by_file() -> None:
    known = json.loads((ROOT / "tests" / "durations.json").read_text())
    assert list(known) == sorted(known)
    assert all(name.endswith(".py") and seconds >= 0 for name, seconds in known.items())


def test_workers_take_the_longest_files_first(pytester: pytest.Pytester) -> None:
    """With the hook and the settings of this project; one worker tells the order."""
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    files = {f"test_{name}": "def test_it(): ..." for name in ("quick", "long", "longer")}
    pytester.makepyfile(**files, test_new="def test_it(): ...")
    seconds = {"test_quick.py": 0.1, "test_long.py": 60.0, "test_longer.py": 61.0}
    (pytester.path / "durations.json").write_text(json.dumps(seconds))
    command = ["-v", "-n", "1", "--dist", "loadfile", "--no-loadscope-reorder"]
    result = pytester.runpytest_subprocess(*command, "-p", "no:schemathesis", "-p", "no:randomly")
    result.stdout.fnmatch_lines(
        [f"*PASSED test_{name}.py::test_it*" for name in ("longer", "long", "new", "quick")]
    )
