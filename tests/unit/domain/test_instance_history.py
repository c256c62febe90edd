"""The states of one run, step by step, and what a refused step tells."""

from __future__ import annotations

import itertools

import pytest

from corral.domain.instance_states import (
    FOUND_IN,
    INSTANCE_LIFECYCLE,
    STEPS_KEPT,
    InstanceState,
    InstanceTrigger,
    StateHistory,
)
from corral.errors import Code, IllegalTransition

S, T = InstanceState, InstanceTrigger
COURSE = (S.SCHEDULED, S.PREPARING, S.STARTING, S.RUNNING, S.DRAINING, S.STOPPING)
NEW = StateHistory(subject="instance 'lobby-1'")


def test_a_step_that_the_table_refuses_tells_the_last_steps_with_their_reasons():
    history = NEW.stepped(T.PREPARE).stepped(T.SPAWN).stepped(T.READY).stepped(T.STOP, "enough")
    with pytest.raises(IllegalTransition) as caught:
        history.stepped(T.READY)
    assert caught.value.code is Code.ILLEGAL_TRANSITION
    assert caught.value.message == (
        "instance 'lobby-1' is STOPPING and cannot take 'ready' "
        "(history: prepare -> PREPARING; spawn -> STARTING; ready -> RUNNING; stop -> STOPPING (enough))"
    )


@pytest.mark.parametrize(("before", "found"), list(itertools.product(COURSE, COURSE)))
def test_a_live_run_that_nobody_watched_is_in_whatever_state_it_is_found(before, found):
    history = NEW.found(before).found(found, "a new daemon")
    assert history.state is found
    assert [step.trigger for step in history.steps[-2:]] == [T.UNWATCHED, FOUND_IN[found]]
    assert history.steps[-1].reason == "a new daemon"


@pytest.mark.parametrize("end", sorted(INSTANCE_LIFECYCLE.terminal))
def test_an_end_is_a_step_from_every_live_state_and_final(end):
    for state in COURSE:
        over = NEW.found(state).ended(end, "it is gone")
        assert (over.state, over.steps[-1].reason) == (end, "it is gone")
        assert over.ended(end, "told again") == over
        with pytest.raises(IllegalTransition, match=r"it is gone"):
            over.found(S.RUNNING)
        with pytest.raises(IllegalTransition):
            over.ended(S.CRASHED if end is S.STOPPED else S.STOPPED)


def test_only_the_last_steps_are_kept():
    history = NEW
    for number in range(STEPS_KEPT):
        history = history.found(S.RUNNING, f"time {number}")
    assert len(history.steps) == STEPS_KEPT
    assert history.steps[-1].reason == f"time {STEPS_KEPT - 1}"
