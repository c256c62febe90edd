"""Groups that grow and shrink with the players that real workloads report."""

from __future__ import annotations

import pytest

from corral.testing import workloads


def quick(**fields):
    """A group that follows its load within seconds."""
    scaling = {"mode": "DYNAMIC", "idle_seconds": 1, "window_seconds": 1, "cooldown_seconds": 1, **fields}
    return {"min": 1, "max": 4, "max_players": 10, "scaling": scaling}


@pytest.mark.system
@pytest.mark.trap("T23")
async def test_a_group_grows_with_its_players_and_shrinks_to_those_that_have_some(site):
    await site.begin()
    await site.group(**quick())
    (first,) = await site.running(1)
    await site.players_are({first.id: 0})
    site.play(first.id, 9)  # more than 0.8 of ten
    await site.running(2)
    site.play("lobby-2", 9)
    await site.running(3)
    site.play("lobby-3", 1)
    await site.players_are({first.id: 9, "lobby-2": 9, "lobby-3": 1})
    pids = {each.id: each.pid for each in site.records()}
    site.play(first.id, 0)
    site.play("lobby-2", 0)
    left = await site.running(1)
    assert [(each.id, each.pid) for each in left] == [("lobby-3", pids["lobby-3"])], "the one with a player"
    assert site.copies.seen["lobby-3"] == {pids["lobby-3"]}
    assert {id: len(seen) for id, seen in site.copies.seen.items()} == {
        "lobby-1": 1,
        "lobby-2": 1,
        "lobby-3": 1,
    }


@pytest.mark.system
async def test_an_instance_with_players_outlives_every_wait_that_ends_an_empty_one(site):
    await site.begin()
    for name in ("lobby", "empty"):
        await site.group(name, **quick(free_slots=15))  # more than one instance has
    two = await site.running(2)
    await site.running(2, "empty")
    for each in two:
        site.play(each.id, 1)
    await site.players_are({each.id: 1 for each in two})
    for name in ("lobby", "empty"):
        await site.controller.call("PATCH", f"/api/v1/groups/{name}", {"scaling": {"free_slots": 0}})
    await site.running(1, "empty")
    assert [(each.id, each.pid) for each in site.records()] == [(each.id, each.pid) for each in two]
    site.play(two[1].id, 0)
    left = await site.running(1)
    assert [(each.id, each.pid) for each in left] == [(two[0].id, two[0].pid)]


async def test_players_that_a_workload_reported_once_are_known_after_every_kind_of_interruption(site):
    await site.begin()
    once = workloads.reporting_players(str(site.players), every=3600)
    await site.group(min=1, max_players=20, command=once)
    (one,) = await site.running(1)
    site.play(one.id, 7)
    await site.players_are({one.id: 7})
    daemon = site.daemons[one.node]
    await site.controller.app.stop()
    await site.lead("controller")  # knows nothing of players, and the workload has nothing new to say
    await site.players_are({one.id: 7})
    await site.cut(one.node)
    await site.until(lambda: site.record(one.id).state.value == "OFFLINE")
    site.mend(one.node)
    await site.running(1)
    await site.players_are({one.id: 7})
    await site.cluster.restart(daemon)
    await site.controller.app.stop()
    await site.lead("controller")
    await site.players_are({one.id: 7})
    assert site.copies.seen == {one.id: {one.pid}}
