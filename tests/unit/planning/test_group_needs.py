"""What a group needs, from its record and the numbers of its instances alone."""

from __future__ import annotations

import datetime as dt

import pytest

from corral.domain.decisions import Rule
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
from corral.domain.planning.group_plans import GroupNeed, group_need
from corral.domain.planning.schedules import scheduled
from corral.domain.planning.tallies import GroupTally

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PAUSE = CrashLoop(since=NOW, until=NOW + dt.timedelta(minutes=1), pauses=1, reason="3 failures")


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


def need(record: GroupRecord, instances, **how) -> GroupNeed:
    how = {"now": NOW, "values": scheduled(record.spec, NOW)} | how
    return group_need(record, GroupTally.of(instances), **how)


def test_what_is_missing_to_the_larger_of_minimum_and_target_is_started():
    assert need(group(min=2), [instance()], pause_over=False).missing == 1
    assert need(group(min=1, target=3), [instance()], pause_over=False).missing == 2
    assert need(group(min=1), [instance(1), instance(2)], pause_over=False).start == 0


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
    assert (need(group(min=1), [record], pause_over=False).start == 0) is there


def test_a_static_instance_that_stops_is_waited_for_and_not_replaced():
    stopping = instance(state=InstanceState.STOPPING, wanted=Wanted.STOP)
    assert need(group(min=1, static=True), [stopping], pause_over=False).start == 0
    ended = instance(state=InstanceState.STOPPED, wanted=Wanted.STOP)
    assert need(group(min=1, static=True), [ended], pause_over=False).start == 1


def test_a_paused_group_waits_until_its_time_is_over():
    paused = group(min=1, paused=PAUSE)
    waiting = need(paused, [], pause_over=False)
    assert waiting.rule is Rule.CRASH_PAUSE
    assert "until" in waiting.reason
    over = need(paused, [], pause_over=True)
    assert over.start == 1
    assert over.end_pause


def test_a_group_that_is_deleted_starts_nothing_and_goes_with_its_last_instance():
    deleting = group(min=2, deleting=True)
    assert need(deleting, [instance()], pause_over=True).start == 0
    ended = instance(state=InstanceState.STOPPED)
    assert need(deleting, [ended], pause_over=True).drop


def test_the_place_of_a_run_that_ended_by_itself_is_taken_five_seconds_after_its_start():
    def ended(number: int, *, started: float) -> InstanceRecord:
        at = NOW + dt.timedelta(seconds=started)
        exit = ExitRecord(
            known=True, code=0, signal=None, crashed=False, outcome="ended", summary="", ended_at=NOW
        )
        return instance(number, InstanceState.STOPPED, started_at=at, exit=exit)

    early = need(group(min=1), [ended(1, started=-2)], pause_over=True, now=NOW)
    assert (early.rule, early.missing, early.start) == (Rule.PLACE_AGAIN, 1, 0)
    assert "5 s after its start" in early.reason
    assert dt.timedelta(seconds=3) <= early.wake_at - NOW <= dt.timedelta(seconds=4.25)
    both = need(group(min=2), [ended(1, started=-2), ended(2, started=-7)], pause_over=True, now=NOW)
    assert (both.rule, both.start, both.wake_at) == (None, 1, early.wake_at)
    assert need(group(min=1), [ended(1, started=600)], pause_over=True, now=NOW).start == 1


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
    found = need(group(min=1), [record], pause_over=True, now=NOW)
    assert found.rule is Rule.PLACE_AGAIN
    assert dt.timedelta(seconds=3) <= found.wake_at - NOW <= dt.timedelta(seconds=4.25)
