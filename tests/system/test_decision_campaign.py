"""A short piece of the campaign of decisions that `make soak` runs for long."""

from __future__ import annotations

import pathlib

import pytest

from campaigns.decisions import run

pytestmark = pytest.mark.system


@pytest.mark.trap("T20", "T21", "T27")
@pytest.mark.timeout(600)
async def test_what_operators_decide_holds_while_everything_is_killed(tmp_path: pathlib.Path) -> None:
    campaign = await run(tmp_path, store="sqlite", seed=5, rounds=2, round_seconds=5, floor_seconds=3)
    assert campaign.rules.violations == []
    assert campaign.rules.counts["starts"] > 0
    assert campaign.rules.counts["quiet"] == 1
