"""A short piece of the campaign of scaling and healing that `make soak` runs for long."""

from __future__ import annotations

import pathlib

import pytest

from campaigns.scaling import run

pytestmark = pytest.mark.system


@pytest.mark.trap("T11", "T20", "T23", "T27")
@pytest.mark.timeout(600)
async def test_players_and_numbers_hold_while_everything_is_killed(tmp_path: pathlib.Path) -> None:
    campaign = await run(tmp_path, store="sqlite", seed=7, rounds=1, round_seconds=15)
    assert campaign.rules.violations == []
    assert campaign.rules.counts["runs"] > 0
    assert campaign.rules.counts["quiet"] == 1
