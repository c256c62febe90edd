"""The pause between rounds: short while there is time, longer under load, within its bounds, and short again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.system.aio.pace import Pace, pause_after

SHORTEST, LONGEST = 0.005, 0.04


def pause(cost: float) -> float:
    return pause_after(cost=cost, per_cost=4, shortest=SHORTEST, longest=LONGEST)


@pytest.mark.parametrize("cost", [0.0, 0.0002, 0.001])
def test_cheap_rounds_follow_at_the_shortest_pause(cost):
    assert pause(cost) == SHORTEST


def test_dear_rounds_follow_after_longer_pauses():
    assert pause(0.004) == pytest.approx(0.016)
    assert pause(0.02) == pause(9) == LONGEST


seconds = st.floats(min_value=0, max_value=10)


@given(seconds, seconds)
def test_more_load_never_shortens_a_pause(cost, more):
    assert SHORTEST <= pause(cost) <= pause(cost + more) <= LONGEST


class Rounds:
    """Rounds of one cost, each after the pause, or more often."""

    def __init__(self) -> None:
        self.pace = Pace(per_cost=4, shortest=SHORTEST, longest=LONGEST)
        self.now = 1000.0

    def run(self, number: int, *, cost: float, every: float | None = None) -> float:
        for _ in range(number):
            self.now += self.pace.pause if every is None else every
            self.pace.ran(began=self.now, cost=cost)
        return self.pace.pause


def test_one_dear_round_is_forgotten_and_lasting_load_is_not():
    rounds = Rounds()
    assert SHORTEST < rounds.run(1, cost=0.008) < 0.01
    assert rounds.run(20, cost=0.008) == pytest.approx(0.032, rel=0.05)
    assert rounds.run(20, cost=0.0001) == SHORTEST
    assert rounds.run(30, cost=0.02) == LONGEST


def test_many_small_rounds_count_as_the_load_they_are_together():
    assert Rounds().run(500, cost=0.001, every=0.002) == LONGEST, "half of a core"
    assert Rounds().run(500, cost=0.0001, every=0.001) == SHORTEST, "a tenth"
