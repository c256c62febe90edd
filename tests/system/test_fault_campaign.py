"""A short piece of the fault campaign that `make soak` runs for long."""

from __future__ import annotations

import pathlib

import pytest

from campaigns.faults import run

pytestmark = pytest.mark.system


@pytest.mark.trap("T68", "T69")
@pytest.mark.timeout(300)
async def test_kills_of_everything_lose_nothing_that_is_not_told(tmp_path: pathlib.Path) -> None:
    tally = await run(tmp_path, store="sqlite", seed=3, rounds=2)
    assert tally.violations == []
    assert tally.runs > 0
