"""What a node must not lose arrives once and in order, whatever happens to the link."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from corral.domain.node_states import NodeState
from corral.testing.fault_proxy import FaultProxy
from corral.testing.ports import free_addresses
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.testing.waiting import eventually
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import DaemonLogRecord


async def stored_messages(controller, node_id="n1") -> list[str]:
    """Every log record the controller has stored of a node, oldest first."""
    found, after = [], 0
    while True:
        page = await controller.call("GET", f"/api/v1/logs?source=node:{node_id}&limit=500&after={after}")
        if not page["items"]:
            return [record["message"] for record in found]
        found += page["items"]
        after = page["items"][-1]["number"]


async def all_stored(controller, count: int) -> list[str]:
    async def enough():
        messages = await stored_messages(controller)
        return messages if len(messages) >= count else None

    return await eventually(enough, deadline=60)


@pytest.mark.trap("T10")
async def test_records_written_during_an_outage_and_a_restart_arrive_in_order_and_once(cluster):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        daemon = await cluster.daemon("n1", controller)
        for number in range(200):
            daemon.log.write(f"record {number}")
        await proxy.cut(refuse=True)
        await controller.wait_for_node("n1", NodeState.DISCONNECTED)
        for number in range(200, 500):
            daemon.log.write(f"record {number}")
        await daemon.app.stop()
        again = await cluster.daemon("n1", controller, connect=False)
        for number in range(500, 700):
            again.log.write(f"record {number}")
        proxy.heal()
        messages = await all_stored(controller, 700)
        assert messages == [f"record {number}" for number in range(700)]
        await again.app.stop()


@pytest.mark.trap("T10")
async def test_random_cuts_under_load_neither_lose_nor_double_nor_reorder(cluster):
    chance = random.Random(7)
    async with FaultProxy() as proxy:
        controller = await cluster.controller(via=proxy)
        daemon = await cluster.daemon("n1", controller)
        total = 3000
        for number in range(total):
            daemon.log.write(f"record {number}")
            if chance.random() < 0.004:
                await proxy.cut(refuse=False)
            if number % 10 == 0:
                await asyncio.sleep(0)
        messages = await all_stored(controller, total)
        assert messages == [f"record {number}" for number in range(total)]
        await daemon.app.stop()


async def test_a_record_that_is_sent_twice_is_stored_once_and_confirmed_twice(cluster, scratch):
    controller = await cluster.controller()
    identity = await enrolled_identity(scratch / "n1", token=await controller.join_token("n1"), node_id="n1")

    def record(number: int) -> DaemonMessage:
        return DaemonMessage(
            daemon_log_record=DaemonLogRecord(level="INFO", message=f"record {number}"), spool_sequence=number
        )

    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        assert (await daemon.greet()).handshake_ack.spool_confirmed == 0
        await daemon.send(record(1))
        await daemon.send(record(2))
        while (await daemon.read_until("spool_ack")).spool_ack.sequence < 2:
            pass
    async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
        assert (await daemon.greet()).handshake_ack.spool_confirmed == 2
        for number in (1, 2, 3):
            await daemon.send(record(number))
        while (await daemon.read_until("spool_ack")).spool_ack.sequence < 3:
            pass
    assert await stored_messages(controller) == ["record 1", "record 2", "record 3"]


async def test_a_wiped_node_starts_its_spool_over_and_nothing_is_taken_for_a_repetition(cluster, scratch):
    controller = await cluster.controller()
    identity = await enrolled_identity(scratch / "n1", token=await controller.join_token("n1"), node_id="n1")
    for spool in ("first", "second"):
        async with ScriptedDaemon(identity, controller.grpc_address) as daemon:
            assert (await daemon.greet(spool_id=spool)).handshake_ack.spool_confirmed == 0
            log = DaemonLogRecord(level="INFO", message=spool)
            await daemon.send(DaemonMessage(daemon_log_record=log, spool_sequence=1))
            await daemon.read_until("spool_ack")
    assert await stored_messages(controller) == ["first", "second"]


@pytest.mark.trap("T28")
async def test_steps_of_the_wall_clock_move_neither_sessions_nor_leases_nor_pauses(cluster, clock):
    async with FaultProxy() as proxy:
        controller = await cluster.controller(
            clock=clock, link__heartbeat_seconds=0.2, link__missed_pongs=100, via=proxy
        )
        # Only pongs are heard, so that a silence measured by the wall clock would show at once.
        daemon = await cluster.daemon("n1", controller, clock=clock, link__status_seconds=60)
        session = daemon.app.link.session_id
        term = controller.app.role.term
        live = term.sessions.find("n1")
        for step in (3600, -7200, 3600):
            await eventually(lambda: live.heartbeat.pinged == live.heartbeat.ponged)
            clock.step(step)
            pinged = live.heartbeat.pinged
            await eventually(lambda p=pinged: live.heartbeat.pinged > p + 3)
            assert daemon.app.link.session_id == session
            assert controller.app.role.term is term
        clock.step(-3600)
        await proxy.cut(refuse=False)
        await controller.wait_for_node("n1", NodeState.ONLINE)
        await eventually(lambda: daemon.app.link.session_id not in ("", session))
        await daemon.app.stop()


async def test_a_process_that_stood_still_keeps_its_links(cluster):
    """A suspended machine, or one without processor time: what arrived meanwhile was not silence."""
    controller = await cluster.controller(link__heartbeat_seconds=0.5, link__missed_pongs=1000)
    daemon = await cluster.daemon("n1", controller, link__status_seconds=60)
    session = daemon.app.link.session_id
    live = controller.app.role.term.sessions.find("n1")
    await eventually(lambda: live.heartbeat.pinged == live.heartbeat.ponged)
    time.sleep(2)  # the fault itself: nothing runs in this process
    pinged = live.heartbeat.pinged
    await eventually(lambda: live.heartbeat.ponged > pinged or daemon.app.link.session_id != session)
    assert daemon.app.link.session_id == session


async def test_nodes_come_back_after_the_controller_restarts(cluster):
    (listen,) = free_addresses(1)
    controller = await cluster.controller(grpc__listen=listen)
    daemon = await cluster.daemon("n1", controller)
    await controller.app.stop()
    await eventually(lambda: not daemon.app.ready.is_set())
    daemon.log.write("said while nobody led")
    again = await cluster.controller(grpc__listen=listen)
    await again.wait_for_node("n1", NodeState.ONLINE)
    assert await all_stored(again, 1) == ["said while nobody led"]
    events = await again.call("GET", "/api/v1/events?types=NODE_ONLINE,NODE_DISCONNECTED")
    assert [event["type"] for event in events["items"]] == ["NODE_ONLINE", "NODE_DISCONNECTED", "NODE_ONLINE"]
