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


def test_attempts_go_on_for_the_time_there_is():
    """A controller that starts again takes a few seconds."""
    for _ in range(50):
        clock, count = Clock(), 0
        attempts = Attempts(Retry(), repeatable=True, clock=clock)
        with pytest.raises(Unreachable):
            while True:
                clock.now += attempts.pause_after(LOST)
                count += 1
        assert 25 <= clock.now <= 30
        assert 8 <= count <= 20


def doubt() -> Unreachable:
    return Unreachable("no answer", in_doubt=True, passing=True)


@pytest.mark.parametrize(
    "last",
    [
        lambda: Unreachable("refused", hint="is the controller running?", passing=True),
        lambda: InvalidAnswer("no HTTP"),
        lambda: busy(None),
        lambda: Unavailable("x", code="NOT_LEADER", status=503, hint="wait"),
        lambda: ApiError("x", code="UNAUTHENTICATED", status=401),
        lambda: ApiError("x", code="MAY_HAVE_ARRIVED", status=409),
        lambda: ApiError("x", code="NODE_OFFLINE", status=409),
    ],
)
def test_an_attempt_that_may_have_been_done_leaves_the_last_one_in_doubt(last):
    attempts = Attempts(Retry(attempts=2), repeatable=True)
    attempts.pause_after(doubt())
    failure = last()
    told = failure.hint if isinstance(failure, ApiError) else ""
    with pytest.raises(type(failure)) as raised:
        attempts.pause_after(failure)
    assert raised.value.in_doubt
    assert raised.value.hint.startswith(told)
    assert "at an earlier attempt it may have been done" in raised.value.hint
    assert "running" not in raised.value.hint


def test_the_answer_to_a_repetition_ends_the_doubt():
    attempts = Attempts(Retry(), repeatable=True)
    attempts.pause_after(doubt())
    with pytest.raises(NotFound) as raised:
        attempts.pause_after(NotFound("x", code="NOT_FOUND", status=404, hint="look"))
    assert not raised.value.in_doubt
    assert raised.value.hint == "look"


def test_what_was_never_sent_is_no_doubt():
    attempts = Attempts(Retry(attempts=2), repeatable=True)
    attempts.pause_after(LOST)
    with pytest.raises(Unreachable) as raised:
        attempts.pause_after(LOST)
    assert not raised.value.in_doubt


def test_pauses_grow_to_a_bound():
    for failures in range(2000):
        assert 0.1 <= backoff(failures, longest=5.0) <= 5.0
    assert backoff(100, longest=5.0) >= 2.5


def test_a_node_that_is_away_is_waited_for_after_a_controller_that_was_away():
    """Nodes come back after their controller; one that is away by itself is told at once."""

    def away() -> ApiError:
        return ApiError("x", code="NODE_OFFLINE", status=409)

    with pytest.raises(ApiError):
        Attempts(Retry(), repeatable=True).pause_after(away())
    for before in (doubt(), Unavailable("x", code="NOT_LEADER", status=503)):
        attempts = Attempts(Retry(), repeatable=True)
        attempts.pause_after(before)
        assert attempts.pause_after(away()) > 0
        with pytest.raises(ApiError):
            Attempts(Retry(), repeatable=False).pause_after(away())
