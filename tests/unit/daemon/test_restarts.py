"""When a node starts a crashed run again by itself."""

from __future__ import annotations

import pytest

from corral.daemon.runs.crash_loops import recent_crashes, restart_delay, with_restart
from corral.daemon.runs.run_files import RunOutcome, StopOrder
from corral.daemon.workload.start_order import RestartRule, StartOrder
from corral.domain.ids import RESTARTS_PER_START, Incarnation, InstanceId
from corral.domain.instance_states import InstanceState

RULE = RestartRule(attempts=3, interval_seconds=300, delay_seconds=2, max_delay_seconds=5)
MIDDLE = 0.5
"""The fraction that spreads nothing."""


def test_only_crashes_within_the_interval_count():
    assert recent_crashes((1.0, 650.0, 700.0), now=950.0, rule=RULE) == (700.0, 950.0)


def test_each_restart_waits_twice_as_long_up_to_the_bound_and_then_there_is_none():
    delays = [restart_delay(range(count), rule=RULE, fraction=MIDDLE) for count in range(5)]
    assert delays == [None, 2.0, 4.0, 5.0, None]


def test_without_a_delay_the_first_comes_at_once_and_the_second_after_a_second():
    rule = RestartRule(attempts=4, delay_seconds=0, max_delay_seconds=60)
    assert [restart_delay(range(n), rule=rule, fraction=MIDDLE) for n in (1, 2, 3, 4)] == [0, 1, 2, 4]


@pytest.mark.parametrize(("fraction", "delay"), [(0.0, 1.5), (MIDDLE, 2.0), (0.999999, 2.5)])
def test_delays_are_spread_by_a_quarter(fraction, delay):
    assert restart_delay((1,), rule=RULE, fraction=fraction) == pytest.approx(delay, rel=1e-5)


def outcome(kind: str = "crashed") -> RunOutcome:
    return RunOutcome(state=InstanceState.CRASHED, outcome=kind, summary="x", ended_at_ms=1)


def order(incarnation: int = 1024, attempts: int = 1) -> StartOrder:
    return StartOrder(
        instance_id=InstanceId("one"),
        group="g",
        incarnation=Incarnation(incarnation),
        command=("x",),
        restart=RestartRule(attempts=attempts),
    )


def decide(kind: str = "crashed", *, stop: StopOrder | None = None, **fields) -> RunOutcome:
    return with_restart(
        outcome(kind), order=order(**fields), stop=stop, crashes=(), now=10.0, age=10.0, fraction=MIDDLE
    )


def test_a_crash_within_the_rule_is_followed_by_the_next_run():
    decided = decide()
    assert (decided.restarted_as, decided.crashes) == (1025, (10.0,))


def test_what_was_asked_to_stop_stays_stopped():
    assert decide(stop=StopOrder(reason="r")).restarted_as is None
    assert decide("host_rebooted", stop=StopOrder(reason="r")).restarted_as is None


def test_a_local_restart_follows_its_stop():
    assert decide("stopped", stop=StopOrder(reason="r", then_restart=True), attempts=0).restarted_as == 1025


def test_a_restart_of_the_host_is_not_counted():
    decided = decide("host_rebooted", attempts=0)
    assert (decided.restarted_as, decided.crashes) == (1025, ())


def test_when_the_numbers_of_a_start_are_used_up_the_controller_decides():
    assert decide(incarnation=2 * RESTARTS_PER_START - 1).restarted_as is None
