"""A reconciler that always has groups to check still loses nodes, and looks at what has become possible."""

from __future__ import annotations

import pytest

from corral.testing.waiting import eventually

_FLOOD = 2000
"""Starts that one pass after the other makes, ten at a time."""


async def _flood(fleet) -> None:
    """A group that needs many passes; its node is told of them and answers nothing."""
    node = await fleet.node("big", total_memory_mb=10_000_000)
    node.deaf = True
    await fleet.group("flood", min=_FLOOD, nodes=["big"], memory_mb=1)
    await eventually(lambda: len(fleet.alive("flood")) >= 20)


async def _number(fleet, type: str, subject: str) -> int:
    """The place of an event in the order of all."""
    after = "0-0"
    while True:
        path = f"/api/v1/events?limit=500&types={type}&subject={subject}&after={after}"
        page = await fleet.controller.call("GET", path)
        if page["items"]:
            return int(page["items"][0]["id"].partition("-")[2])
        assert page["next"], f"there is no {type} of {subject}"
        after = page["next"]


async def _last_of_flood(fleet) -> int:
    await eventually(lambda: len(fleet.alive("flood")) == _FLOOD, deadline=60)
    return await _number(fleet, "INSTANCE_SCHEDULED", f"flood-{_FLOOD}")


@pytest.mark.system
async def test_a_node_is_lost_while_groups_are_checked_all_the_time(fleet):
    await fleet.begin(reconcile__offline_after_seconds=0.01, reconcile__resend_seconds=60)
    lost = await fleet.node("n1")
    await fleet.group(min=1, nodes=["n1"])
    await fleet.running(1)
    await _flood(fleet)
    await lost.drop()
    last = await _last_of_flood(fleet)
    await fleet.reaches("lobby-1", "OFFLINE")
    assert await _number(fleet, "INSTANCE_OFFLINE", "lobby-1") < last


@pytest.mark.system
async def test_a_group_gets_room_that_became_free_while_others_are_checked_all_the_time(fleet):
    await fleet.begin(reconcile__resend_seconds=60)
    await fleet.node("n1")
    await fleet.controller.call("POST", "/api/v1/nodes/n1/cordon", {"reason": "test"})
    await fleet.group(min=1, nodes=["n1"])
    await eventually(lambda: fleet.group_record().reason)
    await _flood(fleet)
    await fleet.controller.call("POST", "/api/v1/nodes/n1/uncordon", {})
    last = await _last_of_flood(fleet)
    await eventually(lambda: fleet.record("lobby-1"))
    assert await _number(fleet, "INSTANCE_SCHEDULED", "lobby-1") < last
