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
    assert topics(found, "holders") == []
