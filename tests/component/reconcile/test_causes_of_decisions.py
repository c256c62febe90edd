"""Each change names what led to it: a crash, an event, a request, or the decision before it."""

from __future__ import annotations

from pretend_node import S

from corral.controller.state.collections import GROUPS
from corral.testing.waiting import eventually


async def _decisions(fleet, subject: str) -> list[dict]:
    return (await fleet.controller.call("GET", f"/api/v1/decisions?subject={subject}"))["items"]


async def test_the_replacement_of_a_crashed_instance_names_the_event_with_its_crash(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await node.crash("lobby-1")
    await fleet.reaches("lobby-2", "RUNNING")
    [start, *_] = await _decisions(fleet, "instance/lobby-2")
    [crashed] = await fleet.events("INSTANCE_CRASHED")
    assert start["rule"] == "crash.replace"
    assert start["causes"] == [f"event:{crashed['id']}"]
    assert crashed["data"]["crash"] == next(iter(fleet.state.crashes)).record.id


async def test_a_pause_names_the_last_crash_and_its_end_names_the_pause(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1, crash_loop={"failures": 1, "within_seconds": 60, "pause_seconds": 60})
    await fleet.running(1)
    await node.crash("lobby-1")
    await eventually(lambda: fleet.group_record().paused is not None)
    pause = (await _decisions(fleet, "group/lobby"))[0]
    crash = next(iter(fleet.state.crashes)).record.id
    assert (pause["rule"], pause["causes"], pause["root"]) == (
        "crash.pause",
        [f"crash:{crash}"],
        f"crash:{crash}",
    )
    await fleet.controller.call("POST", "/api/v1/groups/lobby/unpause")
    await fleet.reaches("lobby-2", "RUNNING")
    started, ended = (await _decisions(fleet, "group/lobby"))[:2]
    assert ended["causes"] == [pause["id"], f"request:{ended['request']}"]
    assert started["causes"][-1] == f"request:{ended['request']}"


async def test_a_start_that_waited_for_room_names_what_made_room(fleet):
    await fleet.begin()
    await fleet.node("n1", total_memory_mb=1000)
    await fleet.group("other", min=1, memory_mb=600)
    await fleet.running(1, "other")
    await fleet.group(min=1, memory_mb=600)
    await eventually(lambda: "NO_CAPACITY" in fleet.group_record().reason)
    await fleet.controller.call("DELETE", "/api/v1/groups/other?cascade=true&confirm=other")
    await fleet.running(1)
    start = (await _decisions(fleet, "instance/lobby-1"))[0]
    [ended] = await fleet.events("INSTANCE_STOPPED")
    assert start["causes"] == [f"event:{ended['id']}"]


async def test_a_start_names_what_made_room_while_its_group_was_looked_at_for_no_known_cause(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.controller.call("POST", "/api/v1/nodes/n1/cordon", {"reason": "kernel"})
    await fleet.group(min=1)
    await eventually(lambda: "NO_CAPACITY" in fleet.group_record().reason)
    reconciler = fleet.term.reconciler

    async def at_rest():
        async with fleet.term.instances.placing:
            return not (reconciler._dirty or reconciler._to_sweep or reconciler._capacity_changed)

    await eventually(at_rest)
    async with fleet.term.instances.placing:
        stored = fleet.state.groups.require("lobby")
        await fleet.term.ledger.commit(GROUPS.put("lobby", stored.record, expect=stored.revision))
        await eventually(lambda: fleet.term.instances.placing._waiters)  # the reconciler waits for its turn
        await fleet.controller.call("POST", "/api/v1/nodes/n1/uncordon", {"reason": ""})
    await fleet.running(1)
    start = (await _decisions(fleet, "instance/lobby-1"))[0]
    [opened] = await fleet.events("NODE_UNCORDONED")
    assert start["causes"] == [f"event:{opened['id']}"]


async def test_stops_of_a_scale_name_the_scale_and_the_request(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=0, max=3)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 2})
    await fleet.running(2)
    await fleet.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 1})
    await fleet.reaches("lobby-2", "STOPPED")
    stop = (await _decisions(fleet, "instance/lobby-2"))[0]
    scale = next(each for each in await _decisions(fleet, "group/lobby") if each["kind"] == "scale")
    assert stop["causes"] == [scale["id"], f"request:{scale['request']}"]
    entries = (await fleet.controller.call("GET", "/api/v1/audit"))["items"]
    audited = next(each for each in entries if each["action"] != "audit.read")
    assert (audited["action"], audited["request"]) == ("groups.scale", scale["request"])


async def test_the_replacement_of_one_that_was_stopped_by_hand_names_the_stop_and_the_request(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await fleet.controller.call("POST", "/api/v1/instances/lobby-1/stop", {})
    await fleet.reaches("lobby-2", "RUNNING")
    [stop, *_] = await _decisions(fleet, "instance/lobby-1")
    [start, *_] = await _decisions(fleet, "instance/lobby-2")
    assert start["causes"] == [stop["id"], f"request:{stop['request']}"]
    assert start["root"] == f"request:{stop['request']}"
    why = await fleet.controller.call("GET", "/api/v1/instances/lobby-2/why")
    assert [step["kind"] for step in why["chain"]] == ["request", "decision", "decision"]


async def test_a_crash_that_is_reported_together_with_earlier_steps_is_the_cause(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await node.drop()
    await node.report("lobby-1", S.INSTANCE_STATE_RUNNING, reason="still well")
    await node.crash("lobby-1", restart=True)
    await node.report("lobby-1", S.INSTANCE_STATE_RUNNING)
    await node.crash("lobby-1")
    await node.connect()
    await fleet.reaches("lobby-2", "RUNNING")
    [start, *_] = await _decisions(fleet, "instance/lobby-2")
    crashed = (await fleet.events("INSTANCE_CRASHED"))[-1]
    assert (start["rule"], start["causes"]) == ("crash.replace", [f"event:{crashed['id']}"])
