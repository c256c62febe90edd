"""A node is cut off from a real controller for longer than its group waits, and comes back."""

from __future__ import annotations

import pytest

from corral.testing.waiting import eventually

SOON = {"replace_after_seconds": 0}
"""As soon as the node could have connected three times."""


async def _two_nodes(fleet, **fields):
    """One instance on each of two nodes that connect again within 50 ms."""
    await fleet.begin()
    nodes = {name: await fleet.node(name, reconnect_max_ms=50) for name in ("n1", "n2")}
    await fleet.group(min=2, disconnect=SOON, **fields)
    await fleet.running(2)
    first, second = fleet.alive()
    assert {first.node, second.node} == set(nodes)
    return nodes, first


async def _lost(fleet, id):
    await eventually(lambda: fleet.record(id).lost, state=lambda: fleet.record(id))
    return fleet.record(id)


@pytest.mark.trap("T11")
async def test_a_lost_instance_is_replaced_and_one_of_the_two_stops_on_return(fleet):
    nodes, first = await _two_nodes(fleet, memory_mb=100)
    cut, other = nodes.pop(first.node), next(iter(nodes.values()))
    await cut.drop()
    lost = await _lost(fleet, first.id)
    await eventually(lambda: [each.state for each in fleet.alive()].count("RUNNING") == 2)
    (replacement,) = [each for each in fleet.alive() if each.replaces == first.id]
    assert (replacement.node, replacement.id) == (other.id, "lobby-3")
    assert first.id in fleet.reservations(), "it may be running"

    shown = await fleet.controller.call("GET", f"/api/v1/instances/{first.id}")
    assert (shown["state"], shown["lost"], shown["replaced_by"]) == ("OFFLINE", True, replacement.id)
    assert shown["lost_at"] is not None
    assert lost.lost_at == fleet.state.nodes.require(cut.id).record.lost_at
    taking = await fleet.controller.call("GET", f"/api/v1/instances/{replacement.id}")
    assert (taking["replaces"], taking["lost"]) == (first.id, False)
    group = await fleet.controller.call("GET", "/api/v1/groups/lobby")
    assert (group["status"]["instances"], group["status"]["lost"]) == (2, 1)
    why = await fleet.controller.call("GET", f"/api/v1/instances/{first.id}/why")
    assert f"its node '{cut.id}' is away since" in why["summary"]
    assert why["summary"].endswith(f"replaced by '{replacement.id}'")
    of_group = await fleet.controller.call("GET", "/api/v1/groups/lobby/why")
    assert "has 2, beside 1 lost" in of_group["summary"]
    assert any(
        f"{first.id} (lost, replaced by {replacement.id})" in each["reason"] for each in of_group["now"]
    )

    await cut.connect()
    await fleet.reaches(first.id, "STOPPED")
    assert [stop.instance_id for stop in cut.stops] == [first.id]
    assert not other.stops
    assert await fleet.running(2) == ["lobby-2" if first.id == "lobby-1" else "lobby-1", replacement.id]
    (event,) = await fleet.events("INSTANCE_LOST")
    assert event["subject"] == first.id
    rules = [
        each["rule"]
        for each in (await fleet.controller.call("GET", f"/api/v1/instances/{first.id}/why"))["decisions"]
    ]
    assert rules[:3] == ["duplicate.stop", "lost.return", "lost.replace"]
    chain = (await fleet.controller.call("GET", f"/api/v1/instances/{replacement.id}/why"))["chain"]
    assert [each["rule"] for each in chain][-3:] == ["lost.replace", "INSTANCE_LOST", "lost.replace"]


async def test_while_it_is_not_known_which_copy_has_players_everything_says_so(fleet):
    nodes, first = await _two_nodes(fleet)
    cut = nodes[first.node]
    await cut.count_players(first.id, 3)
    await eventually(lambda: fleet.term.workload.vitals.players_of(first.id) == 3)
    await cut.drop()
    await _lost(fleet, first.id)
    await eventually(lambda: [each.state for each in fleet.alive()].count("RUNNING") == 2)
    (other,) = [each.id for each in fleet.alive() if each.replaces == first.id]
    await cut.connect()
    await fleet.reaches(first.id, "RUNNING")
    await eventually(lambda: fleet.term.instances.signals.inventory_complete(cut.id))
    awaited = f"the players of '{first.id}' are reported"
    for subject in ("groups/lobby", f"instances/{first.id}", f"instances/{other}"):
        why = await fleet.controller.call("GET", f"/api/v1/{subject}/why")
        (told,) = [each for each in why["now"] if each["topic"] == "duplicates"]
        assert told["reason"].startswith(
            f"'{first.id}' is back on node '{cut.id}'; the number of its players is not known yet: "
            "it is waited for, at most until 20"
        )
        assert told["reason"].endswith(f"; then '{first.id}' or '{other}' goes")
        (change,) = [each for each in why["would_change"] if each["condition"] == awaited]
        assert (change["effect"], change["at"]) == (f"'{first.id}' or '{other}' goes", told["at"])
    summary = (await fleet.controller.call("GET", "/api/v1/groups/lobby/why"))["summary"]
    assert "wants 2 instances and has 3; " in summary
    assert "the number of its players is not known yet" in summary
    group = await fleet.controller.call("GET", "/api/v1/groups/lobby")
    assert "the number of its players is not known yet" in group["status"]["reason"]
    await cut.count_players(first.id, 3)
    await fleet.reaches(other, "STOPPED")
    (stopped,) = [
        each
        for each in (await fleet.controller.call("GET", f"/api/v1/instances/{other}/why"))["decisions"]
        if each["rule"] == "duplicate.stop"
    ]
    assert stopped["reason"] == (
        f"'{first.id}' is back on node '{cut.id}' with players, and '{other}', which replaced it, has none"
    )
    assert (await fleet.controller.call("GET", "/api/v1/groups/lobby"))["status"]["reason"] == ""


async def test_a_static_instance_is_waited_for_and_its_group_says_so(fleet):
    nodes, first = await _two_nodes(fleet, static=True)
    cut = nodes[first.node]
    await cut.drop()
    await _lost(fleet, first.id)
    await eventually(lambda: f"'{first.id}' is lost" in fleet.group_record().reason)
    assert len(fleet.alive()) == 2
    found = await fleet.controller.call("GET", "/api/v1/groups/lobby/why")
    assert "a static instance runs only where its directory is" in found["summary"]
    assert f"{cut.id} reconnects" in [each["condition"] for each in found["would_change"]]
    await cut.connect()
    await fleet.running(2)
    assert not cut.stops
    await eventually(lambda: not fleet.group_record().reason)


async def test_while_a_node_is_waited_for_its_group_says_until_when(fleet):
    nodes, first = await _two_nodes(fleet)
    await fleet.controller.call(
        "PATCH", "/api/v1/groups/lobby", {"disconnect": {"replace_after_seconds": 600}}
    )
    await nodes[first.node].drop()
    await fleet.reaches(first.id, "OFFLINE")
    for subject in ("groups/lobby", f"instances/{first.id}"):
        found = await fleet.controller.call("GET", f"/api/v1/{subject}/why")
        (waits,) = [each for each in found["would_change"] if each["condition"] == f"{first.node} stays away"]
        assert waits["effect"] == "what is there is lost, and replaced"
        assert waits["at"] is not None
    assert len(fleet.alive()) == 2


@pytest.mark.trap("T36")
async def test_a_new_leader_goes_on_with_what_is_lost_and_stops_nothing(fleet):
    nodes, first = await _two_nodes(fleet)
    cut, other = nodes.pop(first.node), next(iter(nodes.values()))
    await cut.drop()
    await _lost(fleet, first.id)
    await eventually(lambda: [each.state for each in fleet.alive()].count("RUNNING") == 2)
    before = {each.id: each.incarnation for each in fleet.alive()}
    await other.drop()
    await fleet.controller.app.stop()
    await fleet.begin()
    other.address = cut.address = fleet.controller.grpc_address
    await other.connect()
    await eventually(lambda: [each.state for each in fleet.alive()].count("RUNNING") == 2)
    assert fleet.record(first.id).lost
    assert {each.id: each.incarnation for each in fleet.alive()} == before
    assert not other.stops
