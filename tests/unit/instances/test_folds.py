"""Reports as folds: several in one transaction, stale ones, ends, crash loops."""

from __future__ import annotations

import datetime as dt
import itertools

import msgspec
import pytest
from world import N1, NOW, TICKETS, World, spec

from corral.controller.instances.crash_loops import end_pause, pause_of
from corral.controller.instances.group_changes import create_group, scale_group
from corral.controller.instances.instance_changes import (
    kill_instance,
    restart_instance,
    start_instance,
    stop_instance,
)
from corral.controller.instances.instance_commands import InstanceCommands
from corral.controller.instances.node_commands import NodeCommands
from corral.controller.instances.node_inventory import add_listed
from corral.controller.instances.node_reports import InstanceReports
from corral.controller.instances.order_answers import fold_start_answer, fold_stop_answer
from corral.controller.instances.orders import OrderKind, first_delay, order_for
from corral.controller.instances.report_values import exit_record, report_of
from corral.controller.instances.reports import fold_crash, fold_report
from corral.controller.instances.run_exits import end_run
from corral.controller.instances.run_match import RunRelation, run_relation
from corral.controller.instances.stage_events import StageEvents
from corral.controller.workload.vitals import Vitals
from corral.domain.groups.group import CrashLoopSpec, PortSpec, RestartOn, RestartSpec
from corral.domain.groups.instance_records import StartFailure
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, reported
from corral.errors import IllegalTransition
from corral.store.port import Put
from corral.system.clock import SystemClock
from corral.testing.scripted_peers import ticketed
from corral.wire.frame_table import node_frame
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonMessage

S = wire.InstanceState


@pytest.fixture
def world() -> World:
    world = World()
    world.do(create_group, spec(ports={}, memory_mb=100))
    world.do(start_instance, "lobby")
    return world


def status(world, state, id="lobby-1", *, incarnation=None, **fields):
    incarnation = world.record(id).incarnation if incarnation is None else incarnation
    return wire.InstanceStatusUpdate(instance_id=id, incarnation=incarnation, state=state, **fields)


def crash(world, id="lobby-1", **fields):
    exit = wire.ExitStatus(known=True, code=1, outcome="crashed", summary="exit 1")
    incarnation = world.record(id).incarnation
    return wire.CrashReport(instance_id=id, group="lobby", incarnation=incarnation, exit=exit, **fields)


def reports(world) -> InstanceReports:
    def unused(*_):
        raise AssertionError("not in a fold")

    return InstanceReports(
        state=world.state,
        vitals=Vitals(world.state, monotonic=lambda: 0.0),
        stages=StageEvents(unused, clock=SystemClock()),
        workspace=world.workspace,
        numbers=unused,
        tickets=TICKETS,
        dispatcher=unused,
        drain_orders=unused,
        commands=InstanceCommands(ledger=unused, sessions=unused, entropy=unused),
        node_commands=NodeCommands(links=unused, entropy=unused),
        refused=unused,
        clock=SystemClock(),
        on_inventory_complete=unused,
    )


def test_several_messages_about_one_instance_are_one_write_and_every_event(world):
    messages = [
        DaemonMessage(instance_status=status(world, state))
        for state in (S.INSTANCE_STATE_PREPARING, S.INSTANCE_STATE_STARTING, S.INSTANCE_STATE_RUNNING)
    ]
    messages.append(DaemonMessage(crash_report=crash(world)))
    folded = reports(world).fold(N1, [node_frame(message) for message in messages])
    puts = [step for step in folded.steps if isinstance(step, Put)]
    assert sorted(put.collection for put in puts) == ["crashes", "groups", "instances"]
    world.apply(folded.steps)
    assert world.record("lobby-1").state is InstanceState.CRASHED
    assert world.types()[-4:] == [
        "INSTANCE_PREPARING",
        "INSTANCE_STARTING",
        "INSTANCE_RUNNING",
        "INSTANCE_CRASHED",
    ]
    assert world.reserved("n1") == []


def test_a_message_that_cannot_be_taken_does_not_keep_the_others(world):
    bad = DaemonMessage(crash_report=crash(world))
    bad.crash_report.exit.ended_at_ms = 2**62
    good = DaemonMessage(instance_status=status(world, S.INSTANCE_STATE_RUNNING))
    strange = DaemonMessage(instance_status=wire.InstanceStatusUpdate(instance_id="\0" * 10, state=77))
    folded = reports(world).fold(N1, [node_frame(message) for message in (strange, good, bad)])
    world.apply(folded.steps)
    assert world.record("lobby-1").state is InstanceState.CRASHED


def test_a_run_that_becomes_ready_or_is_so_no_more_is_told_by_an_event(world):
    waiting, ready = wire.READINESS_WAITING, wire.READINESS_READY
    story = [
        (waiting, ""),
        (waiting, "late words"),
        (ready, ""),
        (ready, "late words"),
        (waiting, "it closed its port"),
    ]
    for readiness, reason in story:
        update = status(world, S.INSTANCE_STATE_RUNNING, readiness=readiness, reason=reason)
        world.do(fold_report_of(N1, update))
    told = [event.data for event in world.events if event.type == "INSTANCE_READY_CHANGED"]
    assert [(each["ready"], each["reason"]) for each in told] == [(True, ""), (False, "it closed its port")]
    running = next(event for event in world.events if event.type == "INSTANCE_RUNNING")
    assert running.data["ready"] is False
    assert world.record("lobby-1").reason == "it closed its port"


def clean(**fields) -> wire.ExitStatus:
    return wire.ExitStatus(
        known=True, code=0, outcome="ended", summary="exited with code 0, by itself", **fields
    )


@pytest.mark.trap("T88")
def test_clean_ends_that_the_node_follows_up_are_told_and_count_as_no_failure(world):
    first = world.record("lobby-1").incarnation
    for number in range(1, 8):
        update = status(
            world,
            S.INSTANCE_STATE_SCHEDULED,
            incarnation=first + number,
            former_exit=clean(),
            reason="restarts in 4.9 s, 5 s after its last start at the earliest",
        )
        world.do(fold_report_of(N1, update))
    assert (world.record("lobby-1").restarts, world.record("lobby-1").state) == (7, "SCHEDULED")
    assert (world.group().failures, world.group().paused) == ((), None)
    ends = [event.data for event in world.events if event.type == "INSTANCE_STOPPED"]
    assert [each["restarted_as"] for each in ends] == [first + number for number in range(1, 8)]
    assert {each["exit"]["outcome"] for each in ends} == {"ended"}
    assert (
        b"its node starts it again: restarts in 4.9 s, 5 s after its last start" in world.decisions[-1].body
    )


def test_a_clean_end_that_its_node_tells_again_is_one_end(world):
    """A node whose disk is full tells it over the link, and once more from its spool."""
    first = world.record("lobby-1").incarnation
    told = [
        status(world, S.INSTANCE_STATE_SCHEDULED, incarnation=first + number, former_exit=clean())
        for number in (1, 2)
    ]
    for update in (told[0], told[0], told[1], *told):
        world.do(fold_report_of(N1, update))
    ends = [event.data["incarnation"] for event in world.events if event.type == "INSTANCE_STOPPED"]
    assert ends == [first, first + 1]
    assert world.record("lobby-1").incarnation == first + 2


async def test_a_node_is_asked_for_the_end_of_a_run_that_it_had_announced_and_does_not_list(world):
    """A store that was put back may have heard the announcement alone; a start of ours is ordered again instead."""
    first = world.record("lobby-1").incarnation
    assert await reports(world).unaccounted(N1, []) == []
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_SCHEDULED, incarnation=first + 1)))
    (asked,) = await reports(world).unaccounted(N1, [])
    assert (asked.instance_id, asked.incarnation) == ("lobby-1", first + 1)


@pytest.mark.parametrize("on", ["failure", "never"])
def test_what_ended_by_itself_stays_ended_and_one_fewer_is_wanted(on):
    world = World()
    world.do(create_group, spec(restart=RestartSpec(on=RestartOn(on))))
    world.do(scale_group, "lobby", 2)
    for _ in range(2):
        world.do(start_instance, "lobby")
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_STOPPED, exit=clean(ended_at_ms=1))))
    record = world.record("lobby-1")
    assert (record.state, record.exit.outcome, record.exit.crashed) == ("STOPPED", "ended", False)
    assert (world.group().target, world.group().failures) == (1, ())


@pytest.mark.parametrize(
    ("on", "outcome", "target"),
    [
        ("never", "crashed", 1),
        ("failure", "crashed", 2),
        ("never", "host_rebooted", 2),
        ("never", "start_failed", 2),
    ],
)
def test_nothing_follows_a_crash_where_nothing_is_started_again(on, outcome, target):
    world = World()
    world.do(create_group, spec(restart=RestartSpec(on=RestartOn(on))))
    world.do(scale_group, "lobby", 2)
    for _ in range(2):
        world.do(start_instance, "lobby")
    exit = wire.ExitStatus(known=True, code=3, outcome=outcome, ended_at_ms=1)
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_CRASHED, exit=exit)))
    assert world.record("lobby-1").state == "CRASHED"
    assert world.group().target == target


def test_a_node_that_has_no_number_left_leaves_the_next_start_to_the_controller(world):
    first = world.record("lobby-1").incarnation
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_STOPPED, exit=clean(ended_at_ms=1))))
    record = world.record("lobby-1")
    assert (record.state, record.incarnation > first) == ("SCHEDULED", True)


@pytest.mark.parametrize("outcome", ["start_failed", "never_started"])
def test_what_never_ran_has_no_exit_code_whatever_an_earlier_daemon_says(outcome):
    found = exit_record(wire.ExitStatus(known=True, outcome=outcome), crashed=True, now=NOW)
    assert (found.known, found.code, found.signal) == (False, None, None)


def refusal(world, message: str, *, retry_after_seconds: int = 0) -> wire.StartInstanceAck:
    return wire.StartInstanceAck(
        instance_id="lobby-1",
        incarnation=world.record("lobby-1").incarnation,
        error_code="PORT_IN_USE",
        error_message=message,
        stage=wire.START_PREPARATION_STAGE_VALIDATION,
        failure_disposition=wire.START_FAILURE_DISPOSITION_TRANSIENT,
        retry_after_seconds=retry_after_seconds,
    )


def with_ports(low: int, high: int) -> World:
    world = World()
    world.do(create_group, spec(ports={"primary": PortSpec(range=(low, high))}))
    world.do(start_instance, "lobby")
    return world


def test_a_port_that_lingers_is_waited_for_where_there_is_no_other():
    world = with_ports(80, 80)
    world.do(fold_start_answer, N1, refusal(world, "port 80/tcp is not free yet", retry_after_seconds=42))
    record = world.record("lobby-1")
    assert (record.state, record.ports[0].port, record.attempts) == ("SCHEDULED", 80, 1)
    assert first_delay(record, 5.0) == 42
    assert world.group().failures == ()


def test_where_there_is_another_port_nothing_waits_for_one_that_lingers():
    world = with_ports(80, 81)
    world.do(fold_start_answer, N1, refusal(world, "port 80/tcp is not free yet", retry_after_seconds=42))
    record = world.record("lobby-1")
    assert (record.ports[0].port, first_delay(record, 5.0)) == (81, 0)


def test_the_last_refused_port_of_a_range_says_that_none_is_left():
    world = with_ports(80, 81)
    for number in (80, 81):
        world.do(fold_start_answer, N1, refusal(world, f"port {number} is in use; it is tried again"))
    record = world.record("lobby-1")
    assert (record.state, record.start_failure.code) == ("CRASHED", "PORT_RANGE_EXHAUSTED")
    assert "no port is left (n1: port 'primary': each of 80-81" in record.reason
    assert record.reason.endswith("the last refusal: port 81 is in use")


def test_what_a_run_waits_for_is_shown_until_it_is_ready_and_never_stored(world):
    heard = reports(world)
    vitals = heard._vitals
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_RUNNING, readiness=wire.READINESS_WAITING)))
    revision = world.state.instances.require("lobby-1").revision
    stage = wire.START_PREPARATION_STAGE_PROCESS_START
    words = status(world, S.INSTANCE_STATE_RUNNING, stage=stage, reason="nothing listens on 1/tcp yet")
    heard.transient(N1, words, spooled=False)
    vitals.resync()
    found = vitals.find("lobby-1")
    assert (found.waits_for, found.stage) == ("nothing listens on 1/tcp yet", "")
    assert world.state.instances.require("lobby-1").revision == revision
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_RUNNING, readiness=wire.READINESS_READY)))
    vitals.resync()
    assert vitals.find("lobby-1").waits_for == ""


@pytest.mark.trap("T49")
@pytest.mark.parametrize("offset", [-1024, -1023, -1])
def test_words_about_an_earlier_run_change_nothing(world, offset):
    world.do(stop_instance, "lobby-1", reason="x")
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_STOPPED)))
    world.do(restart_instance, "lobby-1", reason="x")
    before = world.record("lobby-1")
    late = status(world, S.INSTANCE_STATE_CRASHED, incarnation=before.incarnation + offset)
    ws = world.workspace()
    assert fold_report(ws, N1, report_of(late, NOW)) is None
    assert ws.steps() == ()


def fold_report_of(node, message):
    return lambda ws: fold_report(ws, node, report_of(message, NOW))


def test_a_live_run_of_an_earlier_start_is_a_stray_and_one_on_another_node_too(world):
    record = world.record("lobby-1")
    stale = status(world, S.INSTANCE_STATE_RUNNING, incarnation=record.incarnation - 512)
    assert fold_report(world.workspace(), N1, report_of(stale, NOW)).incarnation == record.incarnation - 512
    other = NodeId("n2")
    assert "n1" in fold_report(world.workspace(), other, report_of(stale, NOW)).reason
    claimed = report_of(status(world, S.INSTANCE_STATE_RUNNING), NOW)
    assert fold_report(world.workspace(), other, claimed) is None, "the present run is not that node's"


def test_kinship_of_runs(world):
    record = world.record("lobby-1")
    first = record.incarnation
    relations = {offset: run_relation(record, first + offset) for offset in (0, 1, 1024, -1024)}
    assert relations == {
        0: RunRelation.SAME,
        1: RunRelation.RESTARTED,
        1024: RunRelation.FOREIGN,
        -1024: RunRelation.STALE,
    }
    assert run_relation(record, 0) is RunRelation.SAME, (
        "a peer without incarnations speaks of the present run"
    )


COURSE = (
    InstanceState.SCHEDULED,
    InstanceState.PREPARING,
    InstanceState.STARTING,
    InstanceState.RUNNING,
    InstanceState.DRAINING,
    InstanceState.STOPPING,
)
ENDS = (InstanceState.STOPPED, InstanceState.CRASHED)


def test_a_report_may_skip_states_and_never_goes_back():
    for (place, current), (other, told) in itertools.product(enumerate(COURSE), repeat=2):
        assert reported(current, told) is (told if other > place else current)
    for state in COURSE:
        assert reported(InstanceState.OFFLINE, state) is state
        assert reported(state, InstanceState.OFFLINE) is state
        for end in ENDS:
            assert reported(state, end) is end
            assert reported(end, state) is end
            assert reported(InstanceState.OFFLINE, end) is end
    assert reported(*ENDS) is InstanceState.STOPPED
    assert reported(*reversed(ENDS)) is InstanceState.CRASHED


@pytest.mark.parametrize("told", [state for state in S.values() if state])
@pytest.mark.parametrize("state", list(InstanceState))
def test_whatever_state_a_node_reports_its_record_takes_it_or_stays_and_nothing_raises(world, state, told):
    record = world.record("lobby-1")
    if state in ENDS:
        world.do(end_run, record, state, None, reason="it ended")
    else:
        before = InstanceState.RUNNING if state is InstanceState.OFFLINE else None
        changed = msgspec.structs.replace(record, state=state, state_before_offline=before)
        world.do(lambda ws: ws.put_instance(changed))
    name = InstanceState[S.Name(told).removeprefix("INSTANCE_STATE_")]
    world.do(fold_report, N1, report_of(status(world, told), NOW))
    assert world.record("lobby-1").state is reported(state, name)


def test_a_run_that_ended_cannot_end_again_and_the_refusal_tells_how_it_ended(world):
    ended = world.do(end_run, world.record("lobby-1"), InstanceState.CRASHED, None, reason="out of memory")
    with pytest.raises(IllegalTransition) as caught:
        end_run(world.workspace(), ended, InstanceState.STOPPED, None, reason="stopped")
    for part in ("instance 'lobby-1' is CRASHED", f"run {ended.incarnation} on 'n1'", "(out of memory)"):
        assert part in caught.value.message


@pytest.mark.trap("T20")
def test_a_crash_while_it_is_being_stopped_is_no_failure_and_starts_nothing(world):
    world.do(stop_instance, "lobby-1", reason="enough")
    world.do(lambda ws: fold_crash(ws, N1, crash(world)))
    assert world.record("lobby-1").state is InstanceState.CRASHED
    assert world.group().failures == ()
    assert order_for(world.record("lobby-1")) is None


def test_a_wanted_restart_survives_a_crash_on_the_way(world):
    old = world.record("lobby-1").incarnation
    world.do(restart_instance, "lobby-1", reason="please")
    world.do(lambda ws: fold_crash(ws, N1, crash(world)))
    record = world.record("lobby-1")
    assert record.state is InstanceState.SCHEDULED
    assert record.incarnation > old
    assert order_for(record).kind is OrderKind.START
    assert world.reserved("n1") == ["lobby-1"]


def test_one_crash_told_twice_counts_once(world):
    report = crash(world)
    world.do(lambda ws: fold_crash(ws, N1, report))
    world.do(lambda ws: fold_crash(ws, N1, report))
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_CRASHED)))
    assert len(world.group().failures) == 1
    assert world.types().count("INSTANCE_CRASHED") == 1


def test_what_is_learned_late_about_an_end_is_added_to_it(world):
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_CRASHED)))
    assert not world.record("lobby-1").exit.known
    world.do(lambda ws: fold_crash(ws, N1, crash(world)))
    assert world.record("lobby-1").exit.code == 1
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_CRASHED, console_offset=99)))
    assert world.record("lobby-1").console_end == 99


def test_a_rebooted_host_is_no_failure_of_the_group(world):
    exit = wire.ExitStatus(known=False, outcome="host_rebooted", summary="the host was rebooted")
    world.do(fold_report_of(N1, status(world, S.INSTANCE_STATE_CRASHED, exit=exit)))
    assert world.group().failures == ()


def test_repeated_orders_are_answered_with_what_is(world):
    world.do(stop_instance, "lobby-1", reason="x")
    ws = world.workspace()
    stop_instance(ws, "lobby-1", reason="again")
    assert ws.steps() == ()
    killed = world.do(kill_instance, "lobby-1", reason="now")
    assert killed.force_stop
    assert order_for(killed).force


def test_pauses_double_up_to_their_bound_and_calm_resets_them(world):
    rule = CrashLoopSpec(pause_seconds=60, max_pause_seconds=3600)
    assert [pause_of(rule, n).total_seconds() for n in (1, 2, 3, 7, 40)] == [60, 120, 240, 3600, 3600]
    for _ in range(3):
        fail(world)
    assert world.group().paused.pauses == 1
    world.now += dt.timedelta(days=1)
    world.do(lambda ws: end_pause(ws, ws.group("lobby"), by="time"))
    fail(world)
    assert world.group().pauses == 0, "after a day of calm one failure is the first again"


def fail(world) -> None:
    record = world.do(start_instance, "lobby")
    world.do(lambda ws: fold_crash(ws, N1, crash(world, record.id)))


def test_refused_starts_are_held_back_longer_each_time(world):
    failure = StartFailure(stage="VALIDATION", code="SPAWN_FAILED", message="no", permanent=False)
    record = msgspec.structs.replace(world.record("lobby-1"), start_failure=failure)
    delays = [first_delay(msgspec.structs.replace(record, attempts=n), 5.0) for n in (0, 1, 2, 3)]
    assert delays == [0.0, 5.0, 10.0, 20.0]


def test_exit_codes_and_signals_are_told_apart():
    by_code = exit_record(wire.ExitStatus(known=True, code=137), crashed=True, now=dt.datetime.now(dt.UTC))
    by_signal = exit_record(wire.ExitStatus(known=True, signal=9), crashed=True, now=dt.datetime.now(dt.UTC))
    assert (by_code.code, by_code.signal) == (137, None)
    assert (by_signal.code, by_signal.signal) == (None, 9)


def listed(id, incarnation, state) -> wire.RunningInstance:
    return wire.RunningInstance(instance_id=id, group="lobby", incarnation=incarnation, state=state)


def test_the_end_of_an_earlier_run_does_not_stand_for_the_one_that_should_be_there(world):
    first = world.record("lobby-1").incarnation
    world.do(lambda ws: fold_crash(ws, N1, crash(world, restarted_as=first + 1)))
    assert world.record("lobby-1").incarnation == first + 1
    world.reconcile_listed(N1, listed("lobby-1", first, S.INSTANCE_STATE_CRASHED))
    assert world.record("lobby-1").state is InstanceState.STOPPED
    assert world.record("lobby-1").exit.outcome == "never_started"


@pytest.mark.trap("T65")
def test_a_start_that_was_stopped_is_not_run_again_by_its_node(world):
    """By a report, by a handshake, and by a crash that names a run after it."""
    first = world.record("lobby-1").incarnation
    running, stopped = S.INSTANCE_STATE_RUNNING, S.INSTANCE_STATE_STOPPED

    def tell(state, incarnation):
        report = report_of(status(world, state, incarnation=incarnation), NOW)
        return world.do(lambda ws: fold_report(ws, N1, report))

    tell(running, first)
    world.do(stop_instance, "lobby-1", reason="enough")
    tell(stopped, first)
    over = world.record("lobby-1")
    assert over.state is InstanceState.STOPPED
    stray = tell(running, first + 1)
    assert (stray.incarnation, stray.stop) == (first + 1, True)
    [stray] = world.open(N1, listed("lobby-1", first + 2, running))
    assert (stray.incarnation, stray.stop) == (first + 2, True)
    world.do(lambda ws: fold_crash(ws, N1, crash(world, restarted_as=first + 3)))
    after = world.record("lobby-1")
    assert (after.state, after.incarnation, after.restarts) == (over.state, first, over.restarts)


@pytest.mark.trap("T65")
def test_of_runs_that_are_listed_of_one_instance_the_newest_few_are_looked_at():
    entries = [listed("lobby-1", number, S.INSTANCE_STATE_RUNNING) for number in (*range(1, 500), 40, 900)]
    found: dict[str, list[wire.RunningInstance]] = {}
    add_listed(found, entries[:300])
    add_listed(found, entries[300:])
    assert [run.incarnation for run in found["lobby-1"]] == [900, *range(499, 484, -1)]


def test_a_run_that_its_node_restarted_by_itself_shows_nothing_of_starts_before_it(world):
    refused = wire.StartInstanceAck(
        instance_id="lobby-1",
        incarnation=world.record("lobby-1").incarnation,
        error_code="CACHE_DOWNLOAD_FAILED",
        error_message="nobody answers",
        failure_disposition=wire.START_FAILURE_DISPOSITION_TRANSIENT,
    )
    world.do(lambda ws: fold_start_answer(ws, N1, refused))
    assert world.record("lobby-1").start_failure is not None
    first = world.record("lobby-1").incarnation
    node = world.record("lobby-1").node
    world.open(node, listed("lobby-1", first + 1, S.INSTANCE_STATE_PREPARING))
    record = world.record("lobby-1")
    assert (record.state, record.incarnation) == (InstanceState.PREPARING, first + 1)
    assert (record.reason, record.start_failure) == ("", None)


def stale_answer(world, incarnation: int) -> wire.StopInstanceAck:
    return wire.StopInstanceAck(
        instance_id="lobby-1", incarnation=incarnation, accepted=False, error_code="STALE_INCARNATION"
    )


def test_a_start_that_waits_for_its_turn_is_over_when_it_is_stopped(world):
    older = world.record("lobby-1").incarnation
    refused = wire.StartInstanceAck(
        instance_id="lobby-1",
        incarnation=older,
        error_code="CACHE_DOWNLOAD_FAILED",
        error_message="nobody answers",
        failure_disposition=wire.START_FAILURE_DISPOSITION_TRANSIENT,
    )
    world.do(lambda ws: fold_start_answer(ws, N1, refused))
    held = world.record("lobby-1")
    assert (held.state, held.incarnation > older) == (InstanceState.SCHEDULED, True)
    world.do(lambda ws: fold_stop_answer(ws, N1, stale_answer(world, older)))
    assert world.record("lobby-1").state is InstanceState.SCHEDULED, "nobody wants it stopped"
    world.do(stop_instance, "lobby-1", reason="no more")
    world.do(lambda ws: fold_stop_answer(ws, N1, stale_answer(world, older)))
    assert world.record("lobby-1").state is InstanceState.STOPPED
    assert world.record("lobby-1").exit.outcome == "never_started"


def test_an_adopted_start_that_its_node_lost_is_over_for_nobody_can_send_it_again(world):
    run = listed("lobby-5", 900 * 1024, S.INSTANCE_STATE_SCHEDULED)
    world.open(N1, ticketed(TICKETS, run, node=N1, serial=50))
    assert world.record("lobby-5").adopted
    world.reconcile_listed(N1)
    assert world.record("lobby-5").state is InstanceState.STOPPED
    assert world.record("lobby-1").state is InstanceState.SCHEDULED, "ours is sent again"


def test_views_of_nodes_that_a_transaction_did_not_touch_are_made_once(world):
    world.add_node(NodeId("n2"))
    ws = world.workspace()
    before = {view.id: view for view in ws.nodes()}
    start_instance(ws, "lobby", node="n1")
    after = {view.id: view for view in ws.nodes()}
    assert after["n2"] is before["n2"]
    assert after["n1"].usage.memory_mb == before["n1"].usage.memory_mb + 100
    mark = ws.mark()
    start_instance(ws, "lobby", node="n2")
    ws.back_to(mark)
    assert {view.id: view.usage for view in ws.nodes()} == {id: view.usage for id, view in after.items()}


def test_the_sentence_of_an_earlier_node_loses_the_line_of_the_stop_ladder() -> None:
    sent = wire.ExitStatus(
        known=True, rung="command login hunter2", summary="stopped (command login hunter2): code 0"
    )
    assert exit_record(sent, crashed=False, now=NOW).summary == "stopped (command): code 0"
    signalled = wire.ExitStatus(known=True, rung="SIGTERM", summary="stopped (SIGTERM): signal 15")
    assert exit_record(signalled, crashed=False, now=NOW).summary == "stopped (SIGTERM): signal 15"
