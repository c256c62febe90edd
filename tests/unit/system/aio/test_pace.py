"""The pause between rounds: short while there is time, longer under load, within its bounds, and short again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.system.aio.pace import Pace, pause_after

SHORTEST, LONGEST = 0.005, 0.04


def pause(cost: float = 0.0, late: float = 0.0) -> float:
    return pause_after(cost=cost, late=late, per_cost=4, shortest=SHORTEST, longest=LONGEST)


@pytest.mark.parametrize(("cost", "late"), [(0.0, 0.0), (0.0002, 0.0), (0.001, 0.001), (0.0, 0.002)])
def test_idle_rounds_follow_at_the_shortest_pause(cost, late):
    assert pause(cost, late) == SHORTEST


def test_rounds_that_take_long_or_begin_late_follow_after_longer_pauses():
    assert pause(cost=0.004) == pytest.approx(0.016)
    assert pause(late=0.006) == pytest.approx(0.016)
    assert pause(cost=0.004, late=0.006) == pytest.approx(0.032)
    assert pause(cost=0.02) == pause(late=0.1) == pause(cost=9, late=9) == LONGEST


seconds = st.floats(min_value=0, max_value=10)


@given(seconds, seconds, seconds, seconds)
def test_more_load_never_shortens_a_pause(cost, late, more_cost, more_late):
    assert SHORTEST <= pause(cost, late) <= pause(cost + more_cost, late + more_late) <= LONGEST


class Rounds:
    """Rounds of one length, each after the pause."""

    def __init__(self) -> None:
        self.pace = Pace(per_cost=4, shortest=SHORTEST, longest=LONGEST)
        self.now = 1000.0

    def run(self, number: int, *, cost: float, late: float = 0.0, every: float | None = None) -> float:
        for _ in range(number):
            due = self.now + (self.pace.pause if every is None else every)
            began = due + late
            self.now = began + cost
            self.pace.ran(due=due, began=began, cost=cost)
        return self.pace.pause


def test_one_slow_round_is_forgotten_and_lasting_load_is_not():
    rounds = Rounds()
    assert SHORTEST < rounds.run(1, cost=0.008) < 0.01
    assert rounds.run(20, cost=0.008) == pytest.approx(0.032, rel=0.05)
    assert rounds.run(20, cost=0.0001) == SHORTEST
    assert rounds.run(20, cost=0.0001, late=0.008) == pytest.approx(0.024, rel=0.1)
    assert rounds.run(30, cost=0.02, late=0.05) == LONGEST


def test_many_small_rounds_count_as_the_load_they_are_together():
    assert Rounds().run(500, cost=0.001, every=0.001) == LONGEST, (
        "half of a core, with rests of a millisecond"
    )
    assert Rounds().run(500, cost=0.0001, every=0.001) == SHORTEST, "a tenth"
