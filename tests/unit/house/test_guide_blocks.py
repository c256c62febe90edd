"""Every block of a guide is executed or compared by `tests/system/test_guides.py`, or says why it is not."""

from __future__ import annotations

import pathlib

import pytest

from tests.system.guide_pages import KINDS, PAGES, ROOT, Block, blocks_of

MOST_NOT_RUN = 12
"""Rather rewrite a guide so that it can be run than raise this."""
MOST_PREPARED = 15
SHORTEST_REASON = 10


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


def noted(note: str) -> list[tuple[str, Block]]:
    return [(name_of(page), block) for page in PAGES for block in blocks_of(page) if note in block.notes]


@pytest.mark.trap("T96")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_guide_has_only_blocks_that_a_test_understands(page: pathlib.Path) -> None:
    text = page.read_text()
    assert len(blocks_of(page)) == text.count("\n```") // 2
    for block in blocks_of(page):
        assert block.kind in KINDS, f"line {block.line}: no test understands {block.kind}"
        if block.kind == "python":
            assert block.notes.keys() & {"into", "not run"}, f"line {block.line}: say where it goes"


@pytest.mark.trap("T96")
def test_few_blocks_are_not_run_and_each_says_why() -> None:
    skipped = noted("not run")
    assert len(skipped) <= MOST_NOT_RUN
    assert [place for place, block in skipped if len(block.notes["not run"]) < SHORTEST_REASON] == []


def test_little_is_prepared_behind_the_reader_s_back() -> None:
    assert len(noted("prepare")) <= MOST_PREPARED


def test_every_output_of_a_guide_follows_a_command() -> None:
    for page in PAGES:
        before = ""
        for block in blocks_of(page):
            if block.kind == "" and "Ctrl-C" not in block.notes:
                assert before == "sh", f"{name_of(page)}:{block.line} follows no command"
            before = block.kind
