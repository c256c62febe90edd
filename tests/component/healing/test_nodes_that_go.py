"""Nodes whose line is cut, and what becomes of their instances while they are away and when they are back."""

from __future__ import annotations

import pytest

from corral.domain.node_states import NodeState

AWAY = (NodeState.DISCONNECTED, NodeState.UNREACHABLE)
SOON = {"replace_after_seconds": 1}
LATE = {"replace_after_seconds": 600}


async def replaced(site, lost):
    """Cut off the node of this instance, until another serves in its place; returns that one."""
    before = {each.id for each in site.records()}
    await site.cut(lost.node)
    await site.until(lambda: {each.id for each in site.records()} - before)
    (id,) = {each.id for each in site.records()} - before
    await site.until(lambda: site.record(id).state.value == "RUNNING")
    return site.record(id)


@pytest.mark.system
async def test_a_node_that_is_back_in_time_goes_on_as_if_nothing_had_been(site):
    await site.begin()
    await site.group(min=3, disconnect=LATE)
    before = await site.running(3)
    lost = before[0]
    await site.cut(lost.node)
    await site.node_is(lost.node, *AWAY)
    await site.until(lambda: site.record(lost.id).state.value == "OFFLINE")
    assert lost.pid in site.copies.now()[lost.id], "nothing is assumed dead"
    site.mend(lost.node)
    after = await site.running(3)
    assert [(each.id, each.pid, each.incarnation) for each in after] == [
        (each.id, each.pid, each.incarnation) for each in before
    ]
    assert set(site.copies.seen) == {each.id for each in before}, "nothing was started in its place"


@pytest.mark.system
async def test_a_lost_instance_is_replaced_under_another_id_and_goes_when_it_is_back_and_empty(site):
    await site.begin()
    await site.group(min=2, disconnect=SOON)
    lost, other = await site.running(2)
    await site.players_are({lost.id: 0, other.id: 0})
    new = await replaced(site, lost)
    assert new.node != lost.node
    assert new.replaces == lost.id
    assert lost.pid in site.copies.now()[lost.id], "it may have players: only its node knows"
    assert site.record(lost.id).lost
    site.mend(lost.node)
    left = await site.running(2)
    assert {each.id for each in left} == {other.id, new.id}
    assert site.record(lost.id).exit.outcome == "stopped"


@pytest.mark.system
async def test_a_lost_instance_that_is_back_with_players_stays_and_its_empty_replacement_goes(site):
    await site.begin()
    await site.group(min=2, max_players=20, disconnect=SOON)
    lost, other = await site.running(2)
    site.play(lost.id, 7)
    await site.players_are({lost.id: 7, other.id: 0})
    new = await replaced(site, lost)
    await site.players_are({new.id: 0})
    site.mend(lost.node)
    left = await site.running(2)
    assert {(each.id, each.pid) for each in left} == {(lost.id, lost.pid), (other.id, other.pid)}


async def test_where_both_copies_have_players_the_younger_takes_no_more_and_goes_when_it_is_empty(site):
    await site.begin()
    await site.group(min=1, max_players=20, disconnect=SOON)
    (lost,) = await site.running(1)
    site.play(lost.id, 7)
    await site.players_are({lost.id: 7})
    new = await replaced(site, lost)
    site.play(new.id, 3)
    await site.players_are({new.id: 3})
    site.mend(lost.node)
    await site.until(lambda: site.record(new.id).state.value == "DRAINING")
    assert site.record(lost.id).state.value == "RUNNING"
    assert {lost.pid, new.pid} <= {pid for pids in site.copies.now().values() for pid in pids}
    site.play(new.id, 0)
    left = await site.running(1)
    assert [(each.id, each.pid) for each in left] == [(lost.id, lost.pid)]


async def test_a_lost_instance_that_is_back_before_its_replacement_is_ready_serves_on(site):
    await site.begin()
    await site.group(min=1, min_alive_ms=600_000, disconnect=SOON)
    (lost,) = await site.running(1)
    await replaced(site, lost)
    site.mend(lost.node)
    left = await site.running(1)
    assert [(each.id, each.pid) for each in left] == [(lost.id, lost.pid)]


async def test_a_static_instance_is_waited_for(site):
    await site.begin()
    await site.group(min=1, static=True, disconnect=SOON)
    await site.group("marker", min=1, disconnect=SOON)
    (world,) = await site.running(1)
    (marker,) = await site.running(1, "marker")
    for node in {world.node, marker.node}:
        await site.cut(node)
    await site.until(lambda: len(site.records("marker")) == 2)  # its time is over, too
    await site.until(lambda: site.record(world.id).lost)
    assert set(site.copies.seen) - {"marker-1", "marker-2"} == {world.id}
    for node in {world.node, marker.node}:
        site.mend(node)
    (back,) = await site.running(1)
    assert (back.id, back.pid) == (world.id, world.pid)


async def test_a_group_that_needs_at_most_one_copy_has_none_on_a_node_without_a_controller(site):
    await site.begin()
    stop = [{"signal": "SIGTERM", "wait_seconds": 1}]
    await site.group(min=1, stop=stop, disconnect={"stop_after_seconds": 1, "replace_after_seconds": 12})
    (lost,) = await site.running(1)
    await site.cut(lost.node)
    await site.until(lambda: lost.id not in site.copies.now())
    assert site.record(lost.id).state.value in ("RUNNING", "OFFLINE"), "its node cannot have told"
    site.mend(lost.node)
    await site.until(lambda: site.record(lost.id).exit is not None)
    ended = site.record(lost.id)
    assert (ended.state.value, ended.exit.outcome) == ("STOPPED", "isolated")
    assert "no controller for 1 s" in ended.reason
    (new,) = await site.running(1)
    assert new.id != lost.id
    assert site.state.groups.require("lobby").record.failures == ()


@pytest.mark.system
@pytest.mark.trap("T11")
async def test_in_a_partition_no_id_lives_twice_and_afterwards_each_place_is_taken_once(site):
    await site.begin()
    await site.group(min=4, disconnect=SOON)
    await site.group("world", min=2, static=True, disconnect=SOON)
    first = await site.running(4)
    worlds = await site.running(2, "world")
    for node in ("n1", "n2"):
        there = [each for each in first if each.node == node]
        await site.cut(node)
        await site.until(lambda there=there: all(site.record(each.id).lost for each in there))
    await site.until(lambda: [each.node for each in site.records() if not each.lost] == ["n3"] * 4)
    for node in ("n1", "n2"):
        site.mend(node)
    await site.running(4)
    again = await site.running(2, "world")
    assert [(each.id, each.pid) for each in again] == [(each.id, each.pid) for each in worlds]
    alive = site.copies.now()
    kept = {each.id: {each.pid} for each in (*site.records(), *site.records("world"))}
    assert {id: pids for id, pids in alive.items() if id in kept} == kept
    await site.until(lambda: set(site.copies.now()) == set(kept))


@pytest.mark.trap("T36", "T11")
async def test_a_leader_that_takes_over_waits_its_own_time_before_it_replaces_anything(site):
    await site.begin()
    await site.group(min=3, disconnect=SOON)
    before = await site.running(3)
    await site.players_are({each.id: 0 for each in before})
    lost = next(each for each in before if each.node == "n1")
    await site.cut("n1")
    await site.controller.app.stop()
    await site.lead("controller")
    await site.until(lambda: site.record(lost.id).lost, deadline=90)
    await site.until(lambda: len([each for each in site.records() if each.state.value == "RUNNING"]) == 3)
    kept = {each.id: each.pid for each in before if each.id != lost.id}
    assert kept.items() <= {each.id: each.pid for each in site.records()}.items()
    site.mend("n1")
    left = await site.running(3)
    assert kept.items() <= {each.id: each.pid for each in left}.items()
