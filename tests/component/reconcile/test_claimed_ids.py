"""Ids of runs that a node has and nothing proves to be ours: nobody starts a second one of that name."""

from __future__ import annotations

import pytest
from pretend_node import S

from corral.cli.failure import CommandRefused
from corral.testing.waiting import eventually
from corral.wire.v1 import instance_pb2 as wire


async def with_strays(fleet, *ids: str):
    """n1 runs something that no record knows; n2 is there to be used."""
    await fleet.begin(reconcile__floor_seconds=0.2)
    n1 = await fleet.node("n1", connect=False)
    for id in ids:
        n1.runs[id] = wire.RunningInstance(
            instance_id=id,
            group=id.rpartition("-")[0],
            incarnation=5 * 1024,
            state=S.INSTANCE_STATE_RUNNING,
            pid=7,
        )
    await n1.connect()
    await eventually(lambda: fleet.term.sessions.live("n1").stray_count == len(ids))
    return n1, await fleet.node("n2")


async def test_an_id_that_a_node_claims_to_run_is_not_given_out_again(fleet):
    n1, n2 = await with_strays(fleet, "lobby-1", "lobby-3")
    await fleet.group("lobby", min=2, nodes=["n2"])
    assert await fleet.running(2) == ["lobby-2", "lobby-4"]
    assert {start.instance_id for start in n2.starts} == {"lobby-2", "lobby-4"}
    await n1.drop()
    await n1.connect()
    await eventually(lambda: fleet.term.sessions.live("n1").stray_count == 2)
    assert n1.stops == [], "nothing was given out twice, so nothing has to end"


async def test_a_static_instance_that_a_node_claims_to_run_waits_and_says_why(fleet):
    n1, n2 = await with_strays(fleet, "world-1")
    await fleet.group("world", static=True, min=1, nodes=["n2"])
    await eventually(lambda: "node 'n1' runs 'world-1'" in fleet.group_record("world").reason)
    with pytest.raises(CommandRefused) as refused:
        await fleet.controller.call("POST", "/api/v1/instances", {"group": "world"})
    assert "node 'n1' runs 'world-1'" in str(refused.value)
    assert (n2.starts, n1.stops) == ([], [])
    await n1.report("world-1", S.INSTANCE_STATE_STOPPED)
    assert await fleet.running(1, "world") == ["world-1"]


async def test_a_node_cannot_keep_a_world_down_whose_directory_is_elsewhere(fleet):
    await fleet.begin(reconcile__floor_seconds=0.2)
    await fleet.node("n2")
    await fleet.group("world", static=True)
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "world"})
    await fleet.running(1, "world")
    await fleet.controller.call("POST", "/api/v1/instances/world-1/stop", {})
    stopped = await fleet.reaches("world-1", "STOPPED")
    n1 = await fleet.node("n1", connect=False)
    n1.runs["world-1"] = wire.RunningInstance(
        instance_id="world-1",
        group="world",
        incarnation=stopped.incarnation + 5 * 1024,
        state=S.INSTANCE_STATE_RUNNING,
    )
    await n1.connect()
    await eventually(lambda: fleet.term.sessions.live("n1").stray_count == 1)
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "world"})
    await fleet.running(1, "world")
    assert fleet.record("world-1").node == "n2"
