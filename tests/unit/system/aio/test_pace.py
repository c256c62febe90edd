"""The pause between rounds: short while there is time, longer under load, within its bounds, and short again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.system.aio.pace import Pace, pause_after

SHORTEST, LONGEST = 0.005, 0.04


def pause(cost: float = 0.0, late: float = 0.0) -> float:
    return pause_after(cost=cost, late=late, shortest=SHORTEST, longest=LONGEST)


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


def test_one_slow_round_is_forgotten_and_lasting_load_is_not():
    pace = Pace()
    pace.ran(cost=0.008, late=0.0)
    once = pace.pause(SHORTEST, LONGEST)
    assert SHORTEST < once < 0.01
    for _ in range(20):
        pace.ran(cost=0.008, late=0.0)
    assert pace.pause(SHORTEST, LONGEST) == pytest.approx(0.032, rel=0.05)
    assert pace.pause(SHORTEST, 0.02) == 0.02
    for _ in range(20):
        pace.ran(cost=0.0001, late=0.0)
    assert pace.pause(SHORTEST, LONGEST) == SHORTEST
