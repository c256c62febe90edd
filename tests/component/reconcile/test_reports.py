"""What nodes say about runs: stale, repeated, refused, crashing, lost and found again."""

from __future__ import annotations

import asyncio
import time

import pytest
from pretend_node import TRANSIENT, S, refuse

from corral.cli.failure import CommandRefused
from corral.testing.waiting import eventually
from corral.wire.features import FEATURES
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonMessage

PORTS = {"primary": {"range": [30000, 30100]}}


@pytest.mark.trap("T22")
async def test_a_group_that_never_starts_is_left_alone_after_three_starts(fleet):
    await fleet.begin(reconcile__floor_seconds=0.2)
    node = await fleet.node("n1")
    missing = refuse("COMMAND_NOT_FOUND", "there is no 'serve'")
    node.on_start = lambda order: missing(order) if order.group == "lobby" else None
    await fleet.group(min=2)
    await eventually(lambda: fleet.group_record().paused)
    await eventually(lambda: fleet.alive() == [], state=fleet.states)
    sent = len(node.ordered)
    assert sent <= 4
    await fleet.group("other", min=1)
    await fleet.running(1, "other")
    seen = fleet.term.reconciler._floor_at
    await eventually(lambda: fleet.term.reconciler._floor_at > seen)
    assert len([s for s in node.ordered if s.group == "lobby"]) == sent
    paused = fleet.group_record()
    assert paused.paused.pauses == 1
    assert "paused" in paused.reason
    started = await fleet.events("CRASH_LOOP_STARTED")
    assert [event["subject"] for event in started] == ["lobby"]
    node.on_start = None
    await fleet.controller.call("POST", "/api/v1/groups/lobby/unpause")
    await fleet.running(2)
    assert fleet.group_record().pauses == 0


async def test_a_pause_ends_by_time_and_the_next_one_is_longer(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.on_start = refuse("COMMAND_NOT_FOUND")
    rule = {"failures": 2, "within_seconds": 300, "pause_seconds": 1, "max_pause_seconds": 60}
    await fleet.group(min=1, crash_loop=rule)
    await eventually(lambda: fleet.group_record().paused)
    assert len(node.ordered) == 2
    await eventually(lambda: fleet.group_record().paused and fleet.group_record().paused.pauses == 2)
    paused = fleet.group_record().paused
    assert len(node.ordered) == 3, "after a pause it is tried once, not as often as before"
    ended = await fleet.events("CRASH_LOOP_ENDED")
    assert ended[0]["data"]["by"] == "time"
    assert (paused.until - paused.since).total_seconds() == 2


async def test_a_port_in_use_leads_to_the_next_one_under_the_same_id(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    busy = refuse("PORT_IN_USE", "port {port}/tcp is in use", disposition=TRANSIENT)
    node.on_start = lambda order: busy(order) if order.port < 30002 else None
    await fleet.group(min=1, ports=PORTS)
    assert await fleet.running(1) == ["lobby-1"]
    assert [start.port for start in node.ordered] == [30000, 30001, 30002]
    assert len({start.incarnation for start in node.starts}) == 3
    assert fleet.group_record().failures == ()
    node.on_start = None
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.running(2)
    assert node.starts[-1].port == 30003, "what a node refused is busy for a while"


@pytest.mark.trap("T24")
@pytest.mark.parametrize("protocol", ["tcp", "udp", "both"])
async def test_the_port_of_a_slow_stop_is_not_leased_again_before_it_is_over(fleet, protocol):
    await fleet.begin()
    node = await fleet.node("n1")
    node.slow_stops = True
    await fleet.group(min=1, ports={"primary": {"range": [30000, 30001], "protocol": protocol}})
    await fleet.running(1)
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/stop", {})
    await fleet.reaches("lobby-2", "RUNNING")
    assert fleet.record("lobby-1").state == "STOPPING"
    assert fleet.record("lobby-2").ports[0].port == 30001
    with pytest.raises(Exception, match="taken") as refused:
        await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    assert refused.value.code == "PORT_RANGE_EXHAUSTED"
    await node.stopped("lobby-1")
    await fleet.reaches("lobby-1", "STOPPED")
    started = await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    assert started["port"] == 30000


async def test_tcp_and_udp_of_one_number_go_to_two_instances(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group("web", min=1, ports={"primary": {"port": 30000, "protocol": "tcp"}})
    await fleet.group("game", min=1, ports={"primary": {"port": 30000, "protocol": "udp"}})
    await fleet.running(1, "web")
    await fleet.running(1, "game")
    await fleet.group("late", min=1, ports={"primary": {"port": 30000, "protocol": "udp"}})
    await eventually(lambda: fleet.group_record("late").reason.startswith("PORT_RANGE_EXHAUSTED"))


@pytest.mark.trap("T49")
async def test_late_words_about_an_earlier_run_change_nothing(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    old = fleet.record("lobby-1").incarnation
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/restart", {})
    await eventually(lambda: fleet.record("lobby-1").incarnation > old)
    await fleet.running(1)
    now = fleet.record("lobby-1")
    for state in (S.INSTANCE_STATE_STOPPED, S.INSTANCE_STATE_CRASHED):
        late = wire.InstanceStatusUpdate(instance_id="lobby-1", incarnation=old, state=state)
        await node.spool(DaemonMessage(instance_status=late))
    ack = wire.StopInstanceAck(instance_id="lobby-1", incarnation=old, error_code="NOT_FOUND")
    await node.tell(DaemonMessage(stop_instance_ack=ack))
    await eventually(lambda: not node._spool)
    assert fleet.record("lobby-1") == now
    assert {stop.incarnation for stop in node.stops} == {old}


async def test_states_never_go_back_and_an_end_is_final(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group()
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.running(1)
    await node.report("lobby-1", S.INSTANCE_STATE_PREPARING)
    await eventually(lambda: not node._spool)
    assert fleet.record("lobby-1").state == "RUNNING"
    run = wire.RunningInstance()
    run.CopyFrom(node.runs["lobby-1"])
    await node.crash("lobby-1")
    await fleet.reaches("lobby-1", "CRASHED")
    node.runs["lobby-1"] = run
    await node.report("lobby-1", S.INSTANCE_STATE_RUNNING)
    await eventually(lambda: node.stops)
    assert fleet.record("lobby-1").state == "CRASHED"
    assert "given up" in node.stops[0].reason


async def test_a_stop_follows_the_run_that_its_node_began_meanwhile(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.slow_stops = True
    await fleet.group()
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.running(1)
    node.deaf = True
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/stop", {})
    await eventually(lambda: node.stops)
    node.deaf = False
    await node.crash("lobby-1", restart=True)
    await eventually(lambda: node.stops[-1].incarnation == node.runs["lobby-1"].incarnation)
    await node.stopped("lobby-1")
    await fleet.reaches("lobby-1", "STOPPED")
    assert fleet.group_record().failures == ()


async def test_a_run_that_its_node_began_after_its_handshake_is_not_missing(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await node.drop()
    await fleet.reaches("lobby-1", "OFFLINE")
    await node.report("lobby-1", S.INSTANCE_STATE_RUNNING)  # in its spool at the handshake
    listed = wire.RunningInstance.FromString(node.runs["lobby-1"].SerializeToString())
    head = node.written
    await node.crash("lobby-1", restart=True)  # and this behind it, before anything was taken in
    await node.connect(head=head, running_instances=[listed])
    await eventually(lambda: len(fleet.alive()) == 1 and fleet.alive()[0].incarnation > listed.incarnation)
    await node.report("lobby-1", S.INSTANCE_STATE_RUNNING)
    await fleet.reaches("lobby-1", "RUNNING")
    assert fleet.record("lobby-1").incarnation == node.runs["lobby-1"].incarnation == listed.incarnation + 1
    assert (len(node.ordered), node.stops) == (1, [])
    assert [event["data"]["restarted_as"] for event in await fleet.events("INSTANCE_CRASHED")] == [
        listed.incarnation + 1
    ]


async def test_instances_of_a_lost_node_are_offline_and_come_back(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=2)
    await fleet.running(2)
    pids = [record.incarnation for record in fleet.alive()]
    await node.drop()
    await fleet.reaches("lobby-1", "OFFLINE")
    await fleet.reaches("lobby-2", "OFFLINE")
    await node.connect()
    await fleet.running(2)
    assert [record.incarnation for record in fleet.alive()] == pids
    assert len(node.ordered) == 2
    assert len(await fleet.events("INSTANCE_OFFLINE")) == 2


async def test_an_end_during_the_outage_is_known_from_the_spool(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group()
    for _ in range(3):
        await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.running(3)
    await node.drop()
    await node.stopped("lobby-1")
    await node.crash("lobby-2", code=7)
    del node.runs["lobby-3"]  # it is simply gone, and the node does not know why
    await node.connect()
    await fleet.reaches("lobby-1", "STOPPED")
    await fleet.reaches("lobby-2", "CRASHED")
    gone = await fleet.reaches("lobby-3", "CRASHED")
    assert fleet.record("lobby-1").exit.outcome == "stopped"
    assert fleet.record("lobby-2").exit.code == 7
    assert gone.exit.outcome == "unknown"
    assert len(fleet.group_record().failures) == 1, "what nobody knows is nobody's fault"
    assert not fleet.reservations().keys() & {"lobby-1", "lobby-2", "lobby-3"}


async def test_what_is_missing_is_judged_only_when_the_spool_was_taken_in(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group()
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.running(1)
    await node.drop()
    run = node.runs["lobby-1"]
    del node.runs["lobby-1"]
    await node.connect(head=node._written + 1)
    await eventually(lambda: fleet.controller.node_state("n1") == "ONLINE")
    before = fleet.state.number
    await fleet.controller.call("POST", "/api/v1/nodes/n1/cordon", {})
    assert fleet.state.number > before
    assert fleet.record("lobby-1").state == "RUNNING"
    node.runs["lobby-1"] = run
    await node.stopped("lobby-1")
    ended = await fleet.reaches("lobby-1", "STOPPED")
    assert ended.exit.outcome == "stopped"


async def test_a_run_that_the_store_does_not_know_is_adopted(fleet):
    await fleet.begin()
    node = await fleet.node("n1", connect=False)
    await fleet.group(min=1)
    number = 50_000_000 * 1024
    run = wire.RunningInstance(
        instance_id="lobby-7",
        group="lobby",
        incarnation=number,
        state=S.INSTANCE_STATE_RUNNING,
        memory_mb=100,
        ports=[wire.NamedPort(name="primary", port=30000, protocol="both")],
    )
    node.runs["lobby-7"] = fleet.ticketed(node, run)
    await node.connect()
    assert await fleet.running(1) == ["lobby-7"]
    assert node.starts == []
    assert fleet.record("lobby-7").adopted
    assert fleet.reservations()["lobby-7"].memory_mb == 100
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await fleet.running(2)
    assert node.starts[0].incarnation > number, "its number is not given out again"


async def test_a_copy_on_another_node_is_stopped_with_a_reason(fleet):
    await fleet.begin()
    one = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    two = await fleet.node("n2", connect=False)
    copy = wire.RunningInstance()
    copy.CopyFrom(one.runs["lobby-1"])
    copy.incarnation -= 1
    two.runs["lobby-1"] = copy
    await two.connect()
    await eventually(lambda: two.stops)
    assert "n1" in two.stops[0].reason
    assert two.stops[0].incarnation == copy.incarnation
    assert fleet.record("lobby-1").node == "n1"
    assert one.stops == []


async def test_a_report_without_its_required_field_is_complained_about_and_changes_nothing(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    before = fleet.state.instances.items()
    await node.spool(DaemonMessage(instance_status=wire.InstanceStatusUpdate(instance_id="lobby-1")))
    await node.spool(DaemonMessage(crash_report=wire.CrashReport(instance_id="lobby-1")))
    await eventually(lambda: not node._spool)
    assert fleet.state.instances.items() == before
    assert len(fleet.state.crashes) == 0


async def test_a_removed_node_takes_its_instances_along(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await node.drop()
    await fleet.reaches("lobby-1", "OFFLINE")
    other = await fleet.node("n2")
    await asyncio.sleep(0)
    assert other.starts == [], "out of reach is not dead"
    with pytest.raises(CommandRefused) as refused:
        await fleet.controller.call("DELETE", "/api/v1/nodes/n1")
    assert refused.value.code == "CONFIRMATION_REQUIRED"
    await fleet.controller.call("DELETE", "/api/v1/nodes/n1?confirm=n1")
    await fleet.reaches("lobby-1", "CRASHED")
    given_up = "given up with its node; it may still run there: 'corral local --data DIR stop-all' on that host ends it"
    assert fleet.record("lobby-1").exit.summary == given_up
    assert fleet.record("lobby-1").reason == f"node 'n1' was removed; {given_up}"
    assert await fleet.running(1) == ["lobby-2"]


async def test_when_a_node_was_last_seen_is_kept_when_it_goes_and_over_a_restart(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)

    async def last_seen():
        found = await fleet.controller.call("GET", "/api/v1/nodes/n1")
        instance = await fleet.controller.call("GET", "/api/v1/instances/lobby-1")
        assert instance["last_seen"] == found["last_seen"]
        return found["last_seen"]

    connected = fleet.term.sessions.live("n1").connected_at
    seen = await last_seen()
    await fleet.controller.app.stop()
    await fleet.begin()
    assert await last_seen() >= seen
    assert fleet.state.nodes.require("n1").record.last_seen > connected
    await node.drop()
    again = await fleet.node("n2")
    await again.drop()
    await eventually(lambda: fleet.state.nodes.require("n2").record.state == "DISCONNECTED")
    assert (await fleet.controller.call("GET", "/api/v1/nodes/n2"))["last_seen"] is not None


async def test_why_tells_of_restarts_that_the_node_made_with_their_crash(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    first = fleet.record("lobby-1").incarnation
    await node.crash("lobby-1", code=139, restart=True)
    await node.report("lobby-1", S.INSTANCE_STATE_RUNNING)
    await eventually(lambda: fleet.record("lobby-1").restarts == 1)
    why = await fleet.controller.call("GET", "/api/v1/instances/lobby-1/why")
    assert why["summary"].endswith(f" s ago by its node: exit 139, crash lobby-1.{first}")
    [restart] = why["restarts"]
    assert (restart["crash"], restart["restarted_as"]) == (f"lobby-1.{first}", first + 1)
    assert [decision["kind"] for decision in why["decisions"]] == ["start"]


async def test_one_that_shall_stop_keeps_that_as_its_reason_though_its_node_restarts_it(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group()
    await fleet.controller.call("POST", "/api/v1/instances?wait=running", {"group": "lobby"})
    node.deaf = True
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/stop", {"reason": "maintenance"})
    await node.crash("lobby-1", restart=True)
    await eventually(lambda: fleet.record("lobby-1").restarts == 1)
    assert fleet.record("lobby-1").reason == "maintenance"


async def test_a_group_whose_node_is_away_says_so(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await node.drop()
    await fleet.reaches("lobby-1", "OFFLINE")
    status = (await fleet.controller.call("GET", "/api/v1/groups/lobby"))["status"]
    assert status["reason"] == "1 of its instances is on nodes that are away (n1)"


@pytest.mark.trap("T65")
async def test_a_node_that_is_asked_how_runs_ended_speaks_of_its_own_alone(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(nodes=["n1"], min=1)
    await fleet.running(1)
    rogue = await fleet.node("rogue")
    await fleet.group("mine", nodes=["rogue"])
    await fleet.controller.call("POST", "/api/v1/instances?wait=running", {"group": "mine"})
    before = fleet.record("lobby-1")
    names = [(before.id, before.incarnation), ("mine-1", fleet.record("mine-1").incarnation)]
    exit = wire.ExitStatus(known=True, code=7, outcome="stopped", summary="exited with code 7")
    ends = [
        wire.RunningInstance(
            instance_id=id, group=id[:-2], incarnation=number, state=S.INSTANCE_STATE_STOPPED, exit=exit
        )
        for id, number in names
    ]
    await eventually(lambda: not rogue._spool)
    await rogue.drop()
    await rogue.connect(running=False, features=FEATURES)
    await eventually(lambda: [m for m in rogue.asked if m.WhichOneof("payload") == "ask_run_ends"])
    (question,) = (m.ask_run_ends for m in rogue.asked if m.WhichOneof("payload") == "ask_run_ends")
    assert [run.instance_id for run in question.runs] == ["mine-1"]
    await rogue.tell(DaemonMessage(run_ends=wire.RunEnds(runs=ends)))
    ended = await fleet.reaches("mine-1", "STOPPED")
    assert (ended.exit.code, ended.reason) == (7, "exited with code 7")
    assert fleet.record("lobby-1") == before
    await rogue.tell(DaemonMessage(run_ends=wire.RunEnds(runs=ends)))  # nobody asked
    await eventually(lambda: fleet.term.sessions.find("rogue") is not None)
    assert fleet.record("lobby-1") == before


@pytest.mark.trap("T88")
async def test_the_place_of_a_match_that_ended_is_taken_by_another_in_its_turn(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1, restart={"on": "failure"})
    await fleet.running(1)
    started = round(time.time() * 1000) - 3000
    run = node.runs["lobby-1"]
    began = wire.InstanceStatusUpdate(
        instance_id="lobby-1", incarnation=run.incarnation, state=run.state, started_at_ms=started
    )
    await node.spool(DaemonMessage(instance_status=began))
    exit = wire.ExitStatus(known=True, outcome="ended", summary="exited with code 0, by itself")
    await node.report("lobby-1", wire.INSTANCE_STATE_STOPPED, exit=exit)
    await eventually(lambda: "its place is taken again 5 s after" in fleet.group_record().reason)
    assert await fleet.running(1) == ["lobby-2"]
    assert fleet.record("lobby-2").created_at.timestamp() * 1000 >= started + 5000
    assert (fleet.record("lobby-1").exit.outcome, fleet.group_record().failures) == ("ended", ())
    assert fleet.group_record().reason == ""


@pytest.mark.trap("T65")
async def test_a_node_that_ends_one_run_again_and_again_changes_how_many_are_wanted_by_one(fleet):
    await fleet.begin()
    await fleet.group(restart={"on": "failure"})
    node = await fleet.node("n1")
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 3})
    await fleet.running(3)
    exit = wire.ExitStatus(known=True, outcome="ended", summary="exited with code 0, by itself")
    for number in range(4):
        await node.report("lobby-1", S.INSTANCE_STATE_STOPPED, exit=exit, nonce=f"run-{number}")
        await node.report("lobby-1", S.INSTANCE_STATE_RUNNING, nonce=f"run-{number + 1}")
    await eventually(lambda: not node._spool)
    assert fleet.record("lobby-1").restarts == 4
    assert fleet.group_record().target == 3, "it runs, and nobody asked for fewer"
    await node.report("lobby-1", S.INSTANCE_STATE_STOPPED, exit=exit, nonce="run-4")
    await fleet.reaches("lobby-1", "STOPPED")
    assert fleet.group_record().target == 2
