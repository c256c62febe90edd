"""The planner: what a group needs, from its record and its instances alone."""

from __future__ import annotations

import datetime as dt

import pytest

from corral.controller.reconcile.apply_plan import Need, plan_group
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import (
    AfterStop,
    CrashLoop,
    ExitRecord,
    GroupRecord,
    InstanceRecord,
)
from corral.domain.ids import GroupName, Incarnation, InstanceId, NodeId
from corral.domain.instance_states import InstanceState, Wanted

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PAUSE = CrashLoop(since=NOW, until=NOW + dt.timedelta(minutes=1), strikes=1, reason="3 failures")


def group(*, min=0, static=False, **fields) -> GroupRecord:
    spec = GroupSpec(name="lobby", command=("serve",), min=min, static=static)
    return GroupRecord(spec=spec, created_at=NOW, updated_at=NOW, **fields)


def instance(number=1, state=InstanceState.RUNNING, wanted=Wanted.RUN, **fields) -> InstanceRecord:
    return InstanceRecord(
        id=InstanceId(f"lobby-{number}"),
        group=GroupName("lobby"),
        node=NodeId("n1"),
        incarnation=Incarnation(1024 * number),
        state=state,
        wanted=wanted,
        created_at=NOW,
        **fields,
    )


def test_what_is_missing_to_the_larger_of_minimum_and_target_is_started():
    assert plan_group(group(min=2), [instance()], pause_over=False).missing == 1
    assert plan_group(group(min=1, target=3), [instance()], pause_over=False).missing == 2
    assert plan_group(group(min=1), [instance(1), instance(2)], pause_over=False).need is Need.NOTHING


@pytest.mark.parametrize(
    ("record", "there"),
    [
        (instance(state=InstanceState.SCHEDULED), True),
        (instance(state=InstanceState.OFFLINE), True),
        (instance(state=InstanceState.STOPPING, wanted=Wanted.STOP), False),
        (instance(state=InstanceState.STOPPING, wanted=Wanted.STOP, after_stop=AfterStop.RESTART), True),
        (instance(state=InstanceState.CRASHED), False),
        (instance(state=InstanceState.STOPPED), False),
    ],
)
def test_what_counts_as_there(record, there):
    plan = plan_group(group(min=1), [record], pause_over=False)
    assert (plan.need is Need.NOTHING) is there


def test_a_static_instance_that_stops_is_waited_for_and_not_replaced():
    stopping = instance(state=InstanceState.STOPPING, wanted=Wanted.STOP)
    assert plan_group(group(min=1, static=True), [stopping], pause_over=False).need is Need.NOTHING
    ended = instance(state=InstanceState.STOPPED, wanted=Wanted.STOP)
    assert plan_group(group(min=1, static=True), [ended], pause_over=False).need is Need.START


def test_a_paused_group_waits_until_its_time_is_over():
    paused = group(min=1, paused=PAUSE)
    waiting = plan_group(paused, [], pause_over=False)
    assert waiting.need is Need.WAIT
    assert "until" in waiting.reason
    over = plan_group(paused, [], pause_over=True)
    assert over.need is Need.START
    assert over.end_pause


def test_a_group_that_is_deleted_starts_nothing_and_goes_with_its_last_instance():
    deleting = group(min=2, deleting=True)
    assert plan_group(deleting, [instance()], pause_over=True).need is Need.NOTHING
    ended = instance(state=InstanceState.STOPPED)
    assert plan_group(deleting, [ended], pause_over=True).need is Need.DROP


def test_the_place_of_a_run_that_ended_by_itself_is_taken_five_seconds_after_its_start():
    def ended(number: int, *, started: float) -> InstanceRecord:
        at = NOW + dt.timedelta(seconds=started)
        exit = ExitRecord(
            known=True, code=0, signal=None, crashed=False, outcome="ended", summary="", ended_at=NOW
        )
        return instance(number, InstanceState.STOPPED, started_at=at, exit=exit)

    early = plan_group(group(min=1), [ended(1, started=-2)], pause_over=True, now=NOW)
    assert (early.need, early.missing) == (Need.WAIT, 1)
    assert "5 s after its start" in early.reason
    assert dt.timedelta(seconds=3) <= early.wake_at - NOW <= dt.timedelta(seconds=4.25)
    both = plan_group(group(min=2), [ended(1, started=-2), ended(2, started=-7)], pause_over=True, now=NOW)
    assert (both.need, both.missing, both.wake_at) == (Need.START, 1, early.wake_at)
    assert plan_group(group(min=1), [ended(1, started=600)], pause_over=True, now=NOW).need is Need.START


@pytest.mark.trap("T88")
def test_a_clock_of_a_node_that_is_behind_makes_no_place_free_sooner():
    ended_at = NOW - dt.timedelta(hours=1)
    exit = ExitRecord(
        known=True, code=0, signal=None, crashed=False, outcome="ended", summary="", ended_at=ended_at
    )
    record = instance(
        state=InstanceState.STOPPED,
        started_at=ended_at - dt.timedelta(seconds=2),
        ended_at=ended_at,
        end_received_at=NOW,
        exit=exit,
    )
    plan = plan_group(group(min=1), [record], pause_over=True, now=NOW)
    assert plan.need is Need.WAIT
    assert dt.timedelta(seconds=3) <= plan.wake_at - NOW <= dt.timedelta(seconds=4.25)
