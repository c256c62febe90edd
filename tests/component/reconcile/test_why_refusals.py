"""Why: what a refusal says of limits, of names that nothing has, and of nodes that are away."""

from __future__ import annotations

from corral.testing.waiting import eventually


async def why(fleet, place: str = "groups/lobby") -> dict:
    return await fleet.controller.call("GET", f"/api/v1/{place}/why")


def conditions(found: dict) -> list[str]:
    return [each["condition"] for each in found["would_change"]]


def topics(found: dict, topic: str) -> list[str]:
    return [each["reason"] for each in found["now"] if each["topic"] == topic]


async def short(fleet, group: str = "lobby") -> None:
    await eventually(lambda: bool(fleet.group_record(group).reason))


async def test_a_limit_of_an_operator_is_named_and_nobody_is_who_has_not_the_room(fleet):
    await fleet.begin()
    await fleet.node("n1", total_memory_mb=1000)
    await fleet.group("other", min=1, memory_mb=100, priority=10)
    await fleet.running(1, "other")
    await fleet.controller.call("PATCH", "/api/v1/nodes/n1", {"memory_mb": 400})
    await fleet.group(min=2, memory_mb=500)
    await short(fleet)
    found = await why(fleet)
    assert {each["missing"] for each in found["would_change"]} == {2}, "each is for one of them"
    assert conditions(found) == ["corral node cap n1 --memory-mb 600", "memory_mb ≤ 300"]
    [refused] = [each for each in found["now"] if each["rejected"]]
    assert refused["rejected"][0]["reason"] == (
        "500 MB are wanted, 300 of 400 MB are free: lacks 200 MB; the host has 1000 MB, an operator limits it to 400"
    )
    assert topics(found, "lower_priority") == []


async def test_a_node_and_a_group_that_do_not_exist_are_named(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group("proxies", min=0)
    await fleet.group(min=1, nodes=["n99", "n1"], affinity=[{"group": "proxis", "required": True}])
    await short(fleet)
    found = await why(fleet)
    assert topics(found, "unknown") == [
        "its 'nodes' name 'n99', which has not joined",
        "its required 'affinity' names group 'proxis', which does not exist; did you mean 'proxies'?",
    ]
    assert conditions(found) == ["an instance of 'proxis', which does not exist, on n1", "n99 joins"]


async def test_a_label_that_a_group_is_spread_by_is_asked_for(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=1, spread=[{"by": "rack", "max_skew": 1}])
    await short(fleet)
    found = await why(fleet)
    assert "of 1 node: 1 without the label that it is spread by" in fleet.group_record().reason
    assert conditions(found) == ["a label 'rack' on n1"]


async def test_a_node_that_is_away_with_instances_is_named(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await node.drop()
    await eventually(lambda: fleet.record("lobby-1").state == "OFFLINE")
    found = await why(fleet)
    assert [text.partition(" since ")[0] for text in topics(found, "unreachable")] == [
        "n1, which has lobby-1, is DISCONNECTED"
    ]
    assert conditions(found) == ["n1 reconnects", "n1 stays away"]


async def test_a_group_that_waits_for_another_names_the_trouble_of_that_one(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    crashing = {"failures": 1, "within_seconds": 60, "pause_seconds": 60}
    await fleet.group("db", min=1, crash_loop=crashing)
    await fleet.running(1, "db")
    await node.crash("db-1")
    await eventually(lambda: fleet.group_record("db").paused is not None)
    [crash] = topics(await why(fleet, "groups/db"), "crash")
    assert crash.startswith("the last crash, of 'db-1': ")
    assert f"see 'corral crash get db-1.{fleet.record('db-1').incarnation}'" in crash
    assert "'corral instance console db-1'" in crash
    made = await fleet.controller.call("POST", "/api/v1/tokens", {"name": "guest", "role": "VIEWER"})
    for token, lines in (("", ["one", "two"]), (made["token"], [])):
        found = await fleet.controller.call("GET", "/api/v1/groups/db/why", token=token)
        assert [each["lines"] for each in found["now"] if each["topic"] == "crash"] == [lines]
    await fleet.group(min=1, depends_on=[{"group": "db"}])
    await short(fleet)
    [waits] = topics(await why(fleet), "depends_on")
    assert waits.startswith("'db': it is crash-looping and paused until ")
    assert waits.endswith("; see 'corral why group/db'")
    await fleet.controller.call("POST", "/api/v1/groups/db/hold", {"reason": "repair"})
    [waits] = topics(await why(fleet), "depends_on")
    assert waits.startswith("'db': held by ")
