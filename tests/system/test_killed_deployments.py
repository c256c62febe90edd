"""Deployments whose controller is killed in each of their states, or succeeded by another one: they go on where they
were, and no id ever lives twice."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator

import pytest

from corral.testing.api_calls import wait_for_line
from corral.testing.fault_proxy import FaultProxy
from corral.testing.live_copies import LiveCopies
from corral.testing.postgres_server import PostgresServer
from tests.system.deployed_servers import FINAL, DeployedServers
from tests.system.estate import Estate

pytestmark = pytest.mark.system

CANARY = {"strategy": "canary", "canary_seconds": 0, "promote": "manual"}
LEASE = {
    "CORRAL_LEASE_TTL_SECONDS": "3",
    "CORRAL_LEASE_RENEW_SECONDS": "0.5",
    "CORRAL_LEASE_MARGIN_SECONDS": "1",
}


@contextlib.asynccontextmanager
async def deployed(processes, scratch, store="sqlite") -> AsyncIterator[DeployedServers]:
    with LiveCopies(scratch) as copies:
        servers = DeployedServers(processes, scratch, copies, store)
        yield servers
        assert copies.looks
        assert copies.together == {}, "of one id two lived at once"
        await servers.dispose()


@pytest.fixture
async def servers(processes, scratch):
    async with deployed(processes, scratch) as servers:
        yield servers


async def test_a_deployment_goes_on_from_each_state_in_which_its_controller_is_killed(servers):
    before = await servers.begin()
    await servers.change(2)

    # PENDING: a group that is held begins nothing.
    await servers.call("POST", "/api/v1/groups/lobby/hold", {"reason": "a test", "when_empty": True})
    id = await servers.deploy(**CANARY)
    await servers.deployment(id, "PENDING")
    await servers.kill_controller()
    assert (await servers.deployment(id, "PENDING"))["target"] == 2
    await servers.call("POST", "/api/v1/groups/lobby/release")

    # CANARY: the first instance is not ready, for its version is not open.
    await servers.deployment(id, "CANARY")
    await servers.kill_controller()
    await servers.deployment(id, "CANARY")
    servers.gates.open(2)

    # GATE: it waits for a word.
    await servers.deployment(id, "GATE")
    await servers.kill_controller()
    await servers.deployment(id, "GATE")
    servers.gates.close(2)

    # PAUSED
    await servers.order(id, "pause")
    await servers.kill_controller()
    assert (await servers.deployment(id, "PAUSED"))["resumes"] == "GATE"
    await servers.order(id, "resume")

    # ROLLING: the second one is not ready.
    await servers.order(id, "promote")
    await servers.deployment(id, "ROLLING")
    await servers.kill_controller()
    await servers.deployment(id, "ROLLING")
    servers.gates.open(2)
    done = await servers.deployment(id, *FINAL)
    assert done["state"] == "COMPLETED", done
    after = await servers.all_of(2)
    assert not {each["pid"] for each in after} & set(before.values())

    # ROLLING_BACK: those of the former version are not ready.
    servers.gates.open(3)
    await servers.change(3)
    id = await servers.deploy()
    await servers.until(
        servers.instances,
        lambda seen: any(each["ready"] and each["deployment_revision"] == 3 for each in seen),
    )
    await servers.order(id, "pause")
    servers.gates.close(2)
    await servers.order(id, "rollback")
    await servers.deployment(id, "ROLLING_BACK")
    await servers.kill_controller()
    assert (await servers.deployment(id, "ROLLING_BACK", "ROLLED_BACK"))["stable"] == 2
    servers.gates.open(2)
    await servers.deployment(id, "ROLLED_BACK")
    await servers.all_of(2)
    assert (await servers.call("GET", "/api/v1/groups/lobby"))["status"]["pinned_revision"] == 2


async def test_a_canary_that_fails_while_nobody_leads_is_taken_back_by_the_next_controller(servers):
    before = await servers.begin()
    await servers.change(2)
    id = await servers.deploy(strategy="canary")
    await servers.deployment(id, "CANARY")
    seen = await servers.until(
        servers.instances, lambda seen: any(each["pid"] for each in seen if each["id"] not in before)
    )
    (canary,) = [each for each in seen if each["id"] not in before]
    await wait_for_line(servers, canary["id"], "this is version 2")
    await servers.controller.kill()
    os.kill(canary["pid"], signal.SIGKILL)
    servers.gates.break_(2)
    servers.controller = await servers.estate.controller(**servers.environment)
    ended = await servers.deployment(id, *FINAL)
    assert ended["state"] == "ROLLED_BACK", ended
    failure = ended["failures"][0]
    assert failure["instance"] == canary["id"]
    assert "this is version 2" in failure["lines"]
    assert ended["undone"]
    assert {each["id"]: each["pid"] for each in await servers.all_of(1)} == before


async def test_a_deployment_is_finished_by_the_next_leader_on_postgresql(processes, scratch):
    with PostgresServer() as postgres:
        async with postgres.database() as url, deployed(processes, scratch, url) as servers:
            await succeeded(processes, scratch, servers, url)
            await servers.dispose()
            for process in processes.running():
                await process.kill()


async def succeeded(processes, scratch, servers: DeployedServers, url: str) -> None:
    key = {"CORRAL_PKI_CLUSTER_KEY_FILE": str(scratch / "cluster.key")}
    async with FaultProxy(servers.estate.grpc) as line:
        before = await servers.begin(
            "--controller", line.address, CORRAL_GRPC_ADVERTISE="127.0.0.1:1", **key, **LEASE
        )
        next = Estate(processes, scratch, store=url, data=scratch / "successor")
        successor = await next.controller(**servers.environment)
        await servers.change(2)
        id = await servers.deploy()
        await servers.until(servers.instances, lambda seen: len(seen) == 4)
        await servers.controller.kill()
        servers.api = f"http://{next.http}"
        line.retarget(next.grpc)
        servers.controller = successor
        going = await servers.deployment(id, "ROLLING")
        assert (going["target"], going["stable"]) == (2, 1)
        servers.gates.open(2)
        done = await servers.deployment(id, *FINAL)
        assert done["state"] == "COMPLETED", done
        after = await servers.all_of(2)
        assert not {each["pid"] for each in after} & set(before.values())
