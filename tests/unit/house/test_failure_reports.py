"""A failure is found in the report of a run, however much the failed test wrote."""

from __future__ import annotations

import pathlib

import pytest

pytest_plugins = ["pytester"]

ROOT = pathlib.Path(__file__).resolve().parents[3]
FAILING = """
import pytest

def test_talks():
    for number in range(500):
        print("line", number)
    assert 1 == 2, "numbers differ\\nand more of it"

@pytest.fixture
def broken():
    raise RuntimeError("no such server")

def test_has_no_server(broken):
    pass
"""


def test_what_a_failed_test_wrote_is_cut_and_its_cause_comes_last(pytester: pytest.Pytester) -> None:
    """With the hooks of this project, and over its workers."""
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    pytester.path.joinpath("durations.json").write_text("{}")
    pytester.makepyfile(test_one=FAILING)
    result = pytester.runpytest_subprocess("-n", "1", "-p", "no:schemathesis")
    lines = result.outlines
    written = [line for line in lines if line.startswith("line ")]
    assert written == [f"line {number}" for number in range(440, 500)]
    assert "(440 lines before these are not shown)" in lines
    last = lines[next(number for number, line in enumerate(lines) if "what failed" in line) + 1 : -1]
    assert last == [
        "call: test_one.py::test_talks",
        "    AssertionError: numbers differ",
        "setup: test_one.py::test_has_no_server",
        "    RuntimeError: no such server",
    ]
