"""A short piece of the campaign of drains and deployments that `make soak` runs for long."""

from __future__ import annotations

import pathlib

import pytest

from campaigns.changes import run

pytestmark = pytest.mark.system


@pytest.mark.trap("T11", "T90")
@pytest.mark.timeout(600)
async def test_players_floors_and_worlds_hold_while_nodes_are_emptied_and_versions_deployed(
    tmp_path: pathlib.Path,
) -> None:
    campaign = await run(tmp_path, store="sqlite", seed=7, rounds=2, round_seconds=15)
    assert campaign.rules.violations == []
    assert campaign.rules.counts["runs"] > 0
    assert campaign.rules.counts["floors"] > 0
    assert campaign.rules.counts["rounds"] == 2
