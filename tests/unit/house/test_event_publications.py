"""Every declared type of event is really published: by code of ours, and in a test that finds it."""

from __future__ import annotations

import ast
import pathlib
import re
import tomllib

import pytest

from corral.domain.events import EventType

ROOT = pathlib.Path(__file__).resolve().parents[3]
TABLE = pathlib.Path(__file__).with_name("published_events.toml")
ROWS: dict[str, dict[str, list[str]]] = tomllib.loads(TABLE.read_text())
DECLARED = ("domain/events.py", "domain/event_schemas", "domain/field_classes", "domain/event_subjects.py")
"""Where types are described, and nothing is published."""


@pytest.mark.trap("T91")
def test_every_type_has_a_test_that_shows_its_publication_and_no_other_is_listed() -> None:
    listed = [type for tests in ROWS.values() for types in tests.values() for type in types]
    assert sorted(listed) == sorted(EventType), f"add the new type to {TABLE.name}"


@pytest.mark.parametrize("file", ROWS)
def test_the_tests_that_show_a_publication_exist_and_name_the_type(file: str) -> None:
    source = (ROOT / "tests" / file).read_text()
    tree = ast.parse(source)
    functions = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    shared = [node for node in tree.body if node not in functions.values()]
    helpers = [node for name, node in functions.items() if not name.startswith("test_")]
    for test, types in ROWS[file].items():
        assert test in functions, f"{file} has no {test}"
        words = set(re.findall("[A-Z_]+", " ".join(map(ast.unparse, [functions[test], *shared, *helpers]))))
        for type in types:
            spelled = {type, type.removeprefix("INSTANCE_")}  # of a list of states
            assert spelled & words, f"{test} does not name {type}"


@pytest.mark.trap("T91")
def test_code_of_ours_publishes_every_type() -> None:
    used: set[str] = set()
    for path in sorted((ROOT / "src" / "corral").rglob("*.py")):
        where = path.relative_to(ROOT / "src" / "corral").as_posix()
        if not where.startswith(DECLARED):
            used |= set(re.findall(r"EventType\.([A-Z_]+)", path.read_text()))
    assert sorted(set(EventType) - used) == [], "nothing publishes it"
