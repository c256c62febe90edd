"""A node that was put back to an earlier state uses numbers again: each run is told as what it is."""

from __future__ import annotations

import pytest
from world import N1, NOW, TICKETS, World, spec

from corral.controller.instances.group_changes import create_group
from corral.controller.instances.instance_changes import restart_instance, start_instance, stop_instance
from corral.controller.instances.report_values import report_of
from corral.controller.instances.reports import fold_crash, fold_report
from corral.controller.instances.run_match import RunRelation, run_relation
from corral.domain.events import EventType
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.instance_states import InstanceState
from corral.testing.scripted_peers import ticketed
from corral.wire.v1 import instance_pb2 as wire

PREPARING, RUNNING, STOPPED, CRASHED = (
    wire.INSTANCE_STATE_PREPARING,
    wire.INSTANCE_STATE_RUNNING,
    wire.INSTANCE_STATE_STOPPED,
    wire.INSTANCE_STATE_CRASHED,
)
BEGUN = int(NOW.timestamp() * 1000)


@pytest.fixture
def world() -> World:
    world = World()
    world.do(create_group, spec(ports={}, memory_mb=100))
    world.do(start_instance, "lobby")
    return world


@pytest.fixture
def first(world) -> int:
    return world.record("lobby-1").incarnation


def tell(world, state, number: int, nonce: str, *, code: int | None = None, begun: int = BEGUN):
    exit = wire.ExitStatus(known=True, code=code or 0, outcome="crashed", summary=f"exit {code}")
    update = wire.InstanceStatusUpdate(
        instance_id="lobby-1", state=state, incarnation=number, nonce=nonce, pid=7, started_at_ms=begun
    )
    if code is not None:
        update.exit.CopyFrom(exit)
    return world.do(lambda ws: fold_report(ws, N1, report_of(update, NOW)))


def crash(world, number: int, nonce: str, *, code: int, restarted_as: int = 0) -> None:
    exit = wire.ExitStatus(known=True, code=code, outcome="crashed", summary=f"exit {code}")
    report = wire.CrashReport(
        instance_id="lobby-1",
        group="lobby",
        incarnation=number,
        nonce=nonce,
        exit=exit,
        restarted_as=restarted_as,
    )
    world.do(fold_crash, N1, report)


def run_of(world) -> tuple[int, str, InstanceState]:
    record: InstanceRecord = world.record("lobby-1")
    return record.incarnation, record.nonce, record.state


@pytest.mark.trap("T73")
def test_the_end_of_a_second_run_with_the_same_number_is_its_own(world, first):
    tell(world, RUNNING, first, "n-a")
    tell(world, CRASHED, first, "n-a", code=1)
    assert world.record("lobby-1").exit.code == 1
    tell(world, RUNNING, first, "n-b")
    assert run_of(world) == (first, "n-b", InstanceState.RUNNING)
    tell(world, CRASHED, first, "n-b", code=2)
    assert world.record("lobby-1").exit.code == 2, "that of the second run"


@pytest.mark.trap("T73")
def test_a_second_run_whose_end_is_all_that_is_heard_is_told_as_well(world, first):
    tell(world, CRASHED, first, "n-a", code=1)
    tell(world, CRASHED, first, "n-b", code=2)
    assert (run_of(world)[1], world.record("lobby-1").exit.code) == ("n-b", 2)


@pytest.mark.trap("T73")
def test_both_crashes_of_one_number_are_kept(world, first):
    crash(world, first, "n-a", code=1, restarted_as=first + 1)
    crash(world, first, "n-a", code=1, restarted_as=first + 1)
    tell(world, RUNNING, first + 1, "n-b")
    crash(world, first + 1, "n-b", code=3)
    crash(world, first + 1, "n-c", code=4)
    codes = {stored.record.id: stored.record.exit.code for stored in world.state.crashes}
    assert codes == {f"lobby-1.{first}": 1, f"lobby-1.{first + 1}": 3, f"lobby-1.{first + 1}.n-c": 4}
    assert world.record("lobby-1").exit.code == 4


@pytest.mark.trap("T73")
def test_late_words_about_the_first_of_two_runs_change_nothing(world, first):
    tell(world, RUNNING, first, "n-a")
    tell(world, RUNNING, first, "n-b")
    before = world.record("lobby-1")
    assert tell(world, CRASHED, first, "n-a", code=1) is None
    assert world.record("lobby-1") == before
    assert run_relation(before, first, "n-a") is RunRelation.EARLIER


@pytest.mark.trap("T73")
def test_an_unexecuted_run_that_its_node_begins_again_under_another_nonce_is_no_second_run(world, first):
    tell(world, PREPARING, first, "n-a", begun=0)
    world.open(N1, listed(world, first, "n-b", PREPARING))
    assert run_of(world) == (first, "n-b", InstanceState.PREPARING)
    assert tell(world, CRASHED, first, "n-a", code=1) is None
    crash(world, first, "n-c", code=2)
    tell(world, CRASHED, first, "n-c", code=2)
    assert run_of(world) == (first, "n-c", InstanceState.CRASHED)
    assert ends(world) == [(first, True)]
    assert world.record("lobby-1").restarts == 0


@pytest.mark.trap("T73")
@pytest.mark.parametrize("known", [True, False], ids=["reported-before", "in-the-spool"])
def test_an_unexecuted_run_keeps_the_nonce_of_the_handshake_whatever_the_spool_still_has(world, first, known):
    if known:
        tell(world, PREPARING, first, "n-a", begun=0)
    world.open(N1, listed(world, first, "n-b", PREPARING))
    tell(world, PREPARING, first, "n-a", begun=0)
    assert run_of(world) == (first, "n-b", InstanceState.PREPARING)
    tell(world, RUNNING, first, "n-b")
    tell(world, STOPPED, first, "n-b", code=0)
    assert run_of(world) == (first, "n-b", InstanceState.STOPPED)


@pytest.mark.trap("T72")
def test_what_is_heard_of_the_life_of_a_run_after_its_end_is_late_and_no_stray(world, first):
    tell(world, CRASHED, first, "n-a", code=1)
    assert tell(world, RUNNING, first, "n-a") is None
    assert run_of(world)[2] is InstanceState.CRASHED


def test_a_peer_without_nonces_is_understood_by_numbers(world, first):
    tell(world, RUNNING, first, "n-a")
    tell(world, CRASHED, first, "", code=1)
    assert run_of(world) == (first, "n-a", InstanceState.CRASHED)


@pytest.mark.trap("T73")
def test_another_run_that_its_node_names_without_a_number_has_that_of_the_present_one(world, first):
    tell(world, RUNNING, first, "n-a")
    tell(world, RUNNING, 0, "n-b")
    assert run_of(world) == (first, "n-b", InstanceState.RUNNING)


def listed(
    world, number: int, nonce: str, state: wire.InstanceState.ValueType = RUNNING
) -> wire.RunningInstance:
    return wire.RunningInstance(
        instance_id="lobby-1",
        group="lobby",
        state=state,
        incarnation=number,
        nonce=nonce,
        pid=9,
        started_at_ms=BEGUN if state == RUNNING else 0,
    )


@pytest.mark.trap("T73")
def test_a_node_that_runs_an_instance_under_a_lower_number_than_it_told_is_believed_when_it_connects(
    world, first
):
    tell(world, RUNNING, first + 2, "n-a")
    assert world.open(N1, listed(world, first + 1, "n-b")) == []
    assert run_of(world) == (first + 1, "n-b", InstanceState.RUNNING)
    assert b"put back" in world.decisions[-1].body
    tell(world, CRASHED, first + 1, "n-b", code=5)
    assert world.record("lobby-1").exit.code == 5


@pytest.mark.trap("T73")
def test_a_late_word_about_a_run_between_is_no_sign_of_an_older_copy(world, first):
    world.open(N1, listed(world, first + 2, "n-c"))
    tell(world, RUNNING, first + 1, "n-b")
    assert run_of(world)[:2] == (first + 2, "n-c")


@pytest.mark.trap("T73")
def test_a_live_run_of_an_earlier_start_with_its_ticket_goes_on_where_the_later_one_is_forgotten(
    world, first
):
    record = world.record("lobby-1")
    old = listed(world, first, "n-a")
    old.plan_hash = record.plan_hash
    ticketed(TICKETS, old, node=N1, serial=record.serial)
    tell(world, RUNNING, first, "n-a")
    world.do(stop_instance, "lobby-1", reason="x")
    world.reconcile_listed(N1)
    assert not world.record("lobby-1").exit.known
    world.do(restart_instance, "lobby-1", reason="x")
    later = world.record("lobby-1").incarnation
    tell(world, RUNNING, later, "n-b")
    assert world.open(N1, old) == [], "a healthy run is not ended for its number"
    assert run_of(world)[0] == first
    assert world.reserved("n1") == ["lobby-1"]
    assert ends(world) == [(first, False), (later, False)]


@pytest.mark.trap("T73")
@pytest.mark.parametrize(("listed_number", "reported"), [(2, 2), (1, 1), (0, 2)])
def test_the_end_of_a_run_that_its_node_has_forgotten_is_told_as_unknown(
    world, first, listed_number, reported
):
    tell(world, RUNNING, first + 2, "n-a")
    if listed_number:
        world.open(N1, listed(world, first + listed_number, "n-b"))
    tell(world, RUNNING, first + reported, "n-b")
    assert run_of(world) == (first + reported, "n-b", InstanceState.RUNNING)
    assert ends(world) == [(first + 2, False)]
    (told,) = [event for event in world.events if event.type is EventType.INSTANCE_CRASHED]
    assert told.data["restarted_as"] == first + reported


@pytest.mark.trap("T73")
@pytest.mark.parametrize("crashed", [True, False])
def test_a_run_whose_end_is_stored_is_not_running_again_when_its_node_lists_it(world, first, crashed):
    tell(world, RUNNING, first, "n-a")
    if crashed:
        crash(world, first, "n-a", code=1, restarted_as=first + 1)
    else:
        world.do(lambda ws: fold_report(ws, N1, report_of(restarted_after_exit(first + 1, "n-b"), NOW)))
    tell(world, RUNNING, first + 1, "n-b")
    (stray,) = world.open(N1, listed(world, first, "n-a"))
    assert (stray.incarnation, stray.stop) == (first, True)
    world.reconcile_listed(N1, listed(world, first, "n-a"))
    assert run_of(world) == (first + 1, "n-b", InstanceState.CRASHED)
    assert ends(world) == [(first, True), (first + 1, False)]


@pytest.mark.trap("T73")
def test_a_run_of_an_earlier_start_whose_end_is_stored_is_not_taken_up_again(world, first):
    old = listed(world, first, "n-a")
    old.plan_hash = world.record("lobby-1").plan_hash
    ticketed(TICKETS, old, node=N1, serial=world.record("lobby-1").serial)
    tell(world, RUNNING, first, "n-a")
    world.do(stop_instance, "lobby-1", reason="x")
    tell(world, STOPPED, first, "n-a", code=0)
    world.do(restart_instance, "lobby-1", reason="x")
    later = world.record("lobby-1").incarnation
    tell(world, RUNNING, later, "n-b")
    (stray,) = world.open(N1, old)
    assert (stray.incarnation, stray.stop) == (first, True)
    world.reconcile_listed(N1, old)
    assert ends(world) == [(first, True), (later, False)]


@pytest.mark.trap("T73")
@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ("crash n-b", [(0, False), (0, True)]),
        ("running n-b, crash n-b, running n-b", [(0, False), (0, True)]),
        ("running n-b, exit", [(0, False), (0, True)]),
        ("listed n-b", [(0, False), (1, False)]),
        ("crash n-a", [(0, True)]),
        ("crash n-a, crash n-b", [(0, True), (0, True)]),
        ("running n-a, exit, running n-b", [(0, True)]),
        ("exit, crash n-b", [(0, True), (0, True)]),
        ("preparing n-b, crash n-a", [(0, True)]),
        ("exit, listed n-b, next n-d, exit", [(0, True), (1, False), (0, True)]),
    ],
)
def test_a_run_whose_number_was_used_again_has_an_end_where_a_later_run_is_listed_first(
    world, first, reports, expected
):
    tell(world, RUNNING, first, "n-a")
    world.open(N1, listed(world, first + 1, "n-c"))
    for report in reports.split(", "):
        kind, _, nonce = report.partition(" ")
        if kind == "crash":
            crash(world, first, nonce, code=2, restarted_as=first + 1)
        elif kind == "exit":
            world.do(lambda ws: fold_report(ws, N1, report_of(restarted_after_exit(first + 1, ""), NOW)))
        elif kind in ("listed", "next"):
            world.open(N1, listed(world, first + (kind == "next"), nonce))
        else:
            state, begun = (RUNNING, BEGUN) if kind == "running" else (PREPARING, 0)
            tell(world, state, first, nonce, begun=begun)
    assert ends(world) == [(first + above, known) for above, known in expected]


def restarted_after_exit(number: int, nonce: str) -> wire.InstanceStatusUpdate:
    """The report of a run that its node started after a clean exit of the one before."""
    exit = wire.ExitStatus(known=True, outcome="ended", summary="exit 0")
    return wire.InstanceStatusUpdate(
        instance_id="lobby-1", state=RUNNING, incarnation=number, nonce=nonce, former_exit=exit
    )


def ends(world) -> list[tuple[int, bool]]:
    """The runs whose end was told, in order, and whether it is known how they ended."""
    told = (EventType.INSTANCE_CRASHED, EventType.INSTANCE_STOPPED)
    return [
        (event.data["incarnation"], event.data["exit"]["known"])
        for event in world.events
        if event.type in told
    ]
