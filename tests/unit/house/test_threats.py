"""The page about threats: each row names the tests that try it, these exist, and each attacker has something that remains."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "concepts" / "threats.md").read_text()
SECTIONS = {
    title: body
    for title, _, body in (part.partition("\n") for part in PAGE.split("\n## ")[1:])
    if title != "Not covered"
}
TEST = re.compile(r"`((?:unit|component|contract|system|browser)/[a-z0-9_/]+\.py)`")


def rows(body: str) -> list[list[str]]:
    """The cells of each row of its tables, without heads and rules."""
    lines = [
        line for line in body.splitlines() if line.startswith("| ") and not line.endswith("| tested in |")
    ]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("name", sorted(set(TEST.findall(PAGE))))
def test_a_test_that_the_page_names_exists(name: str) -> None:
    assert (ROOT / "tests" / name).is_file()


@pytest.mark.parametrize("title", SECTIONS)
def test_each_attacker_has_tests_and_something_that_remains(title: str) -> None:
    body = SECTIONS[title]
    assert TEST.findall(body)
    assert "Remains:" in body or "Nothing stops it" in body


def test_each_row_says_what_stops_it_and_where_that_is_tried() -> None:
    found = [row for body in SECTIONS.values() for row in rows(body)]
    assert len(found) > 50
    assert [row for row in found if len(row) != 3 or not TEST.findall(row[2])] == []
