"""Pauses between attempts."""

from __future__ import annotations

import pytest

from corral.system.aio.backoff import Backoff, doubled, spread
from corral.system.entropy import SystemEntropy


def test_pauses_double_to_their_bound_and_begin_anew() -> None:
    backoff = Backoff(first=0.5, longest=3)
    assert [backoff.delay() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.delay() == 0.5


def test_with_entropy_pauses_are_spread_by_a_quarter() -> None:
    backoff = Backoff(longest=15, entropy=SystemEntropy())
    pauses = [backoff.delay() for _ in range(8)]
    for pause, nominal in zip(pauses, [1, 2, 4, 8, 15, 15, 15, 15], strict=True):
        assert nominal * 0.75 <= pause <= nominal * 1.25
    backoff.reset()
    assert backoff.delay() <= 1.25


def test_a_first_pause_is_never_longer_than_the_longest() -> None:
    assert Backoff(first=5, longest=2).delay() == 2


@pytest.mark.parametrize(
    ("times", "pause"), [(-3, 2.0), (0, 2.0), (1, 4.0), (2, 8.0), (3, 10.0), (10**9, 10.0)]
)
def test_a_pause_after_so_many_attempts(times, pause) -> None:
    assert doubled(2.0, times, longest=10.0) == pause


def test_a_spread_pause_lies_within_a_quarter() -> None:
    assert (spread(8.0, 0.0), spread(8.0, 0.5)) == (6.0, 8.0)
    assert spread(8.0, 0.999) < 10.0
