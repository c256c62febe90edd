"""The same on PostgreSQL: starts, crashes, and a take-over with instances alive."""

from __future__ import annotations

import asyncio

import pytest
from pretend_node import S

from corral.controller.instances.instance_changes import start_instance
from corral.testing.waiting import eventually


@pytest.fixture
async def store(postgres):
    async with postgres.database() as url:
        yield url


@pytest.mark.trap("T36")
async def test_the_next_leader_goes_on_with_what_it_finds(store, fleet, scratch):
    await fleet.begin("one", store__url=store)
    node = await fleet.node("n1")
    await fleet.group(min=2, ports={"primary": {"range": [30000, 30001]}})
    names = await fleet.running(2)
    first = fleet.controller
    await node.crash("lobby-1", restart=True)
    await node.report("lobby-1", S.INSTANCE_STATE_RUNNING)
    await eventually(lambda: fleet.record("lobby-1").restarts == 1)
    await fleet.running(2)
    before = {record.id: record.incarnation for record in fleet.alive()}
    key = first.data / "ca" / "cluster.key"
    await node.drop()
    await first.app.stop()
    fleet.controller = await fleet._cluster.controller(
        "two", store__url=store, pki__cluster_key_file=str(key)
    )
    await eventually(lambda: fleet.controller.app.role.term is not None, deadline=40)
    node.address = fleet.controller.grpc_address
    await node.connect()
    assert await fleet.running(2) == names
    assert {record.id: record.incarnation for record in fleet.alive()} == before
    assert len(node.ordered) == 2
    await node.crash("lobby-2")
    await eventually(lambda: len(node.ordered) == 3)
    assert node.ordered[2].incarnation > max(before.values())
    await fleet.running(2)


@pytest.mark.trap("T21")
async def test_parallel_starts_on_postgresql_share_no_port(store, fleet):
    await fleet.begin("one", store__url=store)
    await fleet.node("n1")
    await fleet.group(ports={"primary": {"range": [30000, 30020]}})
    start = fleet.term.instances

    async def one():
        async with start.placing:
            ws = start.workspace(cause="test")
            start_instance(ws, "lobby")
            await fleet.term.ledger.commit(*ws.steps())

    await asyncio.gather(*(one() for _ in range(20)))
    await fleet.running(20)
    ports = [record.ports[0].port for record in fleet.alive()]
    assert len(set(ports)) == 20
