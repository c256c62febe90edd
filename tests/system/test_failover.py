"""A leader that is frozen, deposed and thawed: it can change nothing any more."""

from __future__ import annotations

import signal

import pytest
from estate import Estate

from corral.cli.failure import CommandFailure
from corral.testing.api_calls import call
from corral.testing.postgres_server import PostgresServer
from corral.testing.waiting import eventually

pytestmark = pytest.mark.system
LEASE = {
    "CORRAL_LEASE_TTL_SECONDS": "3",
    "CORRAL_LEASE_RENEW_SECONDS": "0.5",
    "CORRAL_LEASE_MARGIN_SECONDS": "1",
}


@pytest.fixture(scope="module", autouse=True)
def postgres():
    with PostgresServer() as server:
        yield server


@pytest.mark.trap("T15", "T52")
async def test_a_frozen_leader_is_succeeded_and_can_change_nothing_when_it_thaws(
    processes, scratch, postgres
):
    async with postgres.database() as url:
        key = {"CORRAL_PKI_CLUSTER_KEY_FILE": str(scratch / "cluster.key"), **LEASE}
        old = Estate(processes, scratch, store=url, data=scratch / "old")
        new = Estate(processes, scratch, store=url, data=scratch / "new")
        leader = await old.controller(**key)
        successor = await new.controller(**key)
        await old.daemon("n1", "--controller", f"{old.grpc},{new.grpc}")
        token = old.token

        async def at_new(method: str, path: str, body=None):
            return await call(f"http://{new.http}", token, method, path, body)

        leader.signal(signal.SIGSTOP)

        async def leads():
            try:
                return (await at_new("GET", "/api/v1/cluster"))["leader"]["epoch"] == 2
            except CommandFailure:
                return False

        await eventually(leads, deadline=30, state=lambda: successor.stderr[-3000:])

        async def online():
            return (await at_new("GET", "/api/v1/nodes/n1"))["state"] == "ONLINE"

        await eventually(online, deadline=30)
        leader.signal(signal.SIGCONT)
        for _ in range(5):
            with pytest.raises(CommandFailure):
                await call(
                    f"http://{old.http}", token, "POST", "/api/v1/tokens", {"name": "x", "role": "ADMIN"}
                )
        names = [item["name"] for item in (await at_new("GET", "/api/v1/tokens"))["items"]]
        assert "x" not in names
        events = await at_new("GET", "/api/v1/events?limit=500")
        epochs = [int(event["id"].split("-")[0]) for event in events["items"]]
        assert epochs == sorted(epochs), "nothing of the old epoch came after the take-over"
        assert await online()
        for process in processes.running():
            await process.kill()
