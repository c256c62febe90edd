"""Groups that an operator holds: everything is stopped and stays so, until they are released."""

from __future__ import annotations

import pytest

from corral.cli.failure import CommandRefused
from corral.testing.waiting import eventually


async def order(fleet, verb, body=None, group="lobby"):
    return await fleet.controller.call("POST", f"/api/v1/groups/{group}/{verb}", body)


async def all_stopped(fleet, group="lobby"):
    await eventually(lambda: not fleet.alive(group), state=lambda: fleet.states(group))


async def test_a_held_group_is_stopped_and_stays_so_until_it_is_released(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=2)
    await fleet.running(2)
    held = await order(fleet, "hold", {"reason": "a new map"})
    assert (held["status"]["hold"]["reason"], held["status"]["hold"]["when_empty"]) == ("a new map", False)
    await all_stopped(fleet)
    await eventually(lambda: "a new map" in fleet.group_record().reason)
    with pytest.raises(CommandRefused, match="a new map") as refused:
        await order(fleet, "start")
    assert (refused.value.code, refused.value.hint) == ("GROUP_HELD", "corral group release lobby")
    with pytest.raises(CommandRefused, match="held by"):
        await fleet.controller.call("POST", "/api/v1/instances/lobby-1/restart", {})
    again = await order(fleet, "hold", {"reason": "a new map"})
    assert again["revision"] == (await fleet.controller.call("GET", "/api/v1/groups/lobby"))["revision"]
    decisions = (await fleet.controller.call("GET", "/api/v1/decisions?subject=instance/lobby-1"))["items"]
    (stop,) = [each for each in decisions if each["kind"] == "stop"]
    assert (stop["rule"], "a new map" in stop["reason"]) == ("hold.stop", True)
    await order(fleet, "release")
    await fleet.running(2)
    assert fleet.group_record().reason == ""
    await order(fleet, "release")
    told = await fleet.events("GROUP_HELD", "GROUP_RELEASED")
    assert [(each["type"], each["data"]["reason"]) for each in told] == [
        ("GROUP_HELD", "a new map"),
        ("GROUP_RELEASED", "a new map"),
    ]


async def test_a_hold_that_waits_for_players_stops_each_instance_when_it_is_empty(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=2)
    await fleet.running(2)
    await node.count_players("lobby-1", 3)
    vitals = fleet.term.workload.vitals
    await node.count_players("lobby-2", 0)
    await eventually(lambda: (vitals.players_of("lobby-1"), vitals.players_of("lobby-2")) == (3, 0))
    await order(fleet, "hold", {"reason": "soon", "when_empty": True})
    await fleet.reaches("lobby-2", "STOPPED")
    assert fleet.record("lobby-1").wanted == "run"
    await eventually(lambda: not fleet.term.reconciler._dirty)
    await node.count_players("lobby-1", 0)
    await all_stopped(fleet)
    decisions = (await fleet.controller.call("GET", "/api/v1/decisions?subject=instance/lobby-1"))["items"]
    (stop,) = [each for each in decisions if each["kind"] == "stop"]
    assert stop["cause"] == "the last player has left 'lobby-1'"


async def test_a_hold_outlives_its_controller(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    await order(fleet, "hold", {"reason": "for good"})
    await all_stopped(fleet)
    await fleet.controller.app.stop()
    await fleet.begin()
    node.address = fleet.controller.grpc_address
    await node.connect()
    await fleet.group("other", min=1)
    await fleet.running(1, "other")
    assert not fleet.alive()
    await order(fleet, "release")
    await fleet.running(1)


async def test_the_instances_of_a_held_static_group_come_back_as_they_were(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group("world", static=True, min=2)
    before = await fleet.running(2, "world")
    await order(fleet, "hold", {"reason": "a backup"}, "world")
    await all_stopped(fleet, "world")
    assert [fleet.record(id).home for id in before] == ["n1", "n1"]
    await order(fleet, "release", None, "world")
    assert await fleet.running(2, "world") == before
