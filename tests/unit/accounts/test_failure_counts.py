"""Counts of failures: delays, bounds, and who makes room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.controller.accounts.failure_counts import (
    FORGOTTEN_SECONDS,
    FREE_FAILURES,
    IN_FLIGHT_SECONDS,
    LONGEST_DELAY_SECONDS,
    FailureCounts,
    delay_after,
)

EVENTS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from([0.0, 1.0, 31.0, 400.0, 5000.0])), max_size=200
)


def test_the_fifth_failure_delays_by_half_a_minute_and_each_further_one_doubles_it() -> None:
    delays = [delay_after(count) for count in range(1, 14)]
    assert delays == [0, 0, 0, 0, 30, 60, 120, 240, 480, 900, 900, 900, 900]
    assert delay_after(10**9) == LONGEST_DELAY_SECONDS


def test_one_attempt_is_admitted_when_the_delay_is_over_and_its_failure_doubles_it() -> None:
    counts: FailureCounts[str] = FailureCounts(most=10)
    for _ in range(FREE_FAILURES):
        assert counts.wait("a", 100.0) == 0
        counts.add("a", 100.0)
    assert counts.wait("a", 100.0) == 30
    assert counts.wait("a", 129.0) == 1
    assert counts.wait("a", 130.0) == 0
    with counts.in_flight("a"):
        assert counts.wait("a", 130.0) == IN_FLIGHT_SECONDS, "one at a time"
    counts.add("a", 130.0)
    assert counts.wait("a", 130.0) == 60


def test_attempts_in_flight_count_as_if_they_failed() -> None:
    counts: FailureCounts[str] = FailureCounts(most=10)
    counts.add("a", 0.0)
    with counts.in_flight("a"), counts.in_flight("a"), counts.in_flight("a"):
        assert counts.wait("a", 0.0) == 0
        with counts.in_flight("a"):
            assert counts.wait("a", 0.0) == IN_FLIGHT_SECONDS
            assert counts.wait("b", 0.0) == 0
    assert counts.wait("a", 0.0) == 0


def test_failures_are_forgotten_an_hour_after_the_delay() -> None:
    counts: FailureCounts[str] = FailureCounts(most=10)
    for _ in range(6):
        counts.add("a", 0.0)
    assert counts.count("a", 59.0 + FORGOTTEN_SECONDS) == 6
    assert counts.count("a", 60.0 + FORGOTTEN_SECONDS) == 0
    counts.add("b", 60.0 + FORGOTTEN_SECONDS)
    assert len(counts) == 1


def test_failures_that_are_taken_back_shorten_the_delay() -> None:
    counts: FailureCounts[str] = FailureCounts(most=10)
    for _ in range(6):
        counts.add("a", 0.0)
    counts.reduce("a", 1)
    assert counts.delay("a", 0.0) == 30
    counts.reduce("a", 1)
    assert counts.delay("a", 0.0) == 0
    counts.reduce("a", 10)
    assert (counts.count("a", 0.0), len(counts)) == (0, 0)
    counts.reduce("nobody", 1)


@given(EVENTS)
def test_each_key_has_the_delay_of_its_own_failures(events: list[tuple[int, float]]) -> None:
    """Against a model that forgets nothing but by time."""
    counts: FailureCounts[int] = FailureCounts(most=100)
    model: dict[int, tuple[int, float]] = {}
    now = 0.0
    for key, pause in events:
        now += pause
        count, last = model.get(key, (0, 0.0))
        if now >= last + delay_after(count) + FORGOTTEN_SECONDS:
            count = 0
        counts.add(key, now)
        model[key] = (count + 1, now)
        for each, (number, at) in model.items():
            if now < at + delay_after(number) + FORGOTTEN_SECONDS:
                assert counts.delay(each, now) == max(0.0, at + delay_after(number) - now)
            else:
                assert counts.delay(each, now) == 0


@given(EVENTS, st.integers(1, 8))
def test_no_more_keys_are_kept_than_allowed(events: list[tuple[int, float]], most: int) -> None:
    counts: FailureCounts[int] = FailureCounts(most=most)
    now = 0.0
    for key, pause in events:
        now += pause
        counts.add(key, now)
        assert 1 <= len(counts) <= most
        assert counts.count(key, now) >= 1, "the newest failure is always counted"


@pytest.mark.parametrize("tries", [1, 2, 4])
def test_keys_that_were_tried_less_often_never_displace_one_that_is_delayed(tries: int) -> None:
    counts: FailureCounts[str] = FailureCounts(most=50)
    for _ in range(FREE_FAILURES):
        counts.add("under attack", 0.0)
    for number in range(1000):
        for _ in range(tries):
            counts.add(f"flood {number}", 1.0)
    assert counts.delay("under attack", 1.0) == 29
    assert len(counts) == 50
