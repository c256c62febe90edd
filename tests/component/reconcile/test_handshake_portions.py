"""Handshakes that list a lot: in portions, nothing missing before the last, and no commit with too much in it."""

from __future__ import annotations

import asyncio
import collections
import contextlib

import pytest
from pretend_node import S

from corral.controller.instances.node_reports import PORTION
from corral.controller.sessions.handshake import MOST_LISTED_BYTES, MOST_RUNNING_OF_A_NODE
from corral.errors import Code, CorralError
from corral.testing.scripted_peers import ScriptedDaemon
from corral.testing.waiting import eventually
from corral.wire.handshake_lists import MOST_RUNNING, portions_of
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import Handshake, HandshakePortion


def claimed(count: int, *, group: str = "lobby") -> list[wire.RunningInstance]:
    return [
        wire.RunningInstance(
            instance_id=f"{group}-{number}",
            group=group,
            incarnation=(number + 10_000) * 1024,
            state=S.INSTANCE_STATE_RUNNING,
        )
        for number in range(10, 10 + count)
    ]


def intake_of(fleet):
    return fleet.term.sessions.find("rogue")._intake


@contextlib.asynccontextmanager
async def turns_of_the_loop():
    """Counts how often everybody else has a turn meanwhile."""
    turns = [0]

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count(), name="test/turns")
    try:
        yield turns
    finally:
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)


@pytest.mark.trap("T66")
async def test_sixty_thousand_claims_change_nothing_and_leave_the_loop_to_others(fleet):
    await fleet.begin()
    honest = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.running(1)
    rogue = await fleet.node("rogue", connect=False)
    portions = await asyncio.to_thread(lambda: portions_of(Handshake(running_instances=claimed(60_000))))
    assert max(len(portion.running_instances) for portion in portions) <= MOST_RUNNING
    before = {stored.record.id: stored.record.incarnation for stored in fleet.state.instances}
    async with ScriptedDaemon(rogue.identity, rogue.address) as daemon:
        await daemon.greet(portions_follow=True)
        for portion in portions[:-1]:
            await daemon.send(DaemonMessage(handshake_portion=portion))
        await eventually(
            lambda: len(intake_of(fleet)._listed) == 60_000 - len(portions[-1].running_instances)
        )
        async with daemon.answering_pings(), turns_of_the_loop() as turns:
            await daemon.send(DaemonMessage(handshake_portion=portions[-1]))
            await eventually(lambda: fleet.term.sessions.live("rogue").stray_count == 60_000)
    assert turns[0] >= 2 * (60_000 // PORTION), "sorted, then folded: the loop is free after each portion"
    await fleet.controller.call("GET", "/api/v1/groups")
    assert {stored.record.id: stored.record.incarnation for stored in fleet.state.instances} == before
    assert fleet.reservations().keys() == {"lobby-1"}
    assert honest.stops == []


@pytest.mark.trap("T66")
async def test_what_is_adopted_is_committed_in_portions_and_the_ledger_copied_once_each(fleet):
    await fleet.begin()
    node = await fleet.node("n1", connect=False)
    count = 3 * PORTION + 1
    runs = [fleet.ticketed(node, run, serial=7 + at) for at, run in enumerate(claimed(count))]
    node.runs = {run.instance_id: run for run in runs}
    await node.connect()
    await eventually(lambda: len(fleet.alive()) == count)
    commits = collections.Counter(stored.revision for stored in fleet.state.instances)
    assert max(commits.values()) <= PORTION
    assert len(fleet.reservations()) == count
    ledger = fleet.state.node_ledgers.require("n1").record
    assert ledger.serial == 6 + count, "the highest of them"


async def test_nothing_is_missing_before_the_last_portion(fleet):
    await fleet.begin()
    node = await fleet.node("n1")
    await fleet.group(min=2)
    await fleet.running(2)
    one, two = node.runs.values()
    await node.drop()
    await fleet.reaches(one.instance_id, "OFFLINE")
    await node.connect(running_instances=[one], portions_follow=True)
    await eventually(lambda: fleet.controller.node_state("n1") == "ONLINE")
    await fleet.controller.call("GET", "/api/v1/groups")
    assert {record.state for record in fleet.alive()} == {"OFFLINE"}
    await node.tell(DaemonMessage(handshake_portion=HandshakePortion(running_instances=[two])))
    await asyncio.sleep(0)
    assert {record.state for record in fleet.alive()} == {"OFFLINE"}
    await node.tell(DaemonMessage(handshake_portion=HandshakePortion(last=True)))
    await fleet.running(2)
    assert len(node.ordered) == 2
    assert len(await fleet.events("INSTANCE_CRASHED")) == 0


@pytest.mark.parametrize(
    "portions",
    [
        [HandshakePortion(running_instances=claimed(MOST_RUNNING + 1))],
        [HandshakePortion(last=True), HandshakePortion(last=True)],
        [HandshakePortion(running_instances=claimed(MOST_RUNNING))]
        * (MOST_RUNNING_OF_A_NODE // MOST_RUNNING + 1),
        [HandshakePortion(running_instances=[wire.RunningInstance(instance_id="x" * 3_000_000)])]
        * (1 + MOST_LISTED_BYTES // 3_000_000),
    ],
    ids=["too many in one", "one behind the last", "too many in all", "too many bytes"],
)
async def test_portions_are_bounded(fleet, portions):
    await fleet.begin()
    rogue = await fleet.node("rogue", connect=False)
    async with ScriptedDaemon(rogue.identity, rogue.address) as daemon:
        await daemon.greet(portions_follow=True)
        for portion in portions:
            await daemon.send(DaemonMessage(handshake_portion=portion))
        with pytest.raises(CorralError) as caught:
            while True:
                await daemon.read()
    assert caught.value.code in (Code.INVALID_FIELD, Code.BAD_REQUEST)


def test_a_handshake_that_fits_stays_one_frame():
    """So that a controller which knows no portions understands it."""
    hello = Handshake(running_instances=claimed(MOST_RUNNING))
    assert portions_of(hello) == []
    assert len(hello.running_instances) == MOST_RUNNING
    large = Handshake(running_instances=claimed(MOST_RUNNING + 1))
    portions = portions_of(large)
    assert large.portions_follow
    assert [portion.last for portion in portions] == [False] * (len(portions) - 1) + [True]
    assert sum(len(portion.running_instances) for portion in portions) == MOST_RUNNING + 1
