"""The planner: what a group needs, from its record and its instances alone."""

from __future__ import annotations

import datetime as dt

import pytest

from corral.controller.reconcile.planner import Need, plan_group
from corral.domain.groups import GroupSpec
from corral.domain.ids import GroupName, Incarnation, InstanceId, NodeId
from corral.domain.instance_records import AfterStop, CrashLoop, GroupRecord, InstanceRecord
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
