"""What is recorded about the players of instances that leave: none only where they were counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from deployed_world import DeployedWorld

from corral.controller.instances import group_changes
from corral.domain.decisions import DecisionKind
from corral.domain.planning.stops import UNKNOWN_IS_EMPTY_SECONDS


def deployed(world: DeployedWorld) -> None:
    world.deploy()


def scaled_down(world: DeployedWorld) -> None:
    world.ask(group_changes.patch_group, "lobby", {"min": 0})


@pytest.mark.parametrize("order", [deployed, scaled_down], ids=lambda order: order.__name__)
@pytest.mark.parametrize(
    ("last", "reason"),
    [(0, "it has no players left"), (None, "players unknown: nothing reports how many it has")],
)
def test_the_stop_of_an_instance_claims_no_more_about_its_players_than_is_known(
    order: Callable[[DeployedWorld], None], last: int | None, reason: str
) -> None:
    world = DeployedWorld(1)
    world.count_players("lobby-1", 3)
    order(world)
    world.live_on(60)
    world.count_players("lobby-1", last)
    world.live_on(UNKNOWN_IS_EMPTY_SECONDS + 60)
    stops = [each for each in world.made() if each.kind == DecisionKind.STOP]
    assert [each.reason for each in stops if each.subject == "lobby-1"] == [reason]


@pytest.mark.parametrize("order", [deployed, scaled_down], ids=lambda order: order.__name__)
def test_the_stop_of_an_instance_that_never_reported_players_says_that_they_are_unknown(
    order: Callable[[DeployedWorld], None],
) -> None:
    world = DeployedWorld(1)
    order(world)
    world.live_on(UNKNOWN_IS_EMPTY_SECONDS)
    (reason,) = [each.reason for each in world.made() if each.kind == DecisionKind.STOP]
    assert reason.endswith("; players unknown")
