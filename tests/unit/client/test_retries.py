"""When a request is sent again."""

from __future__ import annotations

import pytest

from corral.client.errors import ApiError, InvalidAnswer, NotFound, RateLimited, Unavailable, Unreachable
from corral.client.retries import Attempts, Retry, backoff

LOST = Unreachable("lost", passing=True)


def busy(seconds: float | None) -> ApiError:
    return RateLimited("busy", code="RATE_LIMITED", status=429, retry_after=seconds)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_last_attempt_raises_its_failure():
    attempts = Attempts(Retry(attempts=3), repeatable=True)
    assert attempts.pause_after(LOST) > 0
    assert attempts.pause_after(LOST) > 0
    with pytest.raises(Unreachable):
        attempts.pause_after(LOST)


@pytest.mark.parametrize(
    "failure",
    [
        InvalidAnswer("x"),
        Unreachable("no trust"),
        NotFound("x", code="NOT_FOUND", status=404),
        ApiError("x", code="NODE_OFFLINE", status=409, retry_after=1),
    ],
)
def test_what_does_not_pass_is_raised_at_once(failure):
    with pytest.raises(type(failure)):
        Attempts(Retry(), repeatable=True).pause_after(failure)


def test_what_must_not_be_repeated_is_not():
    for failure in (LOST, busy(0), Unavailable("x", code="NOT_LEADER", status=503)):
        with pytest.raises(type(failure)):
            Attempts(Retry(), repeatable=False).pause_after(failure)


def test_the_answer_says_how_long_to_wait_within_the_time_there_is():
    clock = Clock()
    attempts = Attempts(Retry(attempts=9, seconds=30), repeatable=True, clock=clock)
    assert attempts.pause_after(busy(20)) == 20
    clock.now = 20
    assert attempts.pause_after(busy(5)) == 5
    clock.now = 25
    with pytest.raises(RateLimited):
        attempts.pause_after(busy(6))


def test_pauses_grow_to_a_bound():
    for failures in range(2000):
        assert 0.1 <= backoff(failures, longest=5.0) <= 5.0
    assert backoff(100, longest=5.0) >= 2.5
