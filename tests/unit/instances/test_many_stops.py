"""Many stops at once: a pass makes some of them, the next ones the rest."""

from __future__ import annotations

import pytest
from reconciled_world import ReconciledWorld

from corral.controller.instances import group_changes
from corral.domain.ids import NodeId
from corral.domain.instance_states import Wanted
from corral.domain.planning.planner import DEFAULT_LIMITS, SHOWN_LIMITS, plan

MANY = 120


class CrowdedWorld(ReconciledWorld):
    """A group with many instances, and the number of stops of each commit."""

    def __init__(self) -> None:
        self.stops: list[int] = []
        super().__init__()
        for number in range(3, 11):
            self.add_node(NodeId(f"n{number}"))
            self.connected.add(f"n{number}")
        self.create("lobby", min=0, memory_mb=1, max_players=20)
        self.ask(group_changes.scale_group, "lobby", MANY)
        while self.serving("lobby") < MANY:
            self.live_on(1)
        self.live_on(1)

    async def _commit(self, *steps: object) -> None:
        before = self.leaving()
        await super()._commit(*steps)
        self.stops += [self.leaving() - before] if self.leaving() > before else []

    def leaving(self) -> int:
        there = (each.record for each in self.state.instances.of_group("lobby"))
        return sum(each.wanted is not Wanted.RUN for each in there)


@pytest.mark.parametrize("order", ["scale", "hold", "players"])
def test_a_pass_stops_no_more_than_it_may_and_the_next_ones_the_rest(order: str) -> None:
    world = CrowdedWorld()
    if order == "hold":
        world.ask(group_changes.hold_group, "lobby", by="ada", reason="attack", when_empty=False)
    else:
        for each in world.state.instances.of_group("lobby") if order == "players" else ():
            world.count_players(each.record.id, 2)
        world.ask(group_changes.scale_group, "lobby", 0)
    shown = plan(world.signals_of_term.view(world.workspace()), ["lobby"], SHOWN_LIMITS)
    assert sum(bool(each.instance) for each in shown.decisions) == MANY
    world.settle()
    assert world.stops == [DEFAULT_LIMITS.stops, DEFAULT_LIMITS.stops, MANY - 2 * DEFAULT_LIMITS.stops]
    world.look_at_everything()
    world.settle()
    assert len(world.stops) == 3
