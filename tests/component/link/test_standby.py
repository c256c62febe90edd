"""Two controllers on one PostgreSQL: one leads, one shows the way and takes over."""

from __future__ import annotations

import asyncio

import pytest

from corral.cli.failure import CommandFailure
from corral.controller.term.controller_role import LinkDirectory
from corral.domain.ids import NodeId
from corral.domain.node_states import NodeState
from corral.errors import CorralError
from corral.testing.api_calls import call
from corral.testing.fault_proxy import FaultProxy
from corral.testing.postgres_server import PostgresServer
from corral.testing.waiting import eventually

LEASE = {"lease__ttl_seconds": 2, "lease__renew_seconds": 0.3, "lease__margin_seconds": 0.5}


@pytest.fixture
async def store(postgres):
    async with postgres.database() as url:
        yield {"store__url": url}


@pytest.fixture
def cluster(store, cluster):
    """Ends before its store does: a write that is under way while a database is dropped is asked about for long."""
    return cluster


async def pair(cluster, store, scratch, **standby):
    """A leader and a standby that share the store and the cluster key."""
    shared = {**store, **LEASE, "pki__cluster_key_file": str(scratch / "cluster.key")}
    leader = await cluster.controller("first", **shared)
    other = await cluster.controller("second", **shared, **standby)
    assert leader.app.role.term is not None
    assert other.app.role.term is None
    return leader, other


async def test_a_standby_names_the_address_of_the_leader(cluster, store, scratch):
    leader, standby = await pair(cluster, store, scratch)
    with pytest.raises(CommandFailure) as refused:
        await call(standby.url, leader.admin_token, "GET", "/api/v1/nodes")
    assert refused.value.hint == f"ask the leader: {leader.url}"


async def test_a_standby_has_a_certificate_of_the_same_authority(cluster, store, scratch):
    leader, standby = await pair(cluster, store, scratch, http__tls__mode="cluster")
    authority = standby.app.config.authority_path
    with pytest.raises(CommandFailure) as refused:
        await call(standby.url, leader.admin_token, "GET", "/api/v1/nodes", ca_file=str(authority))
    assert refused.value.message == "this controller does not lead at present"
    assert standby.url.startswith("https://")


@pytest.mark.trap("T32")
async def test_a_daemon_that_knows_only_the_standby_is_sent_to_the_leader_and_stays_there(
    cluster, store, scratch
):
    async with FaultProxy() as proxy:
        leader, standby = await pair(cluster, store, scratch, via=proxy)
        token = await leader.join_token("n1")
        daemon = await cluster.daemon("n1", None, controllers=[proxy.address], join=token)
        await leader.wait_for_node("n1", NodeState.ONLINE)
        session = leader.app.role.term.sessions.find(NodeId("n1"))
        assert session.facts.id == daemon.app.link.session_id
        pinged = session.heartbeat.pinged
        await eventually(lambda: session.heartbeat.pinged >= pinged + 3)
        assert leader.app.role.term.sessions.find(NodeId("n1")) is session
        assert daemon.app.link._dialler._generation <= 2, (
            "one look at the standby, one connection to the leader"
        )
        assert proxy.connections <= 1
        assert LinkDirectory(standby.app.role, standby.app.own).leader_address() == leader.grpc_address
        await daemon.app.stop()


async def test_a_standby_is_alive_but_not_ready_and_says_where_the_leader_is(cluster, store, scratch):
    leader, standby = await pair(cluster, store, scratch)
    with pytest.raises(CommandFailure, match="lead"):
        await call(standby.url, leader.admin_token, "GET", "/api/v1/nodes")
    assert (await call(standby.url, "", "GET", "/health"))["status"] == "ok"


async def test_a_standby_takes_over_from_a_leader_that_stops_and_keeps_every_node(cluster, store, scratch):
    leader, standby = await pair(cluster, store, scratch)
    daemon = await cluster.daemon("n1", leader, controllers=[leader.grpc_address, standby.grpc_address])
    daemon.log.write("before")
    epoch = leader.app.role.term.epoch
    await leader.app.stop()
    await eventually(lambda: standby.app.role.term is not None)
    daemon.log.write("after")
    await standby.wait_for_node("n1", NodeState.ONLINE)
    assert standby.app.role.term.epoch > epoch
    await eventually(lambda: daemon.app.link._memory.epoch == standby.app.role.term.epoch)

    async def both():
        page = await call(standby.url, leader.admin_token, "GET", "/api/v1/logs?source=node:n1")
        return [record["message"] for record in page["items"]] == ["before", "after"]

    await eventually(both)


async def test_a_controller_without_the_cluster_key_refuses_to_stand_by(cluster, store):
    await cluster.controller("first", **store, **LEASE)
    with pytest.raises(CorralError, match="cluster key"):
        await cluster.controller("second", **store, **LEASE)


async def test_the_whole_way_of_a_node_works_on_postgresql_too(cluster, store):
    controller = await cluster.controller(**store)
    daemon = await cluster.daemon("n1", controller)
    for number in range(50):
        daemon.log.write(f"record {number}")

    async def stored():
        page = await controller.call("GET", "/api/v1/logs?source=node:n1&limit=500")
        return [record["message"] for record in page["items"]]

    await eventually(lambda: _has(stored, 50))
    assert await stored() == [f"record {number}" for number in range(50)]
    await controller.call("POST", "/api/v1/nodes/n1/cordon", {"reason": "maintenance"})
    await controller.call("POST", "/api/v1/nodes/n1/revoke", {"reason": "gone"})
    await controller.wait_for_node("n1", NodeState.REVOKED)
    await eventually(lambda: controller.app.role.term.sessions.find(NodeId("n1")) is None)
    await controller.call("DELETE", "/api/v1/nodes/n1")
    assert (await controller.call("GET", "/api/v1/nodes"))["items"] == []


async def _has(stored, count: int) -> bool:
    return len(await stored()) >= count


@pytest.mark.system
async def test_a_database_that_dies_under_load_loses_nothing_that_was_acknowledged(cluster):
    with PostgresServer() as server:
        async with server.database() as url:
            controller = await cluster.controller(store__url=url)
            acknowledged: list[str] = []
            refused: list[str] = []
            ending = asyncio.Event()

            async def keep_writing(writer: int) -> None:
                while not ending.is_set():
                    try:
                        body = {"name": f"w{writer}", "role": "VIEWER"}
                        answer = await controller.call("POST", "/api/v1/tokens", body)
                        acknowledged.append(answer["id"])
                    except CommandFailure as error:
                        refused.append(str(error))

            writers = [asyncio.create_task(keep_writing(writer)) for writer in range(4)]
            await eventually(lambda: len(acknowledged) > 20)
            await asyncio.to_thread(server.restart, immediate=True)
            survived = len(acknowledged)
            await eventually(lambda: len(acknowledged) > survived + 20, deadline=40)
            ending.set()
            await asyncio.gather(*writers)
            state = controller.app.role.term.state
            snapshot = await controller.app.store.reads.snapshot(["tokens"])
            assert set(acknowledged) <= {document.id for document in snapshot.documents}
            assert {document.id: document.revision for document in snapshot.documents} == {
                id: stored.revision for id, stored in state.tokens.items()
            }, "memory is exactly what the store has"
            await controller.app.stop()
