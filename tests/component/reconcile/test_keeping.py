"""Groups get and keep what they want: starts, replacements, stops, scaling, restarts."""

from __future__ import annotations

import asyncio

import pytest
from pretend_node import TRANSIENT, S, refuse

from corral.cli.failure import CommandRefused
from corral.errors import CorralError
from corral.testing.waiting import eventually

PORTS = {"primary": {"range": [30000, 30100]}}


async def test_a_group_gets_its_minimum_at_once(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=2, ports=PORTS, memory_mb=100, env={"A": "b"}, args=["--x"])
    assert await fleet.running(2) == ["lobby-1", "lobby-2"]
    first = node.starts[0]
    told = node.plans[0]
    assert (told.command, told.args) == (("serve",), ("--x",))
    assert told.env["A"] == "b"
    assert {start.port for start in node.starts} == {30000, 30001}
    assert told.memory_mb == 100
    assert first.plugin_token
    assert first.plugin_token != node.ordered[1].plugin_token
    assert first.api_url == fleet.controller.url
    plan = fleet.state.plans.require(first.plan_hash).record
    assert first.plugin_token not in plan.body
    assert [e["type"] for e in await fleet.events("INSTANCE_SCHEDULED", "INSTANCE_RUNNING")].count(
        "INSTANCE_RUNNING"
    ) == 2


async def test_a_crash_is_stored_and_replaced(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1, ports=PORTS)
    await fleet.running(1)
    await node.crash("lobby-1", code=3)
    await fleet.reaches("lobby-1", "CRASHED")
    assert await fleet.running(1) == ["lobby-2"]
    crash = next(iter(fleet.state.crashes)).record
    assert crash.exit.code == 3
    assert crash.tail == ("one", "two")
    assert fleet.record("lobby-1").exit.code == 3
    assert list(fleet.reservations()) == ["lobby-2"]
    assert len(fleet.group_record().failures) == 1


async def test_a_restart_by_the_node_keeps_the_id_and_counts_no_failure(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    first = fleet.record("lobby-1").incarnation
    await node.crash("lobby-1", restart=True)
    await node.report("lobby-1", S.INSTANCE_STATE_RUNNING)
    await eventually(lambda: fleet.record("lobby-1").incarnation == first + 1)
    record = await fleet.reaches("lobby-1", "RUNNING")
    assert record.restarts == 1
    assert len(fleet.state.crashes) == 1
    assert fleet.group_record().failures == ()
    assert len(node.ordered) == 1


async def test_a_stopped_instance_of_the_minimum_is_replaced_and_its_end_is_told(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/stop", {"reason": "because"})
    await fleet.reaches("lobby-1", "STOPPED")
    assert await fleet.running(1) == ["lobby-2"]
    assert node.stops[0].reason == "because"
    assert fleet.record("lobby-1").exit.rung == "command: stop"


async def test_scaling_down_stops_the_youngest_and_up_starts_more(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=1, max=4)
    await fleet.running(1)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 3})
    await fleet.running(3)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 2})
    await fleet.reaches("lobby-3", "STOPPED")
    assert await fleet.running(2) == ["lobby-1", "lobby-2"]
    with pytest.raises(CommandRefused) as refused:
        await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 5})
    assert refused.value.code == "INVALID_FIELD"


async def test_stopping_one_of_a_scaled_group_is_not_undone(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=0, max=4)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 2})
    await fleet.running(2)
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/stop", {})
    await fleet.reaches("lobby-1", "STOPPED")
    assert await fleet.running(1) == ["lobby-2"]
    assert fleet.group_record().target == 1
    assert len(node.ordered) == 2


async def test_a_restart_is_a_new_run_of_the_same_id(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1, ports=PORTS)
    await fleet.running(1)
    before = fleet.record("lobby-1")
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/restart", {})
    await eventually(lambda: fleet.record("lobby-1").incarnation > before.incarnation)
    assert await fleet.running(1) == ["lobby-1"]
    assert [start.instance_id for start in node.ordered] == ["lobby-1", "lobby-1"]
    assert fleet.record("lobby-1").ports == before.ports


async def test_deleting_a_group_stops_its_instances_first(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=2)
    await fleet.running(2)
    with pytest.raises(CommandRefused) as refused:
        await fleet.controller.call("DELETE", "/api/v1/groups/lobby")
    assert refused.value.code == "GROUP_NOT_EMPTY"
    await fleet.controller.call("DELETE", "/api/v1/groups/lobby?cascade=true&confirm=lobby")
    await eventually(lambda: fleet.state.groups.find("lobby") is None, state=fleet.states)
    assert fleet.alive() == []
    assert len(await fleet.events("GROUP_DELETED")) == 1


async def test_a_group_that_cannot_get_more_says_why_once_and_gets_it_when_it_can(fleet):
    await fleet.begin()
    await fleet.node("n1", total_memory_mb=150)
    await fleet.group(min=2, memory_mb=100)
    await fleet.running(1)
    await eventually(lambda: fleet.group_record().reason)
    assert "not enough memory" in fleet.group_record().reason
    assert len(await fleet.events("GROUP_SHORT")) == 1
    await fleet.node("n2", total_memory_mb=150)
    assert await fleet.running(2) == ["lobby-1", "lobby-2"]
    assert fleet.group_record().reason == ""


async def test_a_broken_group_does_not_stop_the_others(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.on_start = lambda order: refuse("COMMAND_NOT_FOUND")(order) if order.group == "bad" else None
    await fleet.group("bad", min=3)
    await fleet.group("huge", min=1, memory_mb=1_000_000)
    await fleet.group("good", min=2)
    await fleet.running(2, "good")
    assert fleet.state.groups.require("huge").record.reason


async def test_an_explicit_start_names_its_node_or_why_it_cannot(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.node("n2")
    await fleet.group(max=2)
    started = await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby", "node": "n2"})
    assert started["node"] == "n2"
    await fleet.controller.call("POST", "/api/v1/nodes/n2/cordon", {})
    with pytest.raises(CommandRefused) as refused:
        await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby", "node": "n2"})
    assert refused.value.code == "NO_CAPACITY"
    assert "cordoned" in str(refused.value)
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    with pytest.raises(CommandRefused) as full:
        await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    assert full.value.code == "GROUP_FULL"


async def test_a_command_reaches_the_instance_and_a_refusal_its_sender(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/command", {"command": "say hi"})
    assert node.commands[0].command == "say hi"
    told = (await fleet.events("INSTANCE_COMMAND"))[0]
    assert told["data"]["line"] == "say hi"
    with pytest.raises(CommandRefused) as refused:
        await fleet.controller.call("POST", "/api/v1/instances/lobby-1/command", {"command": "refuse"})
    assert refused.value.code == "INPUT_NOT_READ"
    assert "17" in str(refused.value)


async def test_a_daemon_without_acknowledgements_has_accepted_the_command_that_was_sent(fleet):
    await fleet.begin()
    node = await fleet.node("n1", features=[])
    node.acknowledges = False
    await fleet.group(min=1)
    await fleet.running(1)
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/command", {"command": "say hi"})
    await eventually(lambda: [command.command for command in node.commands] == ["say hi"])
    assert (await fleet.events("INSTANCE_COMMAND"))[0]["data"]["line"] == "say hi"


async def test_settling_waits_for_a_state_and_gives_up_in_time(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    node.slow_stops = True
    await fleet.group(min=1)
    await fleet.running(1)
    record = fleet.record("lobby-1")
    waiting = asyncio.create_task(
        fleet.term.instances.settled("lobby-1", record.incarnation, lambda r: r.state == "STOPPED", 10)
    )
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/stop", {})
    await fleet.reaches("lobby-1", "STOPPING")
    with pytest.raises(CorralError) as late:
        await fleet.term.instances.settled("lobby-1", record.incarnation, lambda r: False, 0.05)
    assert late.value.code.name == "TIMEOUT"
    await node.stopped("lobby-1")
    assert (await waiting).record.state == "STOPPED"


async def test_a_start_without_an_answer_is_sent_again_with_pauses_and_a_bound(fleet):
    await fleet.begin(reconcile__resend_seconds=0.02)
    node = await fleet.node("n1")
    node.deaf = True
    await fleet.group(min=1)
    await eventually(lambda: len(node.starts) == 8)
    assert len({(s.instance_id, s.incarnation, s.plan_hash, s.plugin_token) for s in node.starts}) == 1
    node.deaf = False
    await node.drop()
    await node.connect()
    await fleet.running(1)
    assert 8 < len(node.starts) <= 16, "a new session begins to count anew"
    assert [start.instance_id for start in node.ordered] == ["lobby-1"]


async def test_transient_refusals_are_tried_elsewhere_and_bounded(fleet):
    await fleet.begin(reconcile__resend_seconds=0.02)
    nodes = [await fleet.node(name) for name in ("n1", "n2")]
    for node in nodes:
        node.on_start = refuse("SPAWN_FAILED", "no more processes", disposition=TRANSIENT)
    await fleet.group()
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    record = await fleet.reaches("lobby-1", "CRASHED")
    starts = [start for node in nodes for start in node.starts if start.instance_id == "lobby-1"]
    assert len({start.incarnation for start in starts}) == 5
    assert all(node.starts for node in nodes)
    assert record.start_failure.code == "SPAWN_FAILED"
    assert record.exit.outcome == "start_failed"
    assert "lobby-1" not in fleet.reservations()


async def test_a_refused_start_that_somebody_asked_for_is_a_decision_and_shown_by_why(fleet):
    await fleet.begin()
    await fleet.node("n1", total_memory_mb=100)
    await fleet.group(memory_mb=5000)
    for path, body in (("/api/v1/instances", {"group": "lobby"}), ("/api/v1/groups/lobby/start", None)):
        with pytest.raises(CommandRefused, match="no node can take"):
            await fleet.controller.call("POST", path, body)
    why = await fleet.controller.call("GET", "/api/v1/groups/lobby/why")
    assert [decision["kind"] for decision in why["decisions"]] == ["refuse", "refuse"]
    refused = why["decisions"][0]
    assert "NO_CAPACITY: of 1 node: 1 not enough memory" in refused["reason"]
    assert refused["rejected"][0]["subject"] == "node/n1"
    assert fleet.states() == {}
    await fleet.group("full", max=0)
    with pytest.raises(CommandRefused, match="its max is 0"):
        await fleet.controller.call("POST", "/api/v1/groups/full/start")
    why = await fleet.controller.call("GET", "/api/v1/groups/full/why")
    assert "GROUP_FULL: group 'full' has 0 instances" in why["decisions"][0]["reason"]


async def test_a_start_waits_for_the_only_node_while_that_reconnects(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group()
    await node.drop()
    await eventually(lambda: fleet.state.nodes.require("n1").record.state == "DISCONNECTED")
    starting = asyncio.create_task(
        fleet.controller.call("POST", "/api/v1/instances?wait=running", {"group": "lobby"})
    )
    await eventually(lambda: fleet.term.instances._waiters._for_nodes)
    await node.connect()
    assert (await starting)["state"] == "RUNNING"
    assert [
        d["kind"] for d in (await fleet.controller.call("GET", "/api/v1/groups/lobby/why"))["decisions"]
    ] == ["start"]


async def test_a_start_waits_for_no_node_that_does_not_suit_it_or_went_long_ago(fleet, clock):
    fleet.controller = await fleet._cluster.controller(clock=clock)
    node = await fleet.node("n1")
    await fleet.group("picky", node_labels={"zone": "eu"})
    await fleet.group()
    await node.drop()
    await eventually(lambda: fleet.state.nodes.require("n1").record.state == "DISCONNECTED")
    with pytest.raises(CommandRefused, match="label 'zone' is missing"):
        await fleet.controller.call("POST", "/api/v1/instances", {"group": "picky"})
    clock.step(60)
    with pytest.raises(CommandRefused, match="DISCONNECTED"):
        await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})


async def test_a_group_runs_only_where_what_it_asks_for_was_proven_and_the_refusal_names_it(fleet):
    await fleet.begin()
    await fleet.node("n1", capabilities=["cpu-limit"])
    with pytest.raises(CommandRefused, match="memory-limt") as unknown:
        await fleet.group(min=1, node_capabilities=["memory-limt"])
    assert "memory-limit" in unknown.value.hint
    await fleet.group(min=1, node_capabilities=["memory-limit"])
    await eventually(lambda: "1 lacks a capability" in fleet.group_record().reason)
    why = await fleet.controller.call("GET", "/api/v1/groups/lobby/why")
    [refused] = why["decisions"][0]["rejected"]
    assert (refused["subject"], refused["code"]) == ("node/n1", "CAPABILITY")
    assert refused["reason"] == "it has not proven memory-limit"
    await fleet.node("n2", capabilities=["cpu-limit", "memory-limit"])
    await fleet.running(1)
    assert fleet.record("lobby-1").node == "n2"
    shown = await fleet.controller.call("GET", "/api/v1/nodes/n2")
    assert shown["capabilities"] == ["cpu-limit", "memory-limit"]


async def test_nodes_of_equal_score_are_told_as_equal(fleet):
    await fleet.begin()
    for name in ("n1", "n2"):
        await fleet.node(name)
    await fleet.group(min=1)
    await fleet.running(1)
    why = await fleet.controller.call("GET", "/api/v1/instances/lobby-1/why")
    decided = why["decisions"][0]
    [other] = decided["rejected"]
    assert other["subject"] == f"node/{decided['ties'][0]}"
    assert "as well; of equal ones a hash chooses" in other["reason"]
    assert f"a tie with '{decided['ties'][0]}'" in decided["reason"]
