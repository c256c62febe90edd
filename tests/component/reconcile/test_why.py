"""Why: the present case by a fresh plan, the chain of causes, and what would change it."""

from __future__ import annotations

import datetime as dt

import pytest

from corral.cli.failure import CommandRefused
from corral.controller.state.collections import group_decisions
from corral.domain.decisions import DecisionKind
from corral.domain.groups.instance_records import DecisionRecord
from corral.domain.ids import DecisionId, Epoch
from corral.testing.api_calls import call
from corral.testing.waiting import eventually


async def _why(fleet, place: str) -> dict:
    return await fleet.controller.call("GET", f"/api/v1/{place}/why")


def _conditions(found: dict) -> list[str]:
    return [each["condition"] for each in found["would_change"]]


async def _short(fleet, group: str = "lobby", *, by: str = "") -> None:
    await eventually(
        lambda: bool(fleet.group_record(group).reason) and by in fleet.group_record(group).reason
    )


async def test_a_full_node_and_a_cordoned_one_are_named_with_what_would_change_it(fleet):
    await fleet.begin()
    await fleet.node("n1", total_memory_mb=1000)
    await fleet.node("n2", total_memory_mb=1000)
    await fleet.controller.call("POST", "/api/v1/nodes/n2/cordon", {"reason": "kernel update"})
    await fleet.group(min=2, memory_mb=600)
    await _short(fleet, by="NO_CAPACITY")
    found = await _why(fleet, "groups/lobby")
    assert found["state"] == "SHORT"
    assert _conditions(found) == ["200 MB on n1", "uncordon n2", "memory_mb ≤ 400"]
    refusal = next(each for each in found["now"] if each["topic"] == "refuse")
    assert {each["subject"]: each["reason"] for each in refusal["rejected"]} == {
        "node/n1": "600 MB are wanted, 400 of 1000 MB are free: lacks 200 MB",
        "node/n2": "it is cordoned: kernel update",
    }
    assert refusal["rejected_counts"] == {"MEMORY": 1, "ADMISSION": 1}
    node = await _why(fleet, "nodes/n2")
    assert node["state"] == "CORDONED"
    assert node["summary"].startswith("node 'n2' is ONLINE and cordoned: kernel update")
    assert [each["subject"] for each in node["now"] if each["topic"] == "refused"] == ["group/lobby"]
    assert _conditions(node) == ["uncordon n2"]
    first = await _why(fleet, "nodes/n1")
    [runs] = [each for each in first["now"] if each["topic"] == "runs"]
    assert (runs["subject"], runs["rule"]) == ("instance/lobby-1", "min.restore")
    await fleet.controller.call("POST", "/api/v1/nodes/n2/uncordon", {})
    await fleet.running(2)
    assert _conditions(await _why(fleet, "groups/lobby")) == []


async def test_asking_why_changes_nothing(fleet):
    await fleet.begin()
    await fleet.group(min=1)
    await _short(fleet)
    before = await fleet.controller.call("GET", "/api/v1/decisions"), await fleet.events()
    answers = [await _why(fleet, "groups/lobby") for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert (await fleet.controller.call("GET", "/api/v1/decisions"), await fleet.events()) == before


async def test_the_chain_leads_from_a_crash_over_restarts_by_the_node_to_the_replacement(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    first = fleet.record("lobby-1").incarnation
    await node.crash("lobby-1", code=137, restart=True)
    await node.report("lobby-1", 4)
    await eventually(lambda: fleet.record("lobby-1").incarnation == first + 1)
    await node.crash("lobby-1", code=139)
    await fleet.reaches("lobby-2", "RUNNING")
    chain = (await _why(fleet, "instances/lobby-2"))["chain"]
    assert [(each["kind"], each["rule"]) for each in chain] == [
        ("restart", ""),
        ("event", "INSTANCE_CRASHED"),
        ("decision", "crash.replace"),
    ]
    assert chain[0]["reason"] == "'lobby-1' crashed: exit 137; restarted by its node"
    assert chain[0]["id"] == f"lobby-1.{first}"
    assert chain[1]["reason"] == "'lobby-1' crashed: exit 139, after 1 restart by its node"


async def test_the_chain_leads_from_a_request_over_the_scale_to_the_start(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=0, max=3)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 1})
    await fleet.running(1)
    chain = (await _why(fleet, "instances/lobby-1"))["chain"]
    assert [each["kind"] for each in chain] == ["request", "decision", "decision"]
    assert chain[0]["reason"].endswith("asked for groups.scale of 'lobby'")
    assert chain[1]["reason"].startswith("scaled from 0 to 1 by ")


async def test_a_pause_says_when_it_ends_and_what_began_it(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1, crash_loop={"failures": 1, "within_seconds": 60, "pause_seconds": 60})
    await fleet.running(1)
    await node.crash("lobby-1", code=3)
    await eventually(lambda: fleet.group_record().paused is not None)
    found = await _why(fleet, "groups/lobby")
    assert found["state"] == "PAUSED"
    assert _conditions(found) == ["the pause ends", "corral group unpause lobby"]
    assert found["would_change"][0]["at"] is not None
    assert [each["kind"] for each in found["chain"]] == ["crash", "decision"]
    ended = await _why(fleet, "instances/lobby-1")
    assert _conditions(ended) == ["the pause ends", "corral group unpause lobby"]


@pytest.mark.trap("T28")
@pytest.mark.parametrize("step", [3600, -3600])
async def test_a_pause_ends_for_why_when_it_ends_for_the_reconciler(fleet, clock, step):
    fleet.controller = await fleet._cluster.controller(clock=clock)
    node = await fleet.node("n1")
    await fleet.group(min=1, crash_loop={"failures": 1, "within_seconds": 60, "pause_seconds": 600})
    await fleet.running(1)
    await node.crash("lobby-1", code=3)
    await eventually(lambda: fleet.group_record().paused is not None and fleet.group_record().reason)
    before = await _why(fleet, "groups/lobby")
    assert dt.datetime.fromisoformat(before["would_change"][0]["at"]) == fleet.group_record().paused.until
    clock.step(step)
    found = await _why(fleet, "groups/lobby")
    assert [each["topic"] for each in found["now"]] == ["need", "crash"], "nothing would be started"
    assert _conditions(found) == ["the pause ends", "corral group unpause lobby"]
    ends = dt.datetime.fromisoformat(found["would_change"][0]["at"])
    assert dt.timedelta(seconds=540) < ends - clock.now() <= dt.timedelta(seconds=600)
    assert dt.datetime.fromisoformat(found["now"][0]["at"]) - ends < dt.timedelta(seconds=5)
    assert f"until {ends:%Y-%m-%d %H:%M:%S} UTC" in found["summary"]
    document = fleet.group_record().spec
    body = {"name": document.name, "command": list(document.command), "min": 2}
    tried = {"documents": [{"path": "a.yaml", "body": body}], "dry_run": True, "force": True}
    planned = await fleet.controller.call("POST", "/api/v1/apply", tried)
    assert planned["decisions"] == [], "it is paused there, too"


async def test_a_leader_that_observes_says_that_it_starts_nothing_yet(fleet):
    await fleet.begin(reconcile__observe_seconds=600)
    first = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await fleet.controller.app.stop()
    await first.drop()
    await fleet.begin(reconcile__observe_seconds=600)
    await fleet.group("more", min=1)
    [observing] = [each for each in (await _why(fleet, "groups/more"))["now"] if each["topic"] == "observing"]
    assert "waits for its nodes to report" in observing["reason"]
    first.address = fleet.controller.grpc_address
    await first.connect()
    await fleet.running(1, "more")
    assert "observing" not in [each["topic"] for each in (await _why(fleet, "groups/more"))["now"]]


async def test_a_static_instance_whose_node_is_away_waits_for_it(fleet):
    await fleet.begin()
    home = await fleet.node("n1")
    await fleet.node("n2")
    await fleet.group("world", static=True, min=1, nodes=["n1"])
    await fleet.running(1, "world")
    await fleet.controller.call("PATCH", "/api/v1/groups/world", {"nodes": []})
    await home.drop()
    await fleet.reaches("world-1", "OFFLINE")
    found = await _why(fleet, "instances/world-1")
    assert _conditions(found) == ["n1 reconnects"], "it is not replaced, however long that takes"


async def test_a_node_that_reconnects_is_waited_for(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await node.drop()
    await eventually(lambda: fleet.state.nodes.require("n1").record.state == "DISCONNECTED")
    await fleet.group(min=1)
    await _short(fleet, by="reconnect")
    found = await _why(fleet, "groups/lobby")
    assert _conditions(found) == ["n1 reconnects", "it is no longer waited for n1"]
    assert found["would_change"][1]["at"] is not None


async def test_a_dependency_is_named_with_its_count(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group("db", min=0)
    await fleet.group(min=1, depends_on=[{"group": "db"}])
    await _short(fleet, by="waits for 'db'")
    found = await _why(fleet, "groups/lobby")
    assert _conditions(found) == ["'db' has 1 ready"]
    assert "waits for 'db': 0 of 1 ready" in found["summary"]


async def test_a_tie_is_said_to_be_one(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.node("n2")
    await fleet.group(min=1)
    await fleet.running(1)
    placed = (await _why(fleet, "instances/lobby-1"))["now"][0]
    other = {"n1": "n2", "n2": "n1"}[placed["node"]]
    assert placed["reason"].startswith(f"on {placed['node']}: tie with {other} at ")
    assert placed["reason"].endswith(", by hash")


async def test_warm_instances_and_stopping_ones_are_not_counted_with_those_that_serve(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=2, max=4, warm=1)
    await fleet.running(3)
    found = await _why(fleet, "groups/lobby")
    assert found["summary"] == "group 'lobby' wants 2 instances and has 2, beside 1 of 1 warm"
    assert found["now"][0]["reason"] == "2 are wanted, 2 are there, beside 1 of 1 warm"
    assert found["state"] == "MET"
    node.slow_stops = True
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 3})
    await fleet.running(4)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 2})
    await eventually(lambda: "STOPPING" in fleet.states().values(), state=fleet.states)
    found = await _why(fleet, "groups/lobby")
    assert found["summary"].startswith(
        "group 'lobby' wants 2 instances and has 2, beside 1 of 1 warm and 1 stopping"
    )


async def test_a_choice_without_rivals_is_said_to_be_one(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=1, max=3)
    await fleet.running(1)
    found = await _why(fleet, "instances/lobby-1")
    assert found["decisions"][0]["reason"] == "1 is wanted, 0 are there; node 'n1' is the only one that fits"
    assert found["now"][0]["reason"].endswith(", the only node that could take it")
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby", "node": "n1"})
    await fleet.running(2)
    found = await _why(fleet, "instances/lobby-2")
    assert found["decisions"][0]["reason"].endswith("; node 'n1' was chosen for it")
    assert found["now"][0]["reason"] == "on n1, which was chosen for it"


async def test_what_is_gone_is_explained_by_its_decisions(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await fleet.controller.call("DELETE", "/api/v1/groups/lobby?cascade=true&confirm=lobby")
    await eventually(lambda: fleet.state.groups.find("lobby") is None)
    await fleet.controller.call("DELETE", "/api/v1/instances/lobby-1")
    for place in ("groups/lobby", "instances/lobby-1"):
        found = await _why(fleet, place)
        assert found["state"] == "GONE"
        assert " is gone; the last decision about it: stop" in found["summary"]
        assert found["decisions"]


async def test_each_change_has_a_chain_to_a_root(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1, max=4, warm=1)
    await fleet.running(2)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 3})
    await eventually(lambda: len(fleet.alive()) == 4)
    await node.crash("lobby-1")
    await fleet.reaches("lobby-1", "CRASHED")
    await eventually(lambda: len(fleet.alive()) == 4)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 1})
    await fleet.controller.call("POST", "/api/v1/instances/lobby-2/restart", {})
    await eventually(lambda: len(fleet.alive()) == 2)
    changes = {"start", "stop", "promote", "scale", "restart"}
    page = await fleet.controller.call("GET", "/api/v1/decisions?limit=500")
    changed = [each for each in page["items"] if each["kind"] in changes]
    assert {"start", "stop", "promote", "scale"} <= {each["kind"] for each in changed}
    for each in changed:
        assert each["root"], each
        assert not each["causes"] or each["root"] == each["causes"][-1], each
    for record in [stored.record for stored in fleet.state.instances]:
        chain = (await _why(fleet, f"instances/{record.id}"))["chain"]
        assert chain[0]["kind"] in ("request", "event", "restart", "crash", "cause"), chain
        assert chain[-1]["kind"] == "decision"


async def test_what_never_was_is_not_found(fleet):
    await fleet.begin()
    for place in ["groups/lobbi", "instances/lobbi", "nodes/lobbi", "modules/lobbi"]:
        with pytest.raises(CommandRefused) as refused:
            await _why(fleet, place)
        assert refused.value.code == "NOT_FOUND", place


async def test_a_viewer_finds_here_nothing_that_is_hidden_from_it_elsewhere(fleet):
    secret = "see http://bob:hunter2@wiki.example/kernel?key=hunter2"
    await fleet.begin()
    await fleet.node("n1")
    await fleet.controller.call("POST", "/api/v1/nodes/n1/cordon", {"reason": secret})
    await fleet.group(min=1)
    await _short(fleet, by="NO_CAPACITY")
    made = await fleet.controller.call("POST", "/api/v1/tokens", {"name": "guest", "role": "VIEWER"})
    for place in ("groups/lobby", "nodes/n1"):
        path = f"/api/v1/{place}/why"
        whole = await call(fleet.controller.url, fleet.controller.admin_token, "GET", path)
        shown = await call(fleet.controller.url, made["token"], "GET", path)
        assert "hunter2" in str(whole), "the text is there to be hidden"
        assert "hunter2" not in str(shown)
        assert "wiki.example/kernel" in str(shown)
    chain = (await call(fleet.controller.url, made["token"], "GET", "/api/v1/groups/lobby/why"))["chain"]
    assert chain[0]["kind"] == "request"
    assert "first-admin" not in str(chain), "the audit is not for viewers"
    assert "first-admin" in (await _why(fleet, "groups/lobby"))["chain"][0]["reason"]


@pytest.mark.parametrize(
    ("cause", "cut"),
    [
        ("event:1-999999", "event 1-999999 is no longer in the log"),
        ("crash:lobby-1.7", "crash lobby-1.7 is no longer kept"),
        ("dec-gone", "decision dec-gone is no longer kept"),
    ],
)
async def test_a_chain_that_is_cut_says_so(fleet, cause, cut):
    await fleet.begin()
    await fleet.group(min=0)
    decision = DecisionRecord(
        id=DecisionId("dec-known"),
        cause="x",
        kind=DecisionKind.SCALE,
        subject="lobby",
        reason="it was so",
        epoch=Epoch(1),
        at=dt.datetime.now(dt.UTC),
        rule="operator",
        causes=(cause,),
        root=cause,
    )
    await fleet.term.ledger.commit(group_decisions("lobby").append(decision))
    chain = (await _why(fleet, "groups/lobby"))["chain"]
    assert [(each["kind"], each["reason"]) for each in chain] == [
        ("truncated", cut),
        ("decision", "it was so"),
    ]


async def test_instances_with_a_lower_priority_that_have_the_room_are_named(fleet):
    await fleet.begin()
    await fleet.node("n1", total_memory_mb=1000)
    await fleet.group("other", min=1, memory_mb=600, priority=10)
    await fleet.running(1, "other")
    await fleet.group(min=1, memory_mb=600)
    await _short(fleet, by="NO_CAPACITY")
    [held] = [
        each for each in (await _why(fleet, "groups/lobby"))["now"] if each["topic"] == "lower_priority"
    ]
    assert held["reason"] == "n1 has 'other-1' (priority 10, 600 MB), which are not stopped for it"
