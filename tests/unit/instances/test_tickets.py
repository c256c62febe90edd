"""Tickets of starts: good for one node, one start, one group, one plan; and what they make of a handshake."""

from __future__ import annotations

import msgspec
import pytest
from world import N1, TICKETS, World, spec

from corral.controller.instances.group_changes import create_group
from corral.controller.instances.instance_changes import start_instance
from corral.controller.instances.report_values import report_of
from corral.controller.instances.reports import fold_report
from corral.controller.instances.retention import forgotten
from corral.controller.instances.start_identity import StartTickets
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState
from corral.domain.node_claims import reported_time
from corral.system.controller_config import InstanceRetentionSection
from corral.testing.scripted_peers import ticketed
from corral.wire.v1 import instance_pb2 as wire

RUNNING = wire.INSTANCE_STATE_RUNNING


@pytest.fixture
def world() -> World:
    world = World()
    world.do(create_group, spec(ports={}, memory_mb=1))
    world.do(start_instance, "lobby")
    return world


def facts(record, **changed):
    held = {"node": record.node, "id": record.id, "group": record.group, "incarnation": record.incarnation}
    return {**held, **changed}


def run_of(record, **fields) -> wire.RunningInstance:
    settings = {
        "instance_id": record.id,
        "group": record.group,
        "incarnation": record.incarnation,
        "plan_hash": record.plan_hash,
        "state": RUNNING,
        "ticket": TICKETS.of(record),
    }
    return wire.RunningInstance(**{**settings, **fields})


def test_a_ticket_holds_for_every_run_of_its_start_and_for_nothing_else(world):
    record = world.record("lobby-1")
    ticket = TICKETS.of(record)
    assert TICKETS.proven(ticket, **facts(record)).serial == record.serial == 1
    assert TICKETS.proven(ticket, **facts(record, incarnation=record.incarnation + 1023)) is not None
    for other in (
        {"incarnation": record.incarnation + 1024},
        {"node": "n2"},
        {"id": "lobby-2"},
        {"group": "world"},
    ):
        assert TICKETS.proven(ticket, **facts(record, **other)) is None
    prefix, serial, plan, code = ticket.split(".")
    for forged in (
        f"{prefix}.{int(serial) + 1}.{plan}.{code}",
        f"{prefix}.{serial}.{plan[:-1]}x.{code}",
        f"{prefix}.{serial}.{plan}.{code[:-1]}",
        f"cw1.{serial}.{plan}.{code}",
        f"{prefix}.\u0663.{plan}.{code}",
        "x" * 10_000,
        "\ud800",
        ".",
        "",
    ):
        assert TICKETS.proven(forged, **facts(record)) is None
    assert StartTickets(lambda: (b"x" * 32,)).proven(ticket, **facts(record)) is None


def test_tickets_of_an_authority_that_retires_still_hold(world):
    record = world.record("lobby-1")
    later = StartTickets(lambda: (b"n" * 32, b"k" * 32))
    assert later.proven(TICKETS.of(record), **facts(record)) is not None
    assert later.of(record) != TICKETS.of(record)


def test_serials_of_a_node_only_grow_and_outlive_its_runs(world):
    for number in (2, 3):
        assert world.do(start_instance, "lobby").serial == number
    ledger = world.state.node_ledgers.require(N1).record
    assert ledger.serial == 3
    world.apply(forgotten(world.state, config=InstanceRetentionSection(), now=world.now, limit=100))
    assert world.state.node_ledgers.require(N1).record.serial == 3


def test_only_a_serial_above_the_stored_one_is_adopted(world):
    for serial, adopted in ((1, False), (2, True)):
        run = wire.RunningInstance(
            instance_id=f"lobby-{10 + serial}",
            group="lobby",
            incarnation=serial * 10**6 * 1024,
            state=RUNNING,
        )
        strays = world.open(N1, ticketed(TICKETS, run, node=N1, serial=serial))
        assert (world.state.instances.find(run.instance_id) is not None) is adopted
        assert [stray.stop for stray in strays] == ([] if adopted else [False])


def test_another_plan_than_the_ticket_has_is_not_adopted(world):
    run = wire.RunningInstance(
        instance_id="lobby-9", group="lobby", incarnation=10**6 * 1024, state=RUNNING, plan_hash="a"
    )
    ticketed(TICKETS, run, node=N1, serial=50)
    run.plan_hash = "b"
    assert [stray.ours for stray in world.open(N1, run)] == [False]


def test_a_known_run_needs_no_ticket(world):
    """One of a daemon from before tickets, or of a published one."""
    record = world.record("lobby-1")
    assert world.open(N1, run_of(record, ticket="")) == []
    assert world.record("lobby-1").state == "RUNNING"


def test_a_copy_that_lost_is_told_to_end_and_decided_only_where_it_is_proven(world):
    old = world.record("lobby-1")
    newer = msgspec.structs.replace(old, incarnation=old.incarnation + 1024, node=NodeId("n2"))
    world.do(lambda ws: ws.put_instance(newer))
    for ticket, ours in (("", False), (TICKETS.of(old), True)):
        [stray] = world.open(N1, run_of(old, ticket=ticket))
        assert (stray.stop, stray.ours) == (True, ours)
    assert world.record("lobby-1") == newer


def test_a_transaction_writes_the_reservations_that_it_changes_and_no_others(world):
    """Else to adopt n runs of a node costs n²."""
    ws = world.workspace()
    held = ws.reservation(N1, "lobby-1")
    ws.set_reservation(N1, "a", held)
    mark = ws.mark()
    for number in range(1000):
        ws.set_reservation(N1, f"i-{number}", held)
    assert ws.usage(N1).runs == 1002
    ws.back_to(mark)
    assert ws.usage(N1).runs == 2
    assert [step.id for step in ws.steps()] == [f"{N1}/a"]
    assert world.reserved(N1) == ["lobby-1"]


def test_times_of_nodes_are_held_against_our_clock(world):
    now = world.now
    milliseconds = int(now.timestamp() * 1000)
    assert reported_time(milliseconds - 5000, now).timestamp() == now.timestamp() - 5
    assert reported_time(milliseconds + 5000, now) == now
    for future in (253_402_300_799_000, 2**62, 2**63 - 1):
        assert reported_time(future, now) == now
    for none in (0, -1, -(2**62), 1):
        assert reported_time(none, now) is None


def test_beside_a_record_that_has_ended_an_earlier_run_without_a_ticket_is_left_alone(world):
    old = world.record("lobby-1")
    ended = msgspec.structs.replace(old, incarnation=old.incarnation + 1024, state=InstanceState.STOPPED)
    world.do(lambda ws: ws.put_instance(ended))
    [stray] = world.open(N1, run_of(old, ticket=""))
    assert (stray.stop, stray.ours) == (False, False)
    [stray] = world.open(N1, run_of(old))
    assert (stray.stop, stray.ours) == (True, True)
    late = wire.InstanceStatusUpdate(instance_id=old.id, incarnation=old.incarnation, state=RUNNING)
    assert fold_report(world.workspace(), N1, report_of(late, world.now)) is None


def test_a_run_with_a_higher_number_that_nobody_proves_does_not_get_the_known_one_ended(world):
    record = world.record("lobby-1")
    forged = run_of(record, incarnation=record.incarnation + 10 * 1024)
    [stray] = world.open(N1, forged, run_of(record, ticket=""))
    assert (stray.incarnation, stray.stop, stray.ours) == (forged.incarnation, False, False)
    assert world.record("lobby-1").state == "RUNNING"
    assert world.record("lobby-1").incarnation == record.incarnation


def test_a_newer_run_that_a_ticket_proves_ends_the_known_one(world):
    record = world.record("lobby-1")
    newer = ticketed(TICKETS, run_of(record, incarnation=record.incarnation + 10 * 1024), node=N1, serial=9)
    [stray] = world.open(N1, newer, run_of(record))
    assert (stray.incarnation, stray.stop, stray.ours) == (record.incarnation, True, True)
    assert world.record("lobby-1").incarnation == newer.incarnation


def test_an_earlier_run_beside_the_known_one_is_ended_with_or_without_a_ticket(world):
    record = world.record("lobby-1")
    older = run_of(record, incarnation=record.incarnation - 1024, ticket="")
    [stray] = world.open(N1, run_of(record), older)
    assert (stray.incarnation, stray.stop, stray.ours) == (older.incarnation, True, False)


def test_a_run_that_is_listed_twice_is_not_ended(world):
    record = world.record("lobby-1")
    assert world.open(N1, run_of(record), run_of(record)) == []
