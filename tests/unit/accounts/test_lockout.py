"""The delay of logins after failures: for whom it holds, and for whom not."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.controller.accounts.failure_counts import FREE_FAILURES, LONGEST_DELAY_SECONDS
from corral.controller.accounts.lockout import KNOWN_ADDRESSES, Lockout
from corral.errors import Code, Retryable
from corral.system.clock import SystemClock
from corral.testing.stepped_clock import SteppedClock

HOME, ELSEWHERE, OFFICE = "192.0.2.1", "198.51.100.7", "203.0.113.9"


class HandClock(SystemClock):
    """Monotonic time that passes when a test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


def fail(lockout: Lockout, user: str, address: str, *, exists: bool = True) -> float:
    with lockout.attempt(user, address, exists=exists) as attempt:
        return lockout.failed(attempt)


def succeed(lockout: Lockout, user: str, address: str) -> None:
    with lockout.attempt(user, address, exists=True) as attempt:
        lockout.succeeded(attempt)


def delay(lockout: Lockout, user: str, address: str, *, exists: bool = True) -> float:
    """Seconds that an attempt would have to wait; the attempt itself does not count."""
    try:
        with lockout.attempt(user, address, exists=exists):
            return 0.0
    except Retryable as delayed:
        return delayed.retry_after or 0.0


def attack(lockout: Lockout, clock: HandClock, user: str, *, rounds: int, exists: bool = True) -> None:
    """From many addresses, each time as soon as it is possible."""
    for number in range(rounds):
        address = f"10.{number // 250}.{number % 250}.1"
        clock.seconds += delay(lockout, user, address, exists=exists)
        fail(lockout, user, address, exists=exists)


def test_the_answer_has_a_code_the_seconds_and_what_to_do() -> None:
    lockout = Lockout(clock=HandClock())
    for number in range(5):
        fail(lockout, "alice", f"10.0.0.{number}")
    with pytest.raises(Retryable) as delayed, lockout.attempt("alice", ELSEWHERE, exists=True):
        pytest.fail("it was admitted")
    assert (delayed.value.code, delayed.value.retry_after) == (Code.LOGIN_DELAYED, 30.0)
    assert "administrator" in (delayed.value.hint or "")


@pytest.mark.parametrize("exists", [True, False])
def test_an_account_is_delayed_whatever_addresses_the_failures_came_from(exists: bool) -> None:
    lockout = Lockout(clock=HandClock())
    answers = [fail(lockout, "alice", f"10.0.0.{number}", exists=exists) for number in range(5)]
    assert answers == [0, 0, 0, 0, 30]
    assert delay(lockout, "alice", ELSEWHERE, exists=exists) == 30
    assert delay(lockout, "ALICE", ELSEWHERE, exists=exists) == 30
    assert delay(lockout, "bob", ELSEWHERE, exists=exists) == 0


def test_an_address_is_delayed_whatever_names_it_tried() -> None:
    lockout = Lockout(clock=HandClock())
    for number in range(5):
        fail(lockout, f"name-{number}", ELSEWHERE, exists=number % 2 == 0)
    assert delay(lockout, "alice", ELSEWHERE) == 30
    assert delay(lockout, "alice", HOME) == 0


@given(st.lists(st.sampled_from([0.0, 10.0, 30.0, 100.0, 1000.0]), max_size=40))
def test_unknown_names_are_delayed_as_known_ones(pauses: list[float]) -> None:
    """The same attempts are answered alike, so that answers do not tell which names exist."""
    answers = []
    for exists in (True, False):
        clock = HandClock()
        lockout = Lockout(clock=clock)
        told = []
        for number, pause in enumerate(pauses):
            clock.seconds += pause
            waits = delay(lockout, "alice", f"10.0.{number}.1", exists=exists)
            told.append(waits or fail(lockout, "alice", f"10.0.{number}.1", exists=exists))
        answers.append(told)
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("one", "other"), [("2001:db8::1", "2001:db8::ffff:2"), ("::ffff:192.0.2.1", HOME)])
def test_addresses_of_one_host_count_as_one(one: str, other: str) -> None:
    lockout = Lockout(clock=HandClock())
    for number in range(5):
        fail(lockout, f"name-{number}", one)
    assert delay(lockout, "alice", other) == 30
    assert delay(lockout, "alice", "2001:db8:0:1::1") == 0


def test_this_host_is_delayed_later_because_it_may_run_a_proxy() -> None:
    lockout = Lockout(clock=HandClock())
    for number in range(49):
        assert fail(lockout, f"name-{number}", "127.0.0.1") == 0
    assert fail(lockout, "name-50", "::1") == 30


def test_a_success_takes_back_the_failures_of_its_user_and_no_others() -> None:
    lockout = Lockout(clock=HandClock())
    for _ in range(4):
        fail(lockout, "alice", OFFICE)
    succeed(lockout, "alice", OFFICE)
    for number in range(4):
        fail(lockout, f"victim-{number}", OFFICE)
        succeed(lockout, "alice", OFFICE)
    assert delay(lockout, "bob", OFFICE) == 0
    fail(lockout, "victim-5", OFFICE)
    assert delay(lockout, "bob", OFFICE) == 30, "an account of one's own does not help to try others"


def test_an_attempt_without_an_outcome_does_not_count() -> None:
    lockout = Lockout(clock=HandClock())
    for _ in range(20):
        with pytest.raises(TimeoutError), lockout.attempt("alice", HOME, exists=True):
            raise TimeoutError
    assert delay(lockout, "alice", HOME) == 0


def test_many_attempts_at_the_same_moment_are_no_way_around() -> None:
    lockout = Lockout(clock=HandClock())
    admitted, in_flight = [], contextlib.ExitStack()
    for number in range(20):
        with contextlib.suppress(Retryable):
            attempt = lockout.attempt("alice", f"10.0.0.{number}", exists=True)
            admitted.append(in_flight.enter_context(attempt))
    assert len(admitted) == FREE_FAILURES
    assert delay(lockout, "alice", ELSEWHERE) == 1, "until one of them has an outcome"
    for each in admitted:
        lockout.failed(each)
    in_flight.close()
    assert delay(lockout, "alice", ELSEWHERE) == 30


@given(st.integers(1, 200))
@settings(max_examples=20)
def test_nobody_keeps_an_owner_out_of_a_known_address_from_elsewhere(rounds: int) -> None:
    clock = HandClock()
    lockout = Lockout(clock=clock)
    succeed(lockout, "alice", HOME)
    attack(lockout, clock, "alice", rounds=rounds)
    assert delay(lockout, "alice", HOME) == 0
    succeed(lockout, "alice", HOME)
    assert rounds < FREE_FAILURES or delay(lockout, "alice", ELSEWHERE) > 0, (
        "the attack goes on being delayed"
    )


def test_a_known_address_has_a_count_of_its_own() -> None:
    clock = HandClock()
    lockout = Lockout(clock=clock)
    succeed(lockout, "alice", HOME)
    assert [fail(lockout, "alice", HOME) for _ in range(5)] == [0, 0, 0, 0, 30]
    assert delay(lockout, "alice", HOME) == 30
    assert delay(lockout, "alice", OFFICE) == 0, "it does not delay others"
    clock.seconds += 30
    assert fail(lockout, "alice", HOME) == 60


def test_a_neighbour_who_tries_others_does_not_keep_the_owner_out() -> None:
    lockout = Lockout(clock=HandClock())
    succeed(lockout, "alice", OFFICE)
    for number in range(5):
        fail(lockout, f"name-{number}", OFFICE)
    assert delay(lockout, "bob", OFFICE) == 30
    assert delay(lockout, "alice", OFFICE) == 0


def test_a_new_leader_learns_known_addresses_from_sessions() -> None:
    clock = HandClock()
    lockout = Lockout(clock=clock)
    lockout.remember("alice", HOME)
    attack(lockout, clock, "alice", rounds=20)
    assert delay(lockout, "alice", HOME) == 0


def test_the_last_addresses_are_known_and_no_more() -> None:
    clock = HandClock()
    lockout = Lockout(clock=clock)
    for number in range(KNOWN_ADDRESSES + 1):
        succeed(lockout, "alice", f"192.0.2.{number}")
    attack(lockout, clock, "alice", rounds=20)
    assert delay(lockout, "alice", "192.0.2.0") > 0
    assert delay(lockout, "alice", "192.0.2.1") == 0


def test_an_unknown_name_is_never_known_at_an_address() -> None:
    clock = HandClock()
    lockout = Lockout(clock=clock)
    lockout.remember("alice", HOME)
    attack(lockout, clock, "alice", rounds=20, exists=False)
    assert delay(lockout, "alice", HOME, exists=False) > 0


def test_a_flood_of_names_and_addresses_neither_frees_an_attacked_account_nor_delays_others() -> None:
    clock = HandClock()
    lockout = Lockout(clock=clock, most_names=50, most_addresses=50)
    attack(lockout, clock, "alice", rounds=12)
    fail(lockout, "bob", HOME)
    for number in range(2000):
        fail(lockout, f"name-{number}", f"10.{number // 200}.{number % 200}.9", exists=False)
    assert delay(lockout, "alice", ELSEWHERE) == LONGEST_DELAY_SECONDS
    for _ in range(3):
        fail(lockout, "bob", ELSEWHERE)
    assert fail(lockout, "bob", OFFICE) == 30, "the first failure was still counted"
    assert delay(lockout, "carol", "2001:db8:7::1") == 0


def test_an_administrator_resets_an_account_wherever_its_logins_failed() -> None:
    clock = HandClock()
    lockout = Lockout(clock=clock)
    succeed(lockout, "alice", HOME)
    attack(lockout, clock, "alice", rounds=10)
    for _ in range(5):
        fail(lockout, "alice", HOME)
    assert lockout.seconds_left("alice") > 0
    lockout.reset("Alice")
    assert lockout.seconds_left("alice") == 0
    assert delay(lockout, "alice", HOME) == delay(lockout, "alice", OFFICE) == 0
    for _ in range(5):
        fail(lockout, "alice", ELSEWHERE)
    lockout.reset("alice")
    assert delay(lockout, "alice", ELSEWHERE) == 0, "the address was delayed by these failures alone"
    for number in range(5):
        fail(lockout, f"name-{number}", ELSEWHERE)
    lockout.reset("alice")
    assert delay(lockout, "alice", ELSEWHERE) > 0, "others failed there"


def test_a_deleted_account_leaves_nothing_behind() -> None:
    clock = HandClock()
    lockout = Lockout(clock=clock)
    succeed(lockout, "alice", HOME)
    lockout.forget("alice")
    attack(lockout, clock, "alice", rounds=10)
    assert delay(lockout, "alice", HOME) > 0


@pytest.mark.trap("T28")
@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_step_of_the_wall_clock_neither_ends_nor_prolongs_a_delay(step: float) -> None:
    clock = SteppedClock()
    lockout = Lockout(clock=clock)
    for number in range(5):
        fail(lockout, "alice", f"10.0.0.{number}")
    clock.step(step)
    assert 0 < delay(lockout, "alice", ELSEWHERE) <= 30
    clock.pass_time(31)
    assert delay(lockout, "alice", ELSEWHERE) == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["alice", "bob", "ghost"]),
            st.sampled_from([HOME, OFFICE, "127.0.0.1", "2001:db8::1", ""]),
            st.sampled_from(["fail", "succeed", "leave"]),
            st.sampled_from([0.0, 5.0, 40.0, 1000.0, 6000.0]),
        ),
        max_size=80,
    )
)
def test_no_delay_is_longer_than_a_quarter_of_an_hour_whatever_happened(
    steps: list[tuple[str, str, str, float]],
) -> None:
    clock = HandClock()
    lockout = Lockout(clock=clock, most_accounts=2, most_names=2, most_addresses=2)
    for user, address, outcome, pause in steps:
        clock.seconds += pause
        exists = user != "ghost"
        waits = delay(lockout, user, address, exists=exists)
        assert 0 <= waits <= LONGEST_DELAY_SECONDS
        if waits:
            continue
        if outcome == "fail":
            told = fail(lockout, user, address, exists=exists)
            assert told == delay(lockout, user, address, exists=exists)
        elif outcome == "succeed" and exists:
            succeed(lockout, user, address)
            assert delay(lockout, user, address) == 0
