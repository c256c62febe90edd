"""Handshakes of a hostile node: nothing is adopted without a proof, no counter moves, lists are bounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hostile_site import NAMES, NUMBERS, VICTIM, YEAR_9999
from pretend_node import S

from corral.cli.failure import CommandRefused
from corral.controller.instances.start_identity import RESTORE_LEAP
from corral.controller.state.collections import (
    AUTHORITY,
    INSTANCES,
    NODE_LEDGERS,
    ONLY,
    RESERVATIONS,
    SEQUENCES,
    instance_decisions,
)
from corral.domain.groups.instance_records import SequenceRecord
from corral.domain.records import AuthorityRecord
from corral.errors import Code, CorralError
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing.scripted_peers import ScriptedDaemon
from corral.testing.waiting import eventually
from corral.wire import features
from corral.wire.handshake_lists import MOST_RUNNING
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1 import module_pb2 as modules


def forged(id: str, group: str, number: int, **fields: Any) -> wire.RunningInstance:
    settings = {"state": S.INSTANCE_STATE_RUNNING, "memory_mb": 2**40, "started_at_ms": YEAR_9999, **fields}
    return wire.RunningInstance(instance_id=id, group=group, incarnation=number, **settings)


@pytest.mark.trap("T65")
async def test_a_handshake_adopts_nothing_without_a_proof_and_moves_no_counter(site):
    """Groups it never got, a world that is stopped, ids that are none, numbers beyond all."""
    await site.rogue.drop()
    await eventually(lambda: site.fleet.controller.node_state("rogue") == "DISCONNECTED")
    before = site.documents()
    theirs = wire.RunningInstance.FromString(site.honest.runs[VICTIM].SerializeToString())
    listed = [
        *site.rogue.runs.values(),
        theirs,
        *(forged(id, "lobby", number) for id in NAMES for number in NUMBERS),
        *(forged(f"lobby-{n}", "lobby", 2**40 + n * 1024) for n in range(40, 43)),
        forged("named-1", "a\x1b[31mb", 2**40),
        forged("lobby-50", "lobby", 4096, ticket=theirs.ticket, plan_hash=theirs.plan_hash),
        forged(VICTIM, "lobby", theirs.incarnation, ticket=theirs.ticket, plan_hash=theirs.plan_hash),
    ]
    await site.rogue.connect(running_instances=listed)
    await site.taken_in()
    await eventually(lambda: site.fleet.term.sessions.live("rogue").stray_count)
    after = site.documents()
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed <= {("nodes", "rogue")}, changed
    shown = await site.fleet.controller.call("GET", "/api/v1/nodes/rogue")
    assert shown["stray_count"] >= 5
    assert len(shown["strays"]) <= 100
    named = {stray["instance"] for stray in shown["strays"]}
    assert {"lobby-40", "ghost-1"} <= named
    assert not named & {"../../x", "a\0b", "x" * 20_000, "", "named-1"}, "what is no name is not even shown"
    assert all(stray["incarnation"] < 2**63 for stray in shown["strays"])
    assert {stop.instance_id for stop in site.rogue.stops} <= {VICTIM, "world-1"}, (
        "what nobody knows is left alone; only copies that lost are told to end"
    )
    await site.fleet.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await site.fleet.running(2)


@pytest.mark.trap("T65")
async def test_a_ticket_is_good_for_its_node_its_start_and_once(site):
    """A replay after the record was forgotten, the ticket of another node, of another start."""
    run = site.rogue.runs["mine-1"]
    await site.fleet.controller.call("DELETE", "/api/v1/groups/mine?cascade=true&confirm=mine")
    await eventually(
        lambda: site.fleet.record("mine-1") is None or site.fleet.record("mine-1").state == "STOPPED"
    )
    stored = site.fleet.state.instances.find("mine-1")
    if stored is not None:
        await site.fleet.term.ledger.commit(INSTANCES.delete("mine-1", expect=stored.revision))
    await site.rogue.drop()
    ghost = wire.RunningInstance.FromString(run.SerializeToString())
    ghost.state = S.INSTANCE_STATE_RUNNING
    later = wire.RunningInstance.FromString(ghost.SerializeToString())
    later.instance_id, later.incarnation = "mine-2", later.incarnation + 1024
    await site.rogue.connect(running_instances=[ghost, later])
    await eventually(lambda: (live := site.fleet.term.sessions.live("rogue")) and live.stray_count == 2)
    assert site.fleet.record("mine-1") is None
    assert site.fleet.record("mine-2") is None
    assert "used before" in site.fleet.term.sessions.live("rogue").strays[0].reason


@pytest.mark.trap("T65")
async def test_lists_in_a_handshake_are_bounded(site):
    many = [forged(f"g-{n}", "g", n * 1024) for n in range(MOST_RUNNING + 1)]
    for field, value in {
        "running_instances": many,
        "modules": [modules.ModuleSetEntry(module_id=f"m{n}") for n in range(1001)],
    }.items():
        async with ScriptedDaemon(site.rogue.identity, site.rogue.address) as daemon:
            with pytest.raises(CorralError) as caught:
                await daemon.greet(**{field: value})
        assert caught.value.code is Code.INVALID_FIELD
        assert field in str(caught.value)


@pytest.mark.trap("T65")
async def test_numbers_beyond_all_end_no_session_and_a_poisoned_counter_is_mended(site):
    """The counter as an older version left it, after a node had claimed the highest number there is."""
    highest = max(stored.record.incarnation for stored in site.fleet.state.instances) // 1024
    poisoned = SequenceRecord(reserved=2**54)
    await site.fleet.term.ledger.commit(SEQUENCES.put("starts", poisoned, expect=None))
    await site.fleet.controller.app.stop()
    await site.fleet.begin()
    for node in (site.honest, site.rogue):
        await node.drop()
        node.address = site.fleet.controller.grpc_address
        await node.connect()
    await site.fleet.running(1)
    await site.fleet.controller.call("POST", f"/api/v1/instances/{VICTIM}/restart", {})
    ended = await site.fleet.reaches(VICTIM, "STOPPED")
    assert "repair-sequence" in ended.reason
    await eventually(lambda: "repair-sequence" in site.fleet.group_record().reason)
    assert site.fleet.controller.node_state("n1") == "ONLINE"
    with pytest.raises(CommandRefused, match="counter is exhausted"):
        await site.fleet.controller.call("POST", "/api/v1/instances", {"group": "mine"})
    answer = await site.fleet.controller.call("POST", "/api/v1/cluster/repair-sequence")
    assert (answer["before"] >= 2**54, answer["highest_used"], answer["ignored"]) == (True, highest, 0)
    await site.fleet.controller.call("POST", "/api/v1/instances", {"group": "mine"})
    await site.fleet.running(1)
    audit = await site.fleet.controller.call("GET", "/api/v1/audit?limit=100")
    entries = [
        entry for entry in audit["items"] if entry["action"] == "cluster.repair_sequence" and entry["after"]
    ]
    assert [entry["after"]["highest_used"] for entry in entries] == [highest]


async def test_a_record_with_a_number_that_no_cluster_reaches_does_not_count_for_the_repair(site):
    record = msgspec.structs.replace(
        site.fleet.record("world-1"), id="ghost-1", incarnation=2**62, adopted=True, home=""
    )
    await site.fleet.term.ledger.commit(INSTANCES.put("ghost-1", record, expect=None))
    numbers = site.fleet.term.instances.numbers
    coming = numbers.take()
    answer = await site.fleet.controller.call("POST", "/api/v1/cluster/repair-sequence")
    assert (answer["highest_used"], answer["ignored"]) == (coming // 1024, 1)
    assert numbers.take() == coming + 1024, "what was given out and not stored yet is not given out again"


async def test_after_the_epoch_was_raised_numbers_are_left_out(site):
    """A restored store: nodes without tickets may run what comes next, and cannot prove it."""
    before = site.fleet.state.sequences.require("starts").record.reserved
    epoch = (await site.fleet.controller.call("POST", "/api/v1/cluster/raise-epoch"))["epoch"]
    await eventually(lambda: getattr(site.fleet.term, "epoch", 0) == epoch)
    await eventually(lambda: site.fleet.state.sequences.require("starts").record.epoch == epoch)
    assert site.fleet.state.sequences.require("starts").record.reserved >= before + RESTORE_LEAP


@pytest.mark.trap("T65")
async def test_a_restored_store_adopts_what_it_ordered_and_forgot(site):
    """With the ticket of each start; also when something was placed on the node before it was heard."""
    node = site.rogue
    run = node.runs["mine-1"]
    stored, ledger = (
        site.fleet.state.instances.require("mine-1"),
        site.fleet.state.node_ledgers.require("rogue"),
    )
    await node.drop()
    older = msgspec.structs.replace(ledger.record, serial=0)
    sequence = site.fleet.state.sequences.revision("starts")
    await site.fleet.term.ledger.commit(
        INSTANCES.delete("mine-1", expect=stored.revision),
        NODE_LEDGERS.put("rogue", older, expect=ledger.revision),
        RESERVATIONS.delete("rogue/mine-1", expect=None),
        SEQUENCES.put("starts", SequenceRecord(reserved=2), expect=sequence),
    )
    await site.fleet.controller.app.stop()
    await site.fleet.begin()
    later = site.fleet.term.instances.workspace(cause="test")
    group = msgspec.structs.replace(later.require_group("mine"), target=0)
    later.put_ledger(msgspec.structs.replace(older, serial=5))
    later.put_group(group)
    await site.fleet.term.ledger.commit(*later.steps())
    node.address = site.fleet.controller.grpc_address
    await node.connect(running_instances=[run])
    record = await site.fleet.reaches("mine-1", "RUNNING")
    assert (record.adopted, record.incarnation, record.plan_hash) == (True, run.incarnation, run.plan_hash)
    assert site.fleet.term.instances.numbers.take() > run.incarnation, "its number is not given out again"
    assert node.stops == []


@pytest.mark.trap("T65")
async def test_a_stray_that_comes_again_with_each_handshake_is_decided_once(site):
    """A run that was given up, which its node never ends."""
    run = wire.RunningInstance.FromString(site.rogue.runs["mine-1"].SerializeToString())
    await site.fleet.controller.call("POST", "/api/v1/instances/mine-1/kill", {})
    await eventually(lambda: site.fleet.record("mine-1").state == "STOPPED")
    site.rogue.deaf = True
    for _ in range(3):
        await site.rogue.drop()
        stops = len(site.rogue.stops)
        await site.rogue.connect(running_instances=[run])
        await eventually(lambda stops=stops: len(site.rogue.stops) > stops)
    journal = instance_decisions("mine-1")
    entries = await site.fleet.controller.app.store.reads.entries(journal.name, limit=100)
    reasons = [journal.decode(entry.body).reason for entry in entries]
    assert len([reason for reason in reasons if reason.startswith("the copy")]) == 1, reasons


async def test_a_daemon_without_tickets_gets_none_and_its_known_runs_go_on(fleet):
    """One from before them, or a published one: the record is proof enough, before and after a new session."""
    await fleet.begin()
    older = [name for name in features.FEATURES if name not in (features.TICKETS, features.PORTIONS)]
    node = await fleet.node("n1", features=older)
    await fleet.group(min=1)
    await fleet.running(1)
    assert node.starts[0].ticket == ""
    number = fleet.record("lobby-1").incarnation
    await node.drop()
    await fleet.reaches("lobby-1", "OFFLINE")
    await node.connect()
    await fleet.running(1)
    assert fleet.record("lobby-1").incarnation == number
    await node.crash("lobby-1", restart=True)
    await eventually(lambda: fleet.record("lobby-1").incarnation == number + 1)
    assert fleet.term.sessions.live("n1").stray_count == 0
    assert (len(node.ordered), node.stops) == (1, [])


async def test_tickets_follow_the_authority_that_is_replaced(fleet):
    """With the one before still there its tickets hold; without it they prove nothing any more."""
    controller = await fleet.begin()
    await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    tickets, record = fleet.term.instances.tickets, fleet.record("lobby-1")
    facts = {"node": "n1", "id": "lobby-1", "group": "lobby", "incarnation": record.incarnation}
    first = tickets.of(record)
    assert tickets.proven(first, **facts)
    key = ClusterKey.load(controller.data / "ca" / "cluster.key")
    fresh = Authority.create(
        cluster=fleet.state.identity.id, cluster_key=key, clock=SystemClock(), entropy=SystemEntropy()
    )
    before = fleet.state.authorities.active
    for retiring in ((before,), ()):
        after = AuthorityRecord(active=fresh, retiring=retiring)
        await fleet.term.ledger.commit(
            AUTHORITY.put(ONLY, after, expect=fleet.state.authority.revision(ONLY))
        )
        assert tickets.of(record) != first
        assert tickets.proven(tickets.of(record), **facts)
        assert (tickets.proven(first, **facts) is not None) is bool(retiring)


@pytest.mark.trap("T65")
async def test_worlds_that_no_instance_can_have_and_a_place_that_is_no_line_are_not_taken(site):
    await site.rogue.drop()
    worlds = [
        "mine-7",
        "",
        "../../etc",
        "x" * 300,
        "lobby-1\x1b[2J",
        "a\nb",
        *(f"far-{n}" for n in range(999)),
    ]
    await site.rogue.connect(worlds=worlds, static_directory="/srv\n\x1b]0;title\x07")
    record = site.fleet.state.nodes.require("rogue").record
    assert "mine-7" in record.worlds
    assert len(record.worlds) <= 256
    assert all(id == "mine-7" or id.startswith("far-") for id in record.worlds)
    assert record.static_directory == ""
