"""Token buckets: a burst, then a rate."""

from __future__ import annotations

import pytest

from corral.system.aio.token_bucket import TokenBucket, TokenBuckets


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def test_a_burst_passes_and_then_a_rate(time) -> None:
    bucket = TokenBucket(burst=3, per_second=2, monotonic=time)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    time.now = 0.5
    assert [bucket.take(), bucket.take()] == [True, False]


def test_what_is_refused_costs_nothing(time) -> None:
    bucket = TokenBucket(burst=3, per_second=1, monotonic=time)
    assert not bucket.take(4)
    assert bucket.take(3)


def test_what_is_spent_beyond_the_burst_has_to_be_waited_for(time) -> None:
    bucket = TokenBucket(burst=5, per_second=10, monotonic=time)
    for _ in range(5):
        bucket.spend(1)
        assert bucket.wait() == 0.0
    bucket.spend(1)
    assert bucket.wait() == pytest.approx(0.1)
    time.now = 0.05
    assert bucket.wait() == pytest.approx(0.05)
    time.now = 0.1
    assert bucket.wait() == 0.0


def test_it_never_saves_more_than_its_burst(time) -> None:
    bucket = TokenBucket(burst=5, per_second=10, monotonic=time)
    bucket.spend(6)
    time.now = 1000.0
    assert bucket.wait() == 0.0
    bucket.spend(6)
    assert bucket.wait() == pytest.approx(0.1)


def test_a_long_rest_before_the_first_use_gives_one_burst_and_not_two(time) -> None:
    bucket = TokenBucket(burst=5, per_second=10, monotonic=time)
    time.now = 1000.0
    bucket.spend(6)
    assert bucket.wait() == pytest.approx(0.1)


def test_every_key_has_a_bucket_of_its_own(time) -> None:
    buckets = TokenBuckets[str](burst=1, per_second=1, monotonic=time)
    assert [buckets.take(key) for key in "aba"] == [True, True, False]


def test_only_the_keys_seen_last_are_remembered(time) -> None:
    buckets = TokenBuckets[str](burst=1, per_second=1, monotonic=time, kept=2)
    assert [buckets.take(key) for key in "ab"] == [True, True]
    assert not buckets.take("a")
    assert buckets.take("c")  # "b" was not seen for longest
    assert [buckets.take("a"), buckets.take("b")] == [False, True]
