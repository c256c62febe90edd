"""The glossary and the checklists: in order, complete, and every place they name exists."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[3]
GLOSSARY = (ROOT / "docs" / "concepts" / "glossary.md").read_text()
CHECKLISTS = (ROOT / "docs" / "guides" / "checklists.md").read_text()
ROWS = [line for line in GLOSSARY.splitlines() if re.match(r"\| (?!word |question )", line)]
WORDS = [row.split("|")[1].strip() for row in ROWS if row.count("|") == 4]
PLACE = re.compile(r"`((?:[a-z_]\w*/)+[\w.]*)`")
KEPT = """term ledger epoch incarnation keeper shim pump zygote spool segment plan capability scope cordon drain"""


def test_every_word_is_explained_once_and_in_order() -> None:
    assert sorted(set(WORDS), key=str.lower) == WORDS
    assert set(KEPT.split()) - set(WORDS) == set()


def test_every_word_and_question_has_a_place() -> None:
    assert [row for row in ROWS if not PLACE.search(row)] == []


@pytest.mark.parametrize("place", sorted({*PLACE.findall(GLOSSARY), *PLACE.findall(CHECKLISTS)}))
def test_every_place_exists(place: str) -> None:
    assert any((root / place).exists() for root in (ROOT, ROOT / "src" / "corral"))
