"""Which instances are stopped because of a hold."""

from __future__ import annotations

import datetime as dt

import pytest

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import AfterStop, GroupRecord, Hold, InstanceRecord
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.domain.ids import GroupName, Incarnation, InstanceId, NodeId
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.holds import is_empty, refuse_held, stopped_by_hold
from corral.errors import Code, Rejected

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PLAYERS = {"lobby-1": 0, "lobby-2": 5}


def group(hold: Hold | None = None, **fields: object) -> GroupRecord:
    spec = GroupSpec(name="lobby", command=("serve",), **fields)  # type: ignore[arg-type]
    return GroupRecord(spec=spec, created_at=NOW, updated_at=NOW, hold=hold)


def instance(number: int, state: InstanceState = InstanceState.RUNNING, **fields: object) -> InstanceRecord:
    return InstanceRecord(
        id=InstanceId(f"lobby-{number}"),
        group=GroupName("lobby"),
        node=NodeId("n1"),
        incarnation=Incarnation(1024),
        state=state,
        created_at=NOW,
        **{"wanted": Wanted.RUN, **fields},  # type: ignore[arg-type]
    )


def hold(*, when_empty: bool) -> Hold:
    return Hold(by="'admin'", reason="why", since=NOW, when_empty=when_empty)


def stopped(record: GroupRecord, *instances: InstanceRecord) -> list[str]:
    return [each.id for each in stopped_by_hold(record, instances, PLAYERS.get)]


def test_all_that_would_stay_are_stopped_and_no_other() -> None:
    ended = instance(3, InstanceState.STOPPED)
    stopping = instance(4, wanted=Wanted.STOP)
    restarting = instance(5, wanted=Wanted.STOP, after_stop=AfterStop.RESTART)
    every = (instance(1), instance(2), ended, stopping, restarting)
    assert stopped(group(hold(when_empty=False)), *every) == ["lobby-1", "lobby-2", "lobby-5"]
    assert stopped(group(), *every) == []


def test_players_are_waited_for_where_they_are_counted() -> None:
    every = (instance(1), instance(2), instance(3))
    assert stopped(group(hold(when_empty=True)), *every) == ["lobby-1", "lobby-3"]
    counted = group(hold(when_empty=True), probes=(ProbeSpec(kind=ProbeKind.MINECRAFT),))
    assert stopped(counted, *every) == ["lobby-1"], "nobody knows whether the third has players"
    assert is_empty(group().spec, None)


def test_an_unknown_count_is_no_empty_instance_for_a_new_leader_or_out_of_reach() -> None:
    record = group(hold(when_empty=True))
    every = (instance(1), instance(3))
    young = stopped_by_hold(record, every, PLAYERS.get, unknown_is_empty=False)
    assert [each.id for each in young] == ["lobby-1"]
    away = (instance(1, InstanceState.OFFLINE), instance(3, InstanceState.OFFLINE))
    assert stopped(record, *away) == []


def test_a_start_by_hand_is_refused_with_who_why_and_what_ends_it() -> None:
    refuse_held(group())
    with pytest.raises(Rejected, match="held by 'admin' since 2026-01-01 00:00:00 UTC: why") as refused:
        refuse_held(group(hold(when_empty=False)))
    assert (refused.value.code, refused.value.hint) == (Code.GROUP_HELD, "corral group release lobby")
